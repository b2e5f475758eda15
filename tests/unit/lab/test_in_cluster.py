"""A stand-in's way to the API server: its token of the moment, errors as errors, watches line by line."""

import json
import ssl
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import cast

import pytest

from lab.stand_ins.in_cluster import ApiError, ApiServer, NotInAPodError, follow
from lab.stand_ins.signing import issue, new_authority

EVENTS = {
    "1": [{"type": "ADDED", "object": {"n": 1}}, {"type": "MODIFIED", "object": {"n": 2}}],
    "old": [{"type": "ADDED", "object": {"n": 1}}, {"type": "ERROR", "object": {"code": 410, "message": "too old"}}],
}


class Server(ThreadingHTTPServer):
    """An API server with one thing."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.seen = []
        self.body = None
        self.answer = (200, b'{"kind":"Thing"}')


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def noted(self):
        return cast("Server", self.server)

    def do_GET(self):
        self.noted.seen.append((self.command, self.path, self.headers["Authorization"], self.headers["Content-Type"]))
        if "watch=1" in self.path:
            version = self.path.partition("resourceVersion=")[2].partition("&")[0]
            lines = [json.dumps(event).encode() + b"\n" for event in EVENTS[version]]
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for line in lines:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
            self.wfile.write(b"0\r\n\r\n")
            return
        status, body = self.noted.answer
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_PATCH(self):
        self.noted.body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.do_GET()

    def log_request(self, code="-", size="-"):
        pass


AUTHORITY = new_authority("cluster")
PAIR = issue(AUTHORITY, ["localhost"])


@pytest.fixture
def server(tmp_path):
    (tmp_path / "pair.pem").write_text(PAIR.certificate + PAIR.key)
    (tmp_path / "ca.crt").write_text(AUTHORITY.certificate)
    (tmp_path / "token").write_text("first\n")
    made = Server()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "pair.pem")
    made.socket = context.wrap_socket(made.socket, server_side=True)
    thread = threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


@pytest.fixture
def api(server, tmp_path):
    environment = {"KUBERNETES_SERVICE_HOST": "localhost", "KUBERNETES_SERVICE_PORT": str(server.server_port)}
    return ApiServer.from_environment(tmp_path, environment)


def test_each_request_carries_the_token_of_that_moment(api, server, tmp_path):
    assert api.request("GET", "/api/v1/x") == {"kind": "Thing"}
    (tmp_path / "token").write_text("renewed\n")
    api.request("GET", "/api/v1/x")
    assert [token for *_, token, _ in server.seen] == ["Bearer first", "Bearer renewed"]


def test_a_patch_says_what_kind_it_is(api, server):
    api.request("PATCH", "/api/v1/x", {"data": {"a": "b"}}, "application/merge-patch+json")
    assert server.seen == [("PATCH", "/api/v1/x", "Bearer first", "application/merge-patch+json")]
    assert server.body == {"data": {"a": "b"}}


@pytest.mark.parametrize(
    ("body", "message"),
    [(b'{"message":"secrets is forbidden"}', "secrets is forbidden"), (b"bad gateway", "bad gateway")],
)
def test_a_refusal_is_an_error_with_the_servers_words(api, server, body, message):
    server.answer = (403, body)
    with pytest.raises(ApiError, match=f"403: {message}") as caught:
        api.request("GET", "/api/v1/x")
    assert caught.value.status == 403


def test_a_watch_yields_events_until_the_server_ends_it(api, server):
    assert list(api.watch("/api/v1/x", "1")) == EVENTS["1"]
    assert server.seen[0][1].startswith("/api/v1/x?watch=1&resourceVersion=1&timeoutSeconds=")


def test_an_error_event_ends_a_watch_as_an_error(api):
    events = api.watch("/api/v1/x", "old")
    assert next(events) == EVENTS["old"][0]
    with pytest.raises(ApiError, match="410: too old"):
        next(events)


def test_a_server_of_another_authority_is_not_spoken_to(api, server, tmp_path):
    (tmp_path / "ca.crt").write_text(new_authority("other").certificate)
    with pytest.raises(ssl.SSLCertVerificationError):
        api.request("GET", "/api/v1/x")
    assert server.seen == []


class EnoughError(Exception):
    """Ends a loop that has no end."""


def test_following_lists_then_watches_from_there_and_lists_again_after_an_error():
    class Feed:
        def __init__(self):
            self.watched = []

        def request(self, method, path, body=None, content="application/json"):
            assert (method, path, body, content) == ("GET", "/api/v1/secrets", None, "application/json")
            version = str(10 * (len(self.watched) + 1))
            return {"metadata": {"resourceVersion": version}, "items": [f"item at {version}"]}

        def watch(self, path, version):
            assert path == "/api/v1/secrets"
            self.watched.append(version)
            if len(self.watched) > 1:
                raise EnoughError
            yield {"type": "MODIFIED", "object": "changed"}
            raise ApiError(410, "too old")

    seen, pauses, feed = [], [], Feed()
    with pytest.raises(EnoughError):
        follow(feed, "/api/v1/secrets", seen.append, lambda *change: seen.append(change), pauses.append)
    assert seen == [["item at 10"], ("MODIFIED", "changed"), ["item at 20"]]
    assert feed.watched == ["10", "20"]
    assert len(pauses) == 1


def test_a_handler_that_fails_gets_a_new_list_after_a_pause(api, server):
    server.answer = (200, b'{"metadata":{"resourceVersion":"1"},"items":[]}')
    pauses = []

    def replace(_):
        if pauses:
            raise EnoughError
        raise ApiError(403, "no role yet")

    with pytest.raises(EnoughError):
        follow(api, "/api/v1/x", replace, lambda *_: None, pauses.append)
    assert len(pauses) == 1


def test_outside_of_a_pod_it_says_so(tmp_path):
    with pytest.raises(NotInAPodError, match="no KUBERNETES_SERVICE_HOST, or no service account in"):
        ApiServer.from_environment(tmp_path, {"KUBERNETES_SERVICE_HOST": "localhost", "KUBERNETES_SERVICE_PORT": "1"})


def test_a_mistake_in_the_background_ends_the_process():
    program = "from lab.stand_ins.in_cluster import in_background; import threading\n"
    program += "in_background(lambda: 1 / 0)\nthreading.Event().wait(20)"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert ended.returncode == 1
    assert b"ZeroDivisionError" in ended.stderr
