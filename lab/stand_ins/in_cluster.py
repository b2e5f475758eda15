"""How a stand-in that runs in a pod talks to the API server: its service account, requests and watches.

Standard library only, because the lab itself imports what its add-ons are made of. A test gives another credentials
directory and address.
"""

import http.client
import json
import os
import ssl
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Protocol
from urllib.parse import urlencode

CREDENTIALS = Path("/var/run/secrets/kubernetes.io/serviceaccount")

_REQUEST_SECONDS = 10
_WATCH_SECONDS = 240  # the server ends a watch then; the caller lists again, so nothing missed stays missed for longer
_RETRY_SECONDS = 2.0

Object = dict[str, Any]


class NotInAPodError(RuntimeError):
    """There is no service account, or no address of an API server."""


class ApiError(Exception):
    """The API server refused a request.

    Attributes:
        status: HTTP status code.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class Requests(Protocol):
    """What answers requests as `ApiServer` does."""

    def request(self, method: str, path: str, body: Object | None = None, content: str = ...) -> Object:
        """Send one request and return the object that came back."""
        ...


class Collections(Requests, Protocol):
    """What also watches as `ApiServer` does."""

    def watch(self, path: str, version: str) -> Iterator[Object]:
        """The changes of a collection after `version`."""
        ...


@dataclass(frozen=True)
class ApiServer:
    """The API server as a pod sees it.

    Attributes:
        host: Address, `KUBERNETES_SERVICE_HOST` in a pod.
        port: TCP port, `KUBERNETES_SERVICE_PORT` in a pod.
        credentials: Directory with `token` and `ca.crt`. The token is read for each request: the kubelet renews it.
    """

    host: str
    port: int
    credentials: Path = CREDENTIALS

    @classmethod
    def from_environment(
        cls, credentials: Path = CREDENTIALS, environment: Mapping[str, str] = os.environ
    ) -> "ApiServer":
        """The server of the cluster that this pod runs in.

        Raises:
            NotInAPodError: this is no pod of a cluster.
        """
        if "KUBERNETES_SERVICE_HOST" not in environment or not (credentials / "token").exists():
            raise NotInAPodError(f"not in a pod: no KUBERNETES_SERVICE_HOST, or no service account in {credentials}")
        return cls(environment["KUBERNETES_SERVICE_HOST"], int(environment["KUBERNETES_SERVICE_PORT"]), credentials)

    def request(self, method: str, path: str, body: Object | None = None, content: str = "application/json") -> Object:
        """Send one request and return the object that came back.

        Args:
            method: HTTP method.
            path: Path and query below the server's root.
            body: Object to send.
            content: Media type of `body` (`application/merge-patch+json` for a patch).

        Raises:
            ApiError: the server answered with an error.
            OSError: no answer.
        """
        connection = self._connect(_REQUEST_SECONDS)
        try:
            answer = self._send(connection, method, path, body, content)
            return json.loads(answer.read())
        finally:
            connection.close()

    def watch(self, path: str, version: str) -> Iterator[Object]:
        """The changes of a collection after resource version `version`, as watch events, until the server ends it.

        Raises:
            ApiError: the server refused, or sent an error event (410: `version` is too old; list again).
            OSError: the connection broke.
        """
        query = urlencode({"watch": "1", "resourceVersion": version, "timeoutSeconds": _WATCH_SECONDS})
        connection = self._connect(_WATCH_SECONDS + 60)
        try:
            answer = self._send(connection, "GET", f"{path}?{query}", None, "application/json")
            while line := answer.readline():
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise ApiError(event["object"].get("code", 500), event["object"].get("message", "watch failed"))
                yield event
        finally:
            connection.close()

    def _connect(self, seconds: float) -> http.client.HTTPSConnection:
        context = ssl.create_default_context(cafile=str(self.credentials / "ca.crt"))
        return http.client.HTTPSConnection(self.host, self.port, timeout=seconds, context=context)

    def _send(
        self, connection: http.client.HTTPSConnection, method: str, path: str, body: Object | None, content: str
    ) -> http.client.HTTPResponse:
        token = (self.credentials / "token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}", "Accept": "application/json", "Content-Type": content}
        connection.request(method, path, body=json.dumps(body) if body is not None else None, headers=headers)
        answer = connection.getresponse()
        if answer.status >= http.client.BAD_REQUEST:
            raise ApiError(answer.status, _message(answer.read()))
        return answer


def follow(
    api: Collections,
    path: str,
    replace: Callable[[list[Object]], None],
    apply: Callable[[str, Object], None],
    pause: Callable[[float], object] = time.sleep,
) -> NoReturn:
    """List a collection, then watch it, for ever; an error, also of a handler, or the end of a watch starts over.

    Args:
        api: Server to ask.
        path: The collection.
        replace: Called with every object of a list (which carry no kind: the type of the collection says it).
        apply: Called with the type (`ADDED`, `MODIFIED`, `DELETED`) and the object of each change.
        pause: Waits that many seconds after an error.
    """
    while True:
        try:
            collection = api.request("GET", path)
            replace(collection["items"])
            for event in api.watch(path, collection["metadata"]["resourceVersion"]):
                apply(event["type"], event["object"])
        except (ApiError, OSError, http.client.HTTPException, ValueError) as error:
            print(f"{path}: {error!r}; listing again in {_RETRY_SECONDS:g} s", file=sys.stderr, flush=True)
            pause(_RETRY_SECONDS)


def in_background(work: Callable[[], NoReturn]) -> None:
    """Do `work` beside everything else. A mistake in it ends the process, which would be blind without saying so."""

    def run() -> None:
        try:
            work()
        finally:
            traceback.print_exc()
            os._exit(1)

    threading.Thread(target=run, daemon=True).start()


def _message(body: bytes) -> str:
    """What a Status object says, or the text itself where a proxy in between answered."""
    try:
        return json.loads(body)["message"]
    except (ValueError, KeyError, TypeError):
        return body[:200].decode(errors="replace")
