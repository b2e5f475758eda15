"""The metrics gate lets in whom OpenShift's would, and passes queries to Prometheus unchanged."""

import http.client
import shutil
import socket
import ssl
import threading
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import cast

import pytest

from lab.stand_ins.access_review import RecentVerdicts, Verdict
from lab.stand_ins.metrics_gate import Certificate, GateServer
from lab.stand_ins.signing import issue, new_authority


class UpstreamServer(ThreadingHTTPServer):
    """Prometheus: notes what it was asked."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Upstream)
        self.seen = []


class Upstream(BaseHTTPRequestHandler):
    def do_GET(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        cast("UpstreamServer", self.server).seen.append((self.command, self.path, body, dict(self.headers)))
        self.send_response(int(self.path.rpartition("status=")[2] or 200) if "status=" in self.path else 200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(b'{"status":"success"}')

    def do_POST(self):
        self.do_GET()

    def log_request(self, code="-", size="-"):
        pass


@contextmanager
def serving(server):
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def write_certificate(directory, authority):
    pair = issue(authority, ["localhost"])
    (directory / "tls.key").write_text(pair.key)
    (directory / "tls.crt").write_text(pair.certificate)
    return pair


VERDICTS = {
    "good": Verdict(HTTPStatus.OK, "reader"),
    "poor": Verdict(HTTPStatus.FORBIDDEN, "may not"),
    "bad": Verdict(HTTPStatus.UNAUTHORIZED, "unknown"),
}


def decide(token):
    if token == "unreviewed":
        raise OSError("no route to the API server")
    return VERDICTS[token]


AUTHORITY = new_authority("test")


class Gate:
    authority = AUTHORITY

    def __init__(self, directory):
        self.directory = directory
        self.upstream = UpstreamServer()
        self.server = GateServer(
            ("127.0.0.1", 0),
            Certificate(directory),
            RecentVerdicts(decide),
            f"http://127.0.0.1:{self.upstream.server_port}",
        )

    def client(self, authority=None):
        context = ssl.create_default_context(cadata=(authority or self.authority).certificate)
        return http.client.HTTPSConnection("localhost", self.server.server_port, timeout=10, context=context)

    def ask(self, method, path, token=None, body=None, headers=None):
        connection = self.client()
        given = {"Authorization": f"Bearer {token}"} if token else {}
        connection.request(method, path, body=body, headers=given | (headers or {}))
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer.status, content, answer.headers


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    directory = tmp_path_factory.mktemp("certificate")
    write_certificate(directory, AUTHORITY)
    return directory


@pytest.fixture
def gate(tmp_path, certificate):
    shutil.copytree(certificate, tmp_path, dirs_exist_ok=True)
    made = Gate(tmp_path)
    with serving(made.upstream), serving(made.server):
        yield made


@pytest.mark.parametrize(("token", "status"), [(None, 401), ("bad", 401), ("poor", 403), ("unreviewed", 503)])
def test_nobody_reaches_prometheus_without_a_good_token(gate, token, status):
    answered, content, headers = gate.ask("GET", "/api/v1/query?query=up", token)
    assert answered == status
    assert headers.get("WWW-Authenticate") == ("Bearer" if status == 401 else None)
    assert content.startswith(HTTPStatus(status).phrase.encode())
    assert gate.upstream.seen == []


def test_a_query_and_its_answer_pass_unchanged_and_the_token_stays_here(gate):
    status, content, headers = gate.ask("GET", "/api/v1/query?query=sum(up%7Bjob%3D%22a%22%7D)&time=1", "good")
    assert (status, content, headers["Content-Type"]) == (200, b'{"status":"success"}', "application/json")
    ((method, path, _, passed),) = gate.upstream.seen
    assert (method, path) == ("GET", "/api/v1/query?query=sum(up%7Bjob%3D%22a%22%7D)&time=1")
    assert "Authorization" not in passed


def test_a_posted_query_keeps_its_form(gate):
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert gate.ask("POST", "/api/v1/query", "good", "query=up", form)[0] == 200
    ((method, _, body, passed),) = gate.upstream.seen
    assert (method, body, passed["Content-Type"]) == ("POST", b"query=up", "application/x-www-form-urlencoded")


def test_an_error_of_prometheus_keeps_its_status(gate):
    assert gate.ask("GET", "/api/v1/query?status=422", "good")[0] == 422


@pytest.mark.parametrize("path", ["/-/reload", "/-/quit", "/metrics", "/"])
def test_only_the_query_api_is_served(gate, path):
    assert gate.ask("POST", path, "good")[0] == 404
    assert gate.upstream.seen == []


def test_health_needs_no_token(gate):
    assert gate.ask("GET", "/healthz")[:2] == (200, b"ok\n")


def test_a_dead_prometheus_is_a_bad_gateway(gate):
    gate.server.upstream = ("127.0.0.1", 1)
    assert gate.ask("GET", "/api/v1/query?query=up", "good")[0] == 502


def test_one_connection_carries_refused_and_served_requests(gate):
    connection = gate.client()
    seen = []
    for token in ("bad", "good", "poor", "good"):
        connection.request("POST", "/api/v1/query", "query=up", {"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        answer.read()
        seen.append(answer.status)
    connection.close()
    assert seen == [401, 200, 403, 200]


def test_a_silent_client_does_not_hold_up_the_others(gate):
    with socket.create_connection(("127.0.0.1", gate.server.server_port)):
        assert gate.ask("GET", "/healthz")[0] == 200


def test_a_renewed_certificate_serves_the_next_connection(gate):
    renewed = new_authority("renewed")
    with pytest.raises(ssl.SSLCertVerificationError):
        gate.client(renewed).connect()
    write_certificate(gate.directory, renewed)
    gate.server.certificate._loaded = -1  # two writes within one tick of the clock look the same
    connection = gate.client(renewed)
    connection.request("GET", "/healthz")
    assert connection.getresponse().status == 200
    connection.close()
