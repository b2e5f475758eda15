"""Stand-in for the door of OpenShift's monitoring: Prometheus' query API, over TLS, for those whose token may read it.

A request is answered 401 without a bearer token that passes TokenReview, 403 when its owner may not `get` the resource
`prometheuses/api` (monitoring.coreos.com, namespace openshift-monitoring, name k8s), which ClusterRole
`cluster-monitoring-view` grants; else by Prometheus. GET and POST below /api/ only; `GET /healthz` needs no token.

Run: `metrics_gate --upstream http://prometheus.openshift-monitoring.svc:9090 --certificate /etc/tls` (files `tls.crt`,
`tls.key`; a renewed certificate is picked up). Standard library only.
"""

import argparse
import http.client
import os
import signal
import socket
import ssl
import sys
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar, cast
from urllib.parse import urlsplit

from lab.stand_ins.access_review import RecentVerdicts, Verdict, judge
from lab.stand_ins.in_cluster import CREDENTIALS, ApiError, ApiServer

RESOURCE = {
    "verb": "get",
    "group": "monitoring.coreos.com",
    "resource": "prometheuses",
    "subresource": "api",
    "namespace": "openshift-monitoring",
    "name": "k8s",  # the Prometheus object; a role may name it
}

_BODY_BYTES = 1 << 20  # a query of any length we build is a few kilobytes
_UPSTREAM_SECONDS = 60
_PASSED_UP = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")  # never the caller's token
_PASSED_DOWN = ("Content-Type", "Content-Encoding", "Warning")


class Certificate:
    """A serving certificate on disk that may be renewed while we serve."""

    def __init__(self, directory: Path) -> None:
        self._chain = directory / "tls.crt"
        self._key = directory / "tls.key"
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._loaded = -1

    def context(self) -> ssl.SSLContext:
        """The TLS context for the next connection, with what is on disk now."""
        changed = self._chain.stat().st_mtime_ns
        if changed != self._loaded:
            self._context.load_cert_chain(self._chain, self._key)
            self._loaded = changed
        return self._context


class GateServer(ThreadingHTTPServer):
    """One thread per connection, TLS handshake included: a silent client holds up nobody."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(
        self, address: tuple[str, int], certificate: Certificate, verdicts: RecentVerdicts, upstream: str
    ) -> None:
        self.certificate = certificate
        self.verdicts = verdicts
        target = urlsplit(upstream)
        self.upstream = (target.hostname or "", target.port or 80)
        certificate.context()  # a missing certificate is an error now, not at the first request
        super().__init__(address, _Handler)

    def get_request(self) -> tuple[socket.socket, object]:
        """Accept a connection; the handshake happens in its own thread, at the first read."""
        connection, address = super().get_request()
        secure = self.certificate.context().wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        return secure, address

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002 - fixed by the base class
        """Say in one line that a connection broke: port probes and distrusting clients do it all the time."""
        print(f"{client_address}: {sys.exc_info()[1]!r}", file=sys.stderr, flush=True)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 120
    disable_nagle_algorithm: ClassVar[bool] = True

    @property
    def _gate(self) -> GateServer:
        return cast("GateServer", self.server)

    def do_GET(self) -> None:
        if self.path == "/healthz":
            self._answer(HTTPStatus.OK, b"ok\n")
        else:
            self._serve()

    def do_POST(self) -> None:
        self._serve()

    def log_request(self, code: object = "-", size: object = "-") -> None:
        """Keep quiet: a scaler asks every few seconds for ever."""

    def _serve(self) -> None:
        body = self._body()
        if body is None:
            return
        try:
            verdict = self._gate.verdicts.of(self.headers.get("Authorization"))
        except (ApiError, OSError, http.client.HTTPException) as error:
            self._refuse(Verdict(HTTPStatus.SERVICE_UNAVAILABLE, f"the API server did not review the token: {error}"))
            return
        if verdict.status != HTTPStatus.OK:
            self._refuse(verdict)
        elif not self.path.startswith("/api/"):
            self._answer(HTTPStatus.NOT_FOUND, b"only the query API below /api/ is served here\n")
        else:
            self._forward(body)

    def _body(self) -> bytes | None:
        """The request's body, or None when it was refused. An unread body would be taken for the next request."""
        length = self.headers.get("Content-Length", "0")
        if "Transfer-Encoding" in self.headers or not length.isdecimal():
            self.close_connection = True
            self._answer(HTTPStatus.LENGTH_REQUIRED, b"")
            return None
        if int(length) > _BODY_BYTES:
            self.close_connection = True
            self._answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, b"")
            return None
        return self.rfile.read(int(length))

    def _forward(self, body: bytes) -> None:
        headers = {name: self.headers[name] for name in _PASSED_UP if name in self.headers}
        connection = http.client.HTTPConnection(*self._gate.upstream, timeout=_UPSTREAM_SECONDS)
        try:
            connection.request(self.command, self.path, body=body or None, headers=headers)
            answer = connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException) as error:
            self._refuse(Verdict(HTTPStatus.BAD_GATEWAY, f"Prometheus does not answer: {error}"))
            return
        finally:
            connection.close()
        passed = {name: value for name in _PASSED_DOWN if (value := answer.headers.get(name))}
        self._answer(answer.status, content, passed)

    def _refuse(self, verdict: Verdict) -> None:
        print(
            f"{self.client_address[0]} {self.command} {verdict.status.value}: {verdict.reason}",
            file=sys.stderr,
            flush=True,
        )
        challenge = {"WWW-Authenticate": "Bearer"} if verdict.status == HTTPStatus.UNAUTHORIZED else {}
        self._answer(verdict.status, f"{verdict.status.phrase}: {verdict.reason}\n".encode(), challenge)

    def _answer(self, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in ({"Content-Type": "text/plain; charset=utf-8"} | (headers or {})).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def main(arguments: list[str] | None = None) -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--listen", default="0.0.0.0:9091", help="address:port")
    parser.add_argument("--upstream", required=True, help="Prometheus, http://host:port")
    parser.add_argument("--certificate", required=True, type=Path, help="directory with tls.crt and tls.key")
    parser.add_argument("--credentials", default=CREDENTIALS, type=Path, help="service account directory")
    options = parser.parse_args(arguments)
    # The first process of a container gets no default handlers: without this it would sit out its grace period.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    api = ApiServer.from_environment(options.credentials)
    host, _, port = options.listen.rpartition(":")
    server = GateServer(
        (host, int(port)),
        Certificate(options.certificate),
        RecentVerdicts(lambda token: judge(api, token, {"resourceAttributes": RESOURCE})),
        options.upstream,
    )
    server.serve_forever()


if __name__ == "__main__":
    main()
