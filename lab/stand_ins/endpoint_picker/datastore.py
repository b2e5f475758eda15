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
    pod: str
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
    """The pool and its endpoints, kept current by whoever watches the API."""

    def __init__(self, on_departure: Callable[[Endpoint], None] = lambda _: None) -> None:
        self._on_departure = on_departure
        self._pool: Pool | None = None
        self._pods_listed = False
        self._endpoints: dict[str, Endpoint] = {}

    @property
    def pool(self) -> Pool | None:
        """The pool, once it exists."""
        return self._pool

    @property
    def synced(self) -> bool:
        """The pool exists and its pods have been listed once."""
        return self._pool is not None and self._pods_listed

    def endpoints(self) -> tuple[Endpoint, ...]:
        """Everything that can be chosen now, by name."""
        return tuple(self._endpoints[name] for name in sorted(self._endpoints))

    def set_pool(self, pool: Pool | None) -> bool:
        """Take over the pool's current form; None when it was deleted. True if its pods must be listed anew."""
        if pool == self._pool:
            return False
        self._pool = pool
        self._pods_listed = False
        if pool is None:
            self._replace({})
        return True

    def set_pods(self, pods: Iterable[KubernetesObject]) -> None:
        """Take over a complete list of the pool's pods."""
        self._replace({endpoint.name: endpoint for pod in pods for endpoint in self._of(pod)})
        self._pods_listed = self._pool is not None

    def set_pod(self, pod: KubernetesObject) -> None:
        """A pod was added or changed."""
        name = pod["metadata"]["name"]
        others = {key: endpoint for key, endpoint in self._endpoints.items() if endpoint.pod != name}
        self._replace(others | {endpoint.name: endpoint for endpoint in self._of(pod)})

    def remove_pod(self, pod: KubernetesObject) -> None:
        """A pod was deleted, or no longer matches the pool's selector."""
        name = pod["metadata"]["name"]
        self._replace({key: endpoint for key, endpoint in self._endpoints.items() if endpoint.pod != name})

    def _of(self, pod: KubernetesObject) -> list[Endpoint]:
        pool = self._pool
        metadata = pod["metadata"]
        labels = metadata.get("labels", {})
        if pool is None or not serves(pod) or any(labels.get(k) != v for k, v in pool.selector.items()):
            return []
        return [
            Endpoint(
                f"{metadata['name']}-rank-{rank}",
                metadata["namespace"],
                metadata["name"],
                pod["status"]["podIP"],
                port,
                dict(labels),
            )
            for rank, port in enumerate(pool.target_ports)
        ]

    def _replace(self, endpoints: dict[str, Endpoint]) -> None:
        departed = [e for name, e in self._endpoints.items() if name not in endpoints]
        # A pod that comes back under its name with another address (a StatefulSet's) is another endpoint.
        departed += [
            e for name, e in self._endpoints.items() if name in endpoints and endpoints[name].address != e.address
        ]
        self._endpoints = endpoints
        for endpoint in departed:
            self._on_departure(endpoint)
