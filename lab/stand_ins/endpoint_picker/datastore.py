"""Which endpoints can be chosen now.

Fed with Kubernetes objects, asked for endpoints. A pod counts while it has an address, its condition Ready is True and
it has no deletion timestamp; it is gone the moment one of these ends.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

KubernetesObject = Mapping[str, Any]


@dataclass(frozen=True)
class Endpoint:
    """One address that serves.

    Attributes:
        name: `<pod>-rank-<n>`, n counting the pool's target ports, also when there is one.
    """

    name: str
    namespace: str
    address: str
    port: int
    labels: Mapping[str, str] = field(hash=False)

    @property
    def host_port(self) -> str:
        """As it stands in the routing headers."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{host}:{self.port}"


@dataclass(frozen=True)
class Pool:
    """What an InferencePool says."""

    name: str
    namespace: str
    selector: Mapping[str, str]
    target_ports: tuple[int, ...]


def read_pool(manifest: KubernetesObject) -> Pool:
    """The pool that an `inference.networking.k8s.io/v1` InferencePool describes."""
    spec = manifest["spec"]
    return Pool(
        name=manifest["metadata"]["name"],
        namespace=manifest["metadata"]["namespace"],
        selector=dict(spec["selector"]["matchLabels"]),
        target_ports=tuple(int(port["number"]) for port in spec["targetPorts"]),
    )


def serves(pod: KubernetesObject) -> bool:
    """Whether the picker may choose this pod."""
    status = pod.get("status", {})
    ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in status.get("conditions", ()))
    return ready and bool(status.get("podIP")) and not pod["metadata"].get("deletionTimestamp")


class Datastore:
    """The endpoints of the pool, derived from the pool and the pods that whoever watches the API last told of."""

    def __init__(self, on_departure: Callable[[Endpoint], None] = lambda _: None) -> None:
        self._on_departure = on_departure
        self._pool: Pool | None = None
        self._pods: dict[str, KubernetesObject] | None = None
        self._endpoints: dict[str, Endpoint] = {}

    @property
    def synced(self) -> bool:
        """The pool exists and the pods have been listed once."""
        return self._pool is not None and self._pods is not None

    def endpoints(self) -> tuple[Endpoint, ...]:
        """Everything that can be chosen now, by name."""
        return tuple(self._endpoints[name] for name in sorted(self._endpoints))

    def set_pool(self, pool: Pool | None) -> None:
        """Take over the pool's current form; None when it does not exist."""
        self._pool = pool
        self._derive()

    def set_pods(self, pods: Iterable[KubernetesObject]) -> None:
        """Take over a complete list of the namespace's pods."""
        self._pods = {pod["metadata"]["name"]: pod for pod in pods}
        self._derive()

    def set_pod(self, pod: KubernetesObject) -> None:
        """A pod was added or changed."""
        self._pods = {**(self._pods or {}), pod["metadata"]["name"]: pod}
        self._derive()

    def remove_pod(self, pod: KubernetesObject) -> None:
        """A pod was deleted."""
        self._pods = {name: other for name, other in (self._pods or {}).items() if name != pod["metadata"]["name"]}
        self._derive()

    def _derive(self) -> None:
        pods = (self._pods or {}).values()
        current = {endpoint.name: endpoint for pod in pods for endpoint in _endpoints(self._pool, pod)}
        departed = [
            endpoint
            for name, endpoint in self._endpoints.items()
            # A pod that comes back under its name with another address (a StatefulSet's) is another endpoint.
            if name not in current or current[name].address != endpoint.address
        ]
        self._endpoints = current
        for endpoint in departed:
            self._on_departure(endpoint)


def _endpoints(pool: Pool | None, pod: KubernetesObject) -> list[Endpoint]:
    """Those that `pod` adds to `pool`: one for each target port while it serves."""
    metadata = pod["metadata"]
    labels = metadata.get("labels", {})
    if pool is None or not serves(pod) or any(labels.get(k) != v for k, v in pool.selector.items()):
        return []
    name, namespace, address = metadata["name"], metadata["namespace"], pod["status"]["podIP"]
    return [
        Endpoint(f"{name}-rank-{rank}", namespace, address, port, labels) for rank, port in enumerate(pool.target_ports)
    ]
