"""The lab's own calls to an API server, against a server with the lab's own certificates."""

import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from lab import lifecycle
from lab.api import Api, ApiError
from lab.node import certificates
from lab.paths import Instance


class Handler(BaseHTTPRequestHandler):
    """One node, a watch with two events, and a refusal; remembers what was sent."""

    received: ClassVar[list[tuple[str, str, bytes]]] = []
    node: ClassVar[dict] = {}

    def do_GET(self):
        if "watch=1" in self.path:
            self._answer(200, b'{"type": "ADDED"}\n{"type": "MODIFIED"}\n')
        elif self.path == "/forbidden":
            self._answer(403, b'{"message": "no"}')
        else:
            self._answer(200, json.dumps(self.node).encode())

    def do_PATCH(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.received.append((self.path, self.headers["Content-Type"], body))
        self._answer(200, b"{}")

    def _answer(self, status, body):
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format, *args):  # noqa: A002  the base class's names
        """Say nothing."""


@pytest.fixture
def instance(tmp_path, monkeypatch):
    """An instance whose kubeconfig leads to a server that wants a client certificate."""
    monkeypatch.setattr("lab.paths.STATE_ROOT", tmp_path)
    instance = Instance("t9")
    instance.state.mkdir()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        monkeypatch.setattr(Instance, "api_port", server.server_address[1])
        pki = certificates.create(instance)
        context.load_cert_chain(pki.certificate("apiserver"), pki.key("apiserver"))
        context.load_verify_locations(pki.ca)
        context.verify_mode = ssl.CERT_REQUIRED
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield instance
        server.shutdown()
        thread.join(10)


@pytest.fixture
def api(instance) -> Api:
    return Api.from_kubeconfig(instance.kubeconfig)


def test_a_document_comes_back_decoded(api, monkeypatch):
    monkeypatch.setattr(Handler, "node", {"kind": "Node"})
    assert api.get("/api/v1/nodes/x") == {"kind": "Node"}


def test_a_patch_is_sent_as_json_patch(api, monkeypatch):
    received: list = []
    monkeypatch.setattr(Handler, "received", received)
    api.json_patch("/x/status", [{"op": "add", "path": "/a", "value": "1"}])
    assert received == [("/x/status", "application/json-patch+json", b'[{"op": "add", "path": "/a", "value": "1"}]')]


def test_a_watch_yields_its_events_and_ends_with_the_connection(api):
    assert [event["type"] for event in api.watch("/x?watch=1")] == ["ADDED", "MODIFIED"]


def test_a_refusal_is_told_with_the_servers_words(api):
    with pytest.raises(ApiError, match=r"GET /forbidden: 403 .*no"):
        api.get("/forbidden")


def test_a_server_that_is_not_there_is_said_not_to_answer(api):
    gone = Api("https://127.0.0.1:1", api.context, timeout_seconds=2)
    with pytest.raises(ApiError, match=r"https://127.0.0.1:1 does not answer: ConnectionRefused"):
        gone.get("/")


READY = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"nvidia.com/gpu": "16"}}
WAITING = {"conditions": [{"type": "Ready", "status": "False", "message": "no network"}]}


@pytest.mark.parametrize(
    ("status", "problem"),
    [
        (READY, None),
        (WAITING, "node lab-t9 is not Ready: no network"),
        ({}, "node lab-t9 is not Ready: no condition yet"),
        (READY | {"allocatable": {"cpu": "2"}}, "node lab-t9 has 0 nvidia.com/gpu instead of 16"),
    ],
)
def test_a_node_is_judged_by_its_condition_and_its_gpus(instance, monkeypatch, status, problem):
    monkeypatch.setattr(Handler, "node", {"status": status})
    assert lifecycle.node_problem(instance, 16) == problem
