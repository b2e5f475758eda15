"""Stand-in for OpenShift's service CA: it signs serving certificates and hands its own certificate to service accounts.

- Every Secret of type kubernetes.io/service-account-token gets the key `service-ca.crt`, and again when it is removed.
- A Service annotated `service.beta.openshift.io/serving-cert-secret-name: NAME` gets a Secret NAME (kubernetes.io/tls)
  for `SERVICE.NAMESPACE.svc` and `SERVICE.NAMESPACE.svc.cluster.local`, and a new one when it is deleted or signed by
  an earlier authority.
- The authority is made once and kept in Secret `signing-key` of namespace openshift-service-ca.

Run: `service_ca`; `GET :8080/healthz` is 200 once every object that existed at the start has been handled. Needs
`cryptography` beside the standard library.
"""

import argparse
import base64
import hashlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NoReturn

from lab.stand_ins.in_cluster import CREDENTIALS, ApiError, ApiServer, Object, Requests, follow, in_background
from lab.stand_ins.signing import KeyPair, issue, new_authority

NAMESPACE = "openshift-service-ca"
SIGNING_SECRET = "signing-key"  # noqa: S105 - a name
BUNDLE_KEY = "service-ca.crt"
TOKEN_TYPE = "kubernetes.io/service-account-token"  # noqa: S105 - a type
ACCOUNT_ANNOTATION = "kubernetes.io/service-account.name"
WANTED_ANNOTATION = "service.beta.openshift.io/serving-cert-secret-name"
ORIGIN_ANNOTATION = "service.beta.openshift.io/originating-service-name"
AUTHORITY_ANNOTATION = "lab.llm-d.ai/service-ca-fingerprint"


def fingerprint(authority: KeyPair) -> str:
    """A short name for an authority, by which a serving certificate of an earlier one is recognised."""
    return hashlib.sha256(authority.certificate.encode()).hexdigest()[:16]


def wants_bundle(secret: Object, authority: KeyPair) -> bool:
    """Whether `secret` is a service account's token that lacks the authority's certificate, or has another's."""
    annotations = secret["metadata"].get("annotations") or {}
    if secret.get("type") != TOKEN_TYPE or ACCOUNT_ANNOTATION not in annotations:
        return False
    if "deletionTimestamp" in secret["metadata"]:
        return False
    return (secret.get("data") or {}).get(BUNDLE_KEY) != _encoded(authority.certificate)


def wanted_secret(service: Object) -> str | None:
    """Name of the serving-certificate Secret that `service` asks for."""
    if "deletionTimestamp" in service["metadata"]:
        return None
    return (service["metadata"].get("annotations") or {}).get(WANTED_ANNOTATION) or None


def serving_names(service: Object) -> tuple[str, str]:
    """The DNS names a serving certificate is good for; as on OpenShift, `SERVICE.NAMESPACE` is not one of them."""
    name = f"{service['metadata']['name']}.{service['metadata']['namespace']}.svc"
    return name, f"{name}.cluster.local"


def is_current(secret: Object, service: Object, authority: KeyPair) -> bool:
    """Whether an existing serving-certificate Secret is this Service's and signed by this authority."""
    annotations = secret["metadata"].get("annotations") or {}
    return (
        annotations.get(ORIGIN_ANNOTATION) == service["metadata"]["name"]
        and annotations.get(AUTHORITY_ANNOTATION) == fingerprint(authority)
        and {"tls.crt", "tls.key"} <= (secret.get("data") or {}).keys()
    )


def serving_secret(service: Object, name: str, authority: KeyPair) -> Object:
    """A Secret with a new certificate for `service`; it goes when the Service goes."""
    pair = issue(authority, serving_names(service))
    metadata = service["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {
            "name": name,
            "namespace": metadata["namespace"],
            "annotations": {ORIGIN_ANNOTATION: metadata["name"], AUTHORITY_ANNOTATION: fingerprint(authority)},
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Service", "name": metadata["name"], "uid": metadata["uid"]}
            ],
        },
        "data": {"tls.crt": _encoded(pair.certificate), "tls.key": _encoded(pair.key)},
    }


