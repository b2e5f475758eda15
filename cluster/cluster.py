"""What we ask of a Kubernetes API server: objects in and out, logs, tokens and ports of pods."""

import http.client
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from kubernetes import client, config
from kubernetes.dynamic import DynamicClient
from kubernetes.dynamic.exceptions import NotFoundError, ResourceNotFoundError
from kubernetes.stream import portforward
from urllib3.exceptions import HTTPError

Manifest = dict[str, Any]


class Kind(NamedTuple):
    """A kind of object, as it is written on top of a manifest."""

    api_version: str
    kind: str


class ClusterError(RuntimeError):
    """The API server cannot be asked, or refused; the message says why."""


@contextmanager
def _as_cluster_error() -> Generator[None]:
    try:
        yield
    except (config.ConfigException, HTTPError, ResourceNotFoundError) as error:
        raise ClusterError(str(error)) from error
    except client.ApiException as error:
        raise ClusterError(f"the API server answers {error.status} {error.reason}") from error


class Cluster:
    """One API server, seen with the rights of one kubeconfig context; each method may raise `ClusterError`."""

    def __init__(self, api: client.ApiClient) -> None:
        self._dynamic = DynamicClient(api)
        self._core = client.CoreV1Api(api)

    @classmethod
    def connect(cls, kubeconfig: Path | None = None, context: str | None = None) -> "Cluster":
        """The cluster of a kubeconfig ($KUBECONFIG, then ~/.kube/config) and a context (the current one).

        Raises:
            ClusterError: no such file or context, or no API server that answers and knows us.
        """
        with _as_cluster_error():
            return cls(config.new_client_from_config(str(kubeconfig) if kubeconfig else None, context))

    @_as_cluster_error()
    def get(self, kind: Kind, name: str, namespace: str | None = None) -> Manifest | None:
        """One object as the API server holds it, or None when there is none."""
        try:
            return self._resource(kind).get(name=name, namespace=namespace).to_dict()
        except NotFoundError:
            return None

    @_as_cluster_error()
    def list(self, kind: Kind, namespace: str | None = None, labels: dict[str, str] | None = None) -> list[Manifest]:
        """All objects of a kind in `namespace` (None: in all of them) that carry `labels`."""
        selector = ",".join(f"{key}={value}" for key, value in (labels or {}).items())
        found = self._resource(kind).get(namespace=namespace, label_selector=selector)
        return [item.to_dict() for item in found.items]

    @_as_cluster_error()
    def create(self, manifest: Manifest) -> Manifest:
        """Create one object; an object that exists already is an error (409), never overwritten."""
        return self._of(manifest).create(body=manifest, namespace=manifest["metadata"].get("namespace")).to_dict()

    @_as_cluster_error()
    def patch(self, kind: Kind, name: str, namespace: str | None, body: Manifest) -> Manifest:
        """Merge `body` into one object (JSON merge patch: a null removes a key)."""
        patched = self._resource(kind).patch(
            name=name, namespace=namespace, body=body, content_type="application/merge-patch+json"
        )
        return patched.to_dict()

    @_as_cluster_error()
    def delete(self, kind: Kind, name: str, namespace: str | None = None) -> None:
        """Delete one object and, in the background, what it owns; gone already is fine."""
        try:
            self._resource(kind).delete(name=name, namespace=namespace, body={"propagationPolicy": "Background"})
        except NotFoundError:
            return

    @_as_cluster_error()
    def logs(self, namespace: str, pod: str, container: str, tail: int | None = None) -> str:
        """The log of a container, its last `tail` lines if given."""
        return self._core.read_namespaced_pod_log(pod, namespace, container=container, tail_lines=tail)

    def token(self, namespace: str, service_account: str, seconds: int = 600) -> str:
        """A bearer token of a service account that lives for `seconds` (at least 600, says the API server)."""
        request = client.AuthenticationV1TokenRequest(
            spec=client.V1TokenRequestSpec(audiences=[], expiration_seconds=seconds)
        )
        with _as_cluster_error():
            issued = self._core.create_namespaced_service_account_token(service_account, namespace, request)
        if issued.status is None or issued.status.token is None:
            raise ClusterError(f"{namespace}/{service_account}: the API server issued no token")
        return issued.status.token

    @contextmanager
    def http(
        self, namespace: str, pod: str, port: int, timeout_seconds: float = 60
    ) -> Generator[http.client.HTTPConnection]:
        """A plain HTTP connection to a port of a pod, through the API server."""
        with _as_cluster_error():
            forwarded = portforward(
                self._core.connect_get_namespaced_pod_portforward,
                pod,
                namespace,
                ports=str(port),
                _request_timeout=timeout_seconds,
            )
        connection = http.client.HTTPConnection(f"{pod}.{namespace}", port, timeout=timeout_seconds)
        connection.sock = forwarded.socket(port)
        connection.sock.settimeout(timeout_seconds)
        try:
            yield connection
        finally:
            connection.close()
            forwarded.close()

    def _resource(self, kind: Kind) -> Any:  # noqa: ANN401 - the dynamic client's own type is untyped
        return self._dynamic.resources.get(api_version=kind.api_version, kind=kind.kind)

    def _of(self, manifest: Manifest) -> Any:  # noqa: ANN401 - as above
        return self._resource(Kind(manifest["apiVersion"], manifest["kind"]))
