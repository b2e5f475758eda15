"""What the HorizontalPodAutoscaler does with a metric: one sync of its controller."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

SYNC_SECONDS = 15  # kube-controller-manager --horizontal-pod-autoscaler-sync-period
TOLERANCE = 0.1  # --horizontal-pod-autoscaler-tolerance, where a direction sets none of its own

Entries = tuple[tuple[float, int], ...]


class PolicyKind(StrEnum):
    """Unit of a scaling policy."""

    PODS = "Pods"
    PERCENT = "Percent"


class Select(StrEnum):
    """Which of a direction's policies holds: that which changes most, that which changes least, or no change at all."""

    MAX = "Max"
    MIN = "Min"
    DISABLED = "Disabled"


@dataclass(frozen=True, kw_only=True)
class Policy:
    """How much a fleet may change within a period."""

    kind: PolicyKind
    value: int
    period_seconds: int

    def limit_up(self, start: int) -> int:
        """Most replicas that a period which began with `start` may reach."""
        if self.kind is PolicyKind.PODS:
            return start + self.value
        return math.ceil(start * (1 + self.value / 100))

    def limit_down(self, start: int) -> int:
        """Fewest replicas that a period which began with `start` may reach (the controller cuts a fraction)."""
        if self.kind is PolicyKind.PODS:
            return start - self.value
        return int(start * (1 - self.value / 100))


@dataclass(frozen=True, kw_only=True)
class Rules:
    """One direction of `spec.behavior`."""

    policies: tuple[Policy, ...]
    stabilization_seconds: int = 0
    select: Select = Select.MAX
    tolerance: float = TOLERANCE

    def to_dict(self) -> dict[str, object]:
        """As `spec.behavior.scaleUp` or `.scaleDown` writes it; the cluster's own tolerance is left out."""
        written: dict[str, object] = {
            "stabilizationWindowSeconds": self.stabilization_seconds,
            "selectPolicy": self.select.value,
            "policies": [
                {"type": policy.kind.value, "value": policy.value, "periodSeconds": policy.period_seconds}
                for policy in self.policies
            ],
        }
        if self.tolerance != TOLERANCE:
            written["tolerance"] = f"{self.tolerance:g}"
        return written


@dataclass(frozen=True, kw_only=True)
class Behavior:
    """Both directions of `spec.behavior`."""

    up: Rules
    down: Rules

    def to_dict(self) -> dict[str, object]:
        """As `spec.behavior` writes it."""
        return {"scaleUp": self.up.to_dict(), "scaleDown": self.down.to_dict()}


KUBERNETES_DEFAULT = Behavior(
    up=Rules(
        policies=(
            Policy(kind=PolicyKind.PODS, value=4, period_seconds=15),
            Policy(kind=PolicyKind.PERCENT, value=100, period_seconds=15),
        )
    ),
    down=Rules(policies=(Policy(kind=PolicyKind.PERCENT, value=100, period_seconds=15),), stabilization_seconds=300),
)

# One replica at a time, no faster than one takes load: weights from cache took 176-257 s (11 samples, Aug 2026).
ONE_AT_A_TIME = Behavior(
    up=Rules(policies=(Policy(kind=PolicyKind.PODS, value=1, period_seconds=180),)),
    down=Rules(policies=(Policy(kind=PolicyKind.PODS, value=1, period_seconds=300),), stabilization_seconds=300),
)


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One AverageValue metric at a sync; `value` (of the whole fleet) is None when it could not be read."""

    value: float | None
    target: float  # per replica

    def wants(self, status_replicas: int, behavior: Behavior) -> int | None:
        """Replicas that this metric asks for: unchanged within tolerance, else ceil(value / target).

        None when unread.
        """
        if self.value is None:
            return None
        value, target = _milli(self.value), _milli(self.target)
        ratio = value / (target * status_replicas) if status_replicas else math.inf
        if 1 - behavior.down.tolerance <= ratio <= 1 + behavior.up.tolerance:
            return status_replicas
        return math.ceil(value / target)


@dataclass(frozen=True, kw_only=True)
class Scale:
    """The target's /scale at a sync: what its spec asks for and what its status has."""

    spec: int
    status: int