def load_authority(api: Requests) -> KeyPair:
    """The authority of this cluster, made and stored when there is none."""
    path = f"/api/v1/namespaces/{NAMESPACE}/secrets"
    try:
        return _stored(api.request("GET", f"{path}/{SIGNING_SECRET}"))
    except ApiError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
    pair = new_authority("openshift-service-serving-signer")
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": SIGNING_SECRET, "namespace": NAMESPACE},
        "data": {"tls.crt": _encoded(pair.certificate), "tls.key": _encoded(pair.key)},
    }
    try:
        return _stored(api.request("POST", path, secret))
    except ApiError as error:
        if error.status != HTTPStatus.CONFLICT:  # another replica, a moment earlier: its authority is ours too
            raise
    return _stored(api.request("GET", f"{path}/{SIGNING_SECRET}"))


@dataclass(frozen=True)
class ServiceCA:
    """Keeps Secrets as the module's first lines say, for one authority."""

    api: Requests
    authority: KeyPair

    def secret_changed(self, kind: str, secret: Object) -> None:
        """Handle a watch event (`ADDED`, `MODIFIED`, `DELETED`) of a Secret."""
        metadata = secret["metadata"]
        if kind == "DELETED":
            origin = (metadata.get("annotations") or {}).get(ORIGIN_ANNOTATION)
            if origin:
                self._again(metadata["namespace"], origin)
        elif wants_bundle(secret, self.authority):
            path = f"/api/v1/namespaces/{metadata['namespace']}/secrets/{metadata['name']}"
            patch = {"data": {BUNDLE_KEY: _encoded(self.authority.certificate)}}
            _unless_gone(lambda: self.api.request("PATCH", path, patch, "application/merge-patch+json"))
            _log(f"gave {BUNDLE_KEY} to Secret {metadata['namespace']}/{metadata['name']}")

    def service_changed(self, kind: str, service: Object) -> None:
        """Handle a watch event of a Service; its deletion is the garbage collector's to handle."""
        name = wanted_secret(service)
        if kind == "DELETED" or name is None:
            return
        namespace = service["metadata"]["namespace"]
        path = f"/api/v1/namespaces/{namespace}/secrets"
        existing = _unless_gone(lambda: self.api.request("GET", f"{path}/{name}"))
        if existing is None:
            self.api.request("POST", path, serving_secret(service, name, self.authority))
        elif ORIGIN_ANNOTATION not in (existing["metadata"].get("annotations") or {}):
            _log(f"Secret {namespace}/{name} is not ours: Service {service['metadata']['name']} gets no certificate")
            return
        elif is_current(existing, service, self.authority):
            return
        else:
            self.api.request("PUT", f"{path}/{name}", serving_secret(service, name, self.authority))
        _log(f"signed a certificate for {serving_names(service)[0]} into Secret {namespace}/{name}")

    def _again(self, namespace: str, name: str) -> None:
        service = _unless_gone(lambda: self.api.request("GET", f"/api/v1/namespaces/{namespace}/services/{name}"))
        if service is not None:
            self.service_changed("MODIFIED", service)


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _stored(secret: Object) -> KeyPair:
    data = secret["data"]
    return KeyPair(base64.b64decode(data["tls.crt"]).decode(), base64.b64decode(data["tls.key"]).decode())


def _unless_gone(request: Callable[[], Object]) -> Object | None:
    """What a request returns, or None when its object does not exist (any more)."""
    try:
        return request()
    except ApiError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        return None


def _log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _serve_health(port: int, ready: Callable[[], bool]) -> None:
    class Health(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(HTTPStatus.OK if ready() else HTTPStatus.SERVICE_UNAVAILABLE)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_request(self, code: object = "-", size: object = "-") -> None:
            """Keep quiet about probes."""

    server = ThreadingHTTPServer(("", port), Health)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def main(arguments: list[str] | None = None) -> None:
    """Run until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--health-port", default=8080, type=int)
    parser.add_argument("--credentials", default=CREDENTIALS, type=Path, help="service account directory")
    options = parser.parse_args(arguments)
    # The first process of a container gets no default handlers: without this it would sit out its grace period.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    api = ApiServer.from_environment(options.credentials)
    keeper = ServiceCA(api, load_authority(api))
    handlers = {"/api/v1/services": keeper.service_changed, "/api/v1/secrets": keeper.secret_changed}
    listed: set[str] = set()

    def keep(path: str) -> NoReturn:
        def replace(objects: list[Object]) -> None:
            for item in objects:
                handlers[path]("ADDED", item)
            listed.add(path)

        follow(api, path, replace, handlers[path])

    _serve_health(options.health_port, lambda: listed == handlers.keys())
    in_background(partial(keep, "/api/v1/services"))
    keep("/api/v1/secrets")


if __name__ == "__main__":
    main()
