"""What the live HPAs decided, sync by sync, and the same decisions by `llmd/hpa.py`."""

import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kubernetes.utils.quantity import parse_quantity

from cluster import Cluster, Kind
from llmd.hpa import SYNC_SECONDS, Autoscaler, Behavior, History, Metric, Policy, PolicyKind, Rules, Scale

HPA = Kind("autoscaling/v2", "HorizontalPodAutoscaler")
SETTLED_SECONDS = 5  # a sync this close to an observation is the observation


@dataclass(frozen=True)
class Sync:
    """One change of an HPA's status. `averages` is metric name → value per replica."""

    at: float
    status_replicas: int
    desired: int
    averages: dict[str, float]


@dataclass
class Record:
    """All syncs of one HPA that changed its status, in order."""

    spec: dict[str, Any]
    syncs: list[Sync] = field(default_factory=list)

    @property
    def sizes(self) -> list[int]:
        """Each count that the HPA asked for, repeated ones once."""
        desired = [sync.desired for sync in self.syncs]
        return [size for before, size in zip([None, *desired], desired, strict=False) if size != before]

    def replayed(self) -> list[int]:
        """What `llmd.hpa` decides at each recorded sync, from the metrics and replicas that the HPA had."""
        autoscaler = Autoscaler(
            minimum=self.spec["minReplicas"],
            maximum=self.spec["maxReplicas"],
            behavior=Behavior(
                up=_rules(self.spec["behavior"]["scaleUp"]), down=_rules(self.spec["behavior"]["scaleDown"])
            ),
        )
        targets = {
            metric["external"]["metric"]["name"]: float(parse_quantity(metric["external"]["target"]["averageValue"]))
            for metric in self.spec["metrics"]
        }
        history, spec_replicas, decided = History(), self.syncs[0].status_replicas, []
        for sync, following in zip(self.syncs, [*self.syncs[1:], None], strict=True):
            metrics = [Metric(value=_total(sync, name), target=target) for name, target in targets.items()]
            until = following.at if following else sync.at
            for now in _instants(sync.at, until):
                scale = Scale(spec=spec_replicas, status=sync.status_replicas)
                decision = autoscaler.sync(history, now=now, scale=scale, metrics=metrics)
                history, spec_replicas = decision.history, decision.replicas
                if now == sync.at:
                    decided.append(decision.replicas)
        return decided


@contextmanager
def recording(kubeconfig: Path, namespaces: list[str]) -> Generator[dict[str, Record]]:
    """Watch every HPA of the namespaces until the block ends; yields target Deployment → record, while it grows."""
    cluster, records, seen, end = Cluster.connect(kubeconfig), {}, {}, threading.Event()
    failures: list[Exception] = []

    def look() -> None:
        for hpa in (hpa for namespace in namespaces for hpa in cluster.list(HPA, namespace)):
            name, status = hpa["spec"]["scaleTargetRef"]["name"], hpa.get("status", {})
            if status.get("currentMetrics") and seen.get(name) != status:
                seen[name] = status
                records.setdefault(name, Record(hpa["spec"])).syncs.append(_sync(status))

    def loop() -> None:
        try:
            while not end.wait(0.5):
                look()
        except Exception as failure:  # noqa: BLE001 - handed to the test below
            failures.append(failure)

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield records
    finally:
        end.set()
        thread.join()
    assert failures == []


def _sync(status: dict[str, Any]) -> Sync:
    averages = {
        metric["external"]["metric"]["name"]: float(parse_quantity(metric["external"]["current"]["averageValue"]))
        for metric in status["currentMetrics"]
        if metric.get("external", {}).get("current", {}).get("averageValue") is not None
    }
    return Sync(time.monotonic(), status["currentReplicas"], status["desiredReplicas"], averages)


def _instants(first: float, until: float) -> Iterator[float]:
    """The syncs from an observation to the next: a sync that changes nothing leaves no trace in the status."""
    now = first
    while now == first or now < until - SETTLED_SECONDS:
        yield now
        now += SYNC_SECONDS


def _total(sync: Sync, name: str) -> float | None:
    average = sync.averages.get(name)
    return None if average is None else average * sync.status_replicas


def _rules(direction: dict[str, Any]) -> Rules:
    policies = tuple(
        Policy(kind=PolicyKind(policy["type"]), value=policy["value"], period_seconds=policy["periodSeconds"])
        for policy in direction["policies"]
    )
    return Rules(policies=policies, stabilization_seconds=direction["stabilizationWindowSeconds"])
