"""The few calls that the lab itself makes to its API server, on the standard library alone."""

import base64
import json
import ssl
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from lab.errors import LabError

_JSON_PATCH = "application/json-patch+json"


class ApiError(LabError):
    """The server refused, or there is none; the message has its words, or says that it does not answer."""


@dataclass(frozen=True)
class Api:
    """One API server, as one user; every call may raise ApiError.

    Attributes:
        server: `https://host:port`.
        context: Trust and identity.
        timeout_seconds: For every read.
    """

    server: str
    context: ssl.SSLContext
    timeout_seconds: float = 10.0

    @classmethod
    def from_kubeconfig(cls, path: Path, timeout_seconds: float = 10.0) -> "Api":
        """The server and user of a kubeconfig that `lab.node.certificates` wrote."""
        document = yaml.safe_load(path.read_text())
        cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
        context = ssl.create_default_context(cadata=_decoded(cluster["certificate-authority-data"]))
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as pair:  # ssl loads an identity from a file only
            pair.write(_decoded(user["client-certificate-data"]) + _decoded(user["client-key-data"]))
            pair.flush()
            context.load_cert_chain(pair.name)
        return cls(cluster["server"], context, timeout_seconds)

    def get(self, path: str) -> Any:  # noqa: ANN401  whatever JSON the server has there
        """Decoded body of `path`."""
        with self._request("GET", path) as response:
            return json.load(response)

    def json_patch(self, path: str, operations: list[dict[str, Any]]) -> None:
        """Apply a JSON patch (RFC 6902) to `path`."""
        with self._request("PATCH", path, json.dumps(operations).encode(), _JSON_PATCH):
            pass

    def watch(self, path: str) -> Iterator[dict[str, Any]]:
        """Events of a watch, until the server ends it or says nothing for `timeout_seconds`."""
        with self._request("GET", path) as response, suppress(TimeoutError):
            while line := response.readline():
                yield json.loads(line)

    @contextmanager
    def _request(
        self, method: str, path: str, body: bytes | None = None, content_type: str = "application/json"
    ) -> Generator[HTTPResponse]:
        address = urlsplit(self.server)
        connection: HTTPConnection = HTTPSConnection(
            address.hostname or "", address.port, timeout=self.timeout_seconds, context=self.context
        )
        try:
            headers = {"Accept": "application/json", "Content-Type": content_type}
            connection.request(method, path, body=body, headers=headers)
            response = connection.getresponse()
            if response.status >= 300:  # noqa: PLR2004  first status that is not a success
                raise ApiError(f"{method} {path}: {response.status} {response.read().decode(errors='replace').strip()}")
            yield response
        except (OSError, HTTPException) as error:
            raise ApiError(f"{self.server} does not answer: {error!r}") from error
        finally:
            connection.close()


def _decoded(text: str) -> str:
    return base64.b64decode(text).decode()