@dataclass(frozen=True, kw_only=True)
class History:
    """What the controller remembers between syncs, in memory: entries of (seconds, replicas or change)."""

    recommendations: Entries = ()
    added: Entries = ()
    removed: Entries = ()


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The outcome of one sync."""

    replicas: int  # what /scale asks for afterwards
    wanted: int | None  # what the metrics alone ask for, before bounds, windows and policies; None when none decided
    history: History


@dataclass(frozen=True, kw_only=True)
class Autoscaler:
    """A HorizontalPodAutoscaler: bounds and behavior."""

    minimum: int
    maximum: int
    behavior: Behavior = ONE_AT_A_TIME

    def sync(self, history: History, *, now: float, scale: Scale, metrics: Sequence[Metric]) -> Decision:
        """One sync at `now` (seconds of any monotonic origin); the history it returns is the next sync's.

        As kube-controller-manager 1.36 does it: bounds first; then each metric over status.replicas, the largest
        wins, and while any cannot be read nothing shrinks; then the stabilization windows over earlier wishes; then
        the policies, of which a period's start is the replicas now, minus what was added and plus what was removed
        within it.
        """
        if not history.recommendations:
            history = History(recommendations=((now, scale.spec),), added=history.added, removed=history.removed)
        if scale.spec == 0:  # scaling is disabled at zero replicas
            return Decision(replicas=0, wanted=None, history=history)
        if not self.minimum <= scale.spec <= self.maximum:
            replicas = min(max(scale.spec, self.minimum), self.maximum)
            return Decision(replicas=replicas, wanted=None, history=self._record(history, now, scale.spec, replicas))
        wanted = self._wanted(metrics, scale)
        if wanted is None:
            return Decision(replicas=scale.spec, wanted=None, history=history)
        stable = self._stabilized(history, now, scale.spec, wanted)
        replicas = self._limited(history, now, scale.spec, stable)
        kept = _within(history.recommendations, now, self._longest_window)
        history = History(recommendations=(*kept, (now, wanted)), added=history.added, removed=history.removed)
        return Decision(replicas=replicas, wanted=wanted, history=self._record(history, now, scale.spec, replicas))

    def _wanted(self, metrics: Sequence[Metric], scale: Scale) -> int | None:
        wishes = [metric.wants(scale.status, self.behavior) for metric in metrics]
        readable = [wish for wish in wishes if wish is not None]
        if not readable or (len(readable) < len(wishes) and max(readable) < scale.spec):
            return None
        return max(readable)

    def _stabilized(self, history: History, now: float, current: int, wanted: int) -> int:
        up = _within(history.recommendations, now, self.behavior.up.stabilization_seconds)
        down = _within(history.recommendations, now, self.behavior.down.stabilization_seconds)
        lowest = min([wanted, *(replicas for _, replicas in up)])
        highest = max([wanted, *(replicas for _, replicas in down)])
        return min(max(current, lowest), highest)

    def _limited(self, history: History, now: float, current: int, desired: int) -> int:
        def start_of(policy: Policy) -> int:
            added = _sum(_within(history.added, now, policy.period_seconds))
            removed = _sum(_within(history.removed, now, policy.period_seconds))
            return current - added + removed

        if desired > current:
            rules = self.behavior.up
            limits = [policy.limit_up(start_of(policy)) for policy in rules.policies]
            allowed = max(_selected(rules.select, limits, current, most=max, least=min), current)
            return min(desired, allowed, self.maximum)
        if desired < current:
            rules = self.behavior.down
            limits = [policy.limit_down(start_of(policy)) for policy in rules.policies]
            allowed = min(_selected(rules.select, limits, current, most=min, least=max), current)
            return max(desired, allowed, self.minimum)
        return desired

    def _record(self, history: History, now: float, before: int, after: int) -> History:
        added = _within(history.added, now, self._longest_period)
        removed = _within(history.removed, now, self._longest_period)
        if after > before:
            added = (*added, (now, after - before))
        if after < before:
            removed = (*removed, (now, before - after))
        return History(recommendations=history.recommendations, added=added, removed=removed)

    @property
    def _longest_window(self) -> int:
        return max(self.behavior.up.stabilization_seconds, self.behavior.down.stabilization_seconds)

    @property
    def _longest_period(self) -> int:
        policies = (*self.behavior.up.policies, *self.behavior.down.policies)
        return max((policy.period_seconds for policy in policies), default=0)


def _milli(value: float) -> int:
    """Thousandths: KEDA writes metric and target with three decimals; what is negative or no number as 0."""
    return round(float(f"{value:.3f}") * 1000) if 0 < value < math.inf else 0


def _selected(
    select: Select,
    limits: list[int],
    current: int,
    *,
    most: Callable[[Iterable[int]], int],
    least: Callable[[Iterable[int]], int],
) -> int:
    if select is Select.DISABLED:
        return current
    return (most if select is Select.MAX else least)(limits)


def _within(entries: Entries, now: float, seconds: float) -> Entries:
    return tuple(entry for entry in entries if entry[0] > now - seconds)


def _sum(entries: Entries) -> int:
    return sum(change for _, change in entries)
