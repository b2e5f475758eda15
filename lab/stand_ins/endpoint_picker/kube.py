"""How the picker reaches the Kubernetes API: by the file in `KUBECONFIG`, else by its pod's service account."""

import base64
import json
import ssl
import tempfile
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import yaml

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_REQUEST_TIMEOUT = aiohttp.ClientTimeout(total=10)
_WATCH_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=400)  # the server ends a watch before


class CredentialsError(RuntimeError):
    """There is no way to the Kubernetes API."""


class ApiStatusError(Exception):
    """The API answered with another status than success.

    Attributes:
        status: HTTP status, or the code of a watch's ERROR event.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


@dataclass(frozen=True)
class Access:
    """Address and credentials. The token file is read again for each request, as the kubelet renews it."""

    server: str
    tls: ssl.SSLContext | None = None
    token: str = ""
    token_file: Path | None = None

    def headers(self) -> dict[str, str]:
        """Authorization, if a token is used."""
        token = self.token_file.read_text().strip() if self.token_file else self.token
        return {"Authorization": f"Bearer {token}"} if token else {}


def find_access(environment: Mapping[str, str], service_account: Path = SERVICE_ACCOUNT) -> Access:
    """The API of `KUBECONFIG`, else of the pod's own cluster.

    Raises:
        CredentialsError: Neither is there, or the file cannot be used.
    """
    if environment.get("KUBECONFIG"):
        return _from_kubeconfig(Path(environment["KUBECONFIG"]))
    host, port = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT", "443")
    token_file = service_account / "token"
    if not host or not token_file.exists():
        raise CredentialsError(f"no KUBECONFIG, and not in a pod with a service account ({token_file} is missing)")
    if ":" in host:
        host = f"[{host}]"
    tls = ssl.create_default_context(cafile=str(service_account / "ca.crt"))
    return Access(f"https://{host}:{port}", tls, token_file=token_file)


def _from_kubeconfig(path: Path) -> Access:
    """The current context of a kubeconfig file; certificates and tokens, no exec plugins."""
    try:
        document = yaml.safe_load(path.read_text())
        context = _named(document["contexts"], document["current-context"])["context"]
        cluster = _named(document["clusters"], context["cluster"])["cluster"]
        user = _named(document["users"], context["user"])["user"]
        server = cluster["server"].rstrip("/")
        if not server.startswith("https://"):
            return Access(server, token=user.get("token", ""))
        authority = _bytes(cluster, "certificate-authority", path.parent)
        tls = ssl.create_default_context(cadata=authority.decode() if authority else None)
        if cluster.get("insecure-skip-tls-verify"):
            tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        certificate, key = (_bytes(user, name, path.parent) for name in ("client-certificate", "client-key"))
        if certificate and key:
            with tempfile.NamedTemporaryFile() as both:  # the ssl module takes files only
                both.write(certificate + b"\n" + key)
                both.flush()
                tls.load_cert_chain(both.name)
    except (OSError, KeyError, TypeError, StopIteration, AttributeError, ValueError, yaml.YAMLError) as error:
        raise CredentialsError(f"kubeconfig {path}: {error!r}") from error
    return Access(server, tls, token=user.get("token", ""))


def _named(items: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(item for item in items if item["name"] == name)


def _bytes(entry: Mapping[str, str], key: str, base: Path) -> bytes | None:
    """Inline data or the contents of the file named, if either is given."""
    if f"{key}-data" in entry:
        return base64.b64decode(entry[f"{key}-data"])
    return (base / entry[key]).read_bytes() if key in entry else None


class ApiClient:
    """A few calls on one API server."""

    def __init__(self, access: Access, session: aiohttp.ClientSession) -> None:
        self._access, self._session = access, session

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> dict[str, Any]:
        """The object or list at `path`.

        Raises:
            ApiStatusError: Any status but 200.
            aiohttp.ClientError, TimeoutError: The server cannot be reached.
        """
        return await self._call("GET", path, params=params)

    async def create(self, path: str, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Create an object (a review, mostly) and return the answer; raises as `get` does."""
        return await self._call("POST", path, body=manifest)

    async def watch(self, path: str, params: Mapping[str, str]) -> AsyncIterator[dict[str, Any]]:
        """Events of a watch until the server ends it; raises as `get` does, and `ApiStatusError` for an ERROR event."""
        async with self._session.get(
            self._access.server + path,
            params={**params, "watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": "300"},
            headers=self._access.headers(),
            ssl=self._access.tls or True,
            timeout=_WATCH_TIMEOUT,
        ) as response:
            if response.status != 200:  # noqa: PLR2004 - HTTP OK
                raise ApiStatusError(response.status, await response.text())
            rest = b""
            async for piece in response.content.iter_any():
                *lines, rest = (rest + piece).split(b"\n")
                for line in filter(None, lines):
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        raise ApiStatusError(event["object"].get("code", 0), event["object"].get("message", ""))
                    yield event

    async def _call(
        self, method: str, path: str, params: Mapping[str, str] | None = None, body: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        async with self._session.request(
            method,
            self._access.server + path,
            params=params,
            json=body,
            headers=self._access.headers(),
            ssl=self._access.tls or True,
            timeout=_REQUEST_TIMEOUT,
        ) as response:
            if response.status not in {200, 201}:
                raise ApiStatusError(response.status, await response.text())
            return await response.json(content_type=None)
