"""How many GPUs an environment uses at least and at most, and whether they fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass


class UnknownAcceleratorError(ValueError):
    """A fleet names an accelerator that the environment does not have; the message lists those it has."""


@dataclass(frozen=True, kw_only=True)
class Accelerator:
    """A kind of GPU and how many of it there are."""

    name: str
    per_node: int
    nodes: int
    budget: int  # GPUs that the environment may hold at most, headroom included
    headroom: int = 0  # GPUs of the budget kept for surge, drain overlap and dedicated calibration


@dataclass(frozen=True, kw_only=True)
class Demand:
    """What one role of one model asks for; a fixed fleet has minimum == maximum."""

    model: str
    role: str
    accelerator: str
    gpus_per_replica: int
    minimum: int  # replicas
    maximum: int  # replicas

    @property
    def at_min(self) -> int:
        """GPUs at minimum."""
        return self.gpus_per_replica * self.minimum

    @property
    def at_max(self) -> int:
        """GPUs at maximum."""
        return self.gpus_per_replica * self.maximum


@dataclass(frozen=True, kw_only=True)
class Tally:
    """One accelerator and all that is asked of it."""

    accelerator: Accelerator
    demands: tuple[Demand, ...]

    @property
    def at_min(self) -> int:
        """GPUs with every fleet at its minimum."""
        return sum(demand.at_min for demand in self.demands)

    @property
    def at_max(self) -> int:
        """GPUs with every fleet at its maximum."""
        return sum(demand.at_max for demand in self.demands)

    @property
    def needed(self) -> int:
        """GPUs at maximum and headroom: what the budget must hold."""
        return self.at_max + self.accelerator.headroom

    @property
    def capacity(self) -> int:
        """GPUs of the nodes."""
        return self.accelerator.per_node * self.accelerator.nodes

    @property
    def placeable(self) -> int:
        """GPUs that find a place when every fleet is at its maximum, biggest replica first, each on one node.

        Tensor parallelism stays within a node, so a fleet may not fit although the sum does.
        """
        nodes = Counter({self.accelerator.per_node: self.accelerator.nodes})  # free GPUs → nodes that have so many
        placed = 0
        for demand in sorted(self.demands, key=lambda demand: demand.gpus_per_replica, reverse=True):
            size, left = demand.gpus_per_replica, demand.maximum
            # the tightest node that still fits leaves the widest gaps for what comes
            for free in sorted(gpus for gpus in nodes if gpus >= size):
                here = min(left, nodes[free] * (free // size))
                full, rest = divmod(here, free // size)
                nodes[free] -= full + (rest > 0)
                nodes[free % size] += full
                nodes[free - rest * size] += rest > 0
                left -= here
                placed += here * size
        return placed

    @property
    def problems(self) -> tuple[str, ...]:
        """What does not fit, each with its arithmetic; empty when all does."""
        accelerator, found = self.accelerator, []
        name = accelerator.name
        if self.needed > accelerator.budget:
            terms = " + ".join(_term(demand) for demand in self.demands) or "0"
            found.append(
                f"{name}: {terms} = {self.at_max} GPUs at maximum, with headroom {accelerator.headroom} that is "
                f"{self.needed}, {self.needed - accelerator.budget} above the budget of {accelerator.budget}"
            )
        nodes = f"{accelerator.nodes} nodes x {accelerator.per_node} = {self.capacity} GPUs"
        if accelerator.budget > self.capacity:
            found.append(f"{name}: the budget of {accelerator.budget} GPUs is above the {nodes}")
        too_big = [demand for demand in self.demands if demand.gpus_per_replica > accelerator.per_node]
        found += [
            f"{name}: a replica of {demand.model} {demand.role} needs {demand.gpus_per_replica} GPUs on one node, "
            f"which has {accelerator.per_node}"
            for demand in too_big
        ]
        if not too_big and self.at_max <= self.capacity and self.placeable < self.at_max:
            found.append(
                f"{name}: of {self.at_max} GPUs at maximum {self.at_max - self.placeable} find no place on {nodes}, "
                "since a replica's GPUs must be on one node"
            )
        return tuple(found)


def tally(accelerators: Iterable[Accelerator], demands: Iterable[Demand]) -> tuple[Tally, ...]:
    """Sum the demands per accelerator, in the order of `accelerators`.

    Raises:
        UnknownAcceleratorError: a demand names an accelerator that is not listed.
    """
    listed, asked = tuple(accelerators), tuple(demands)
    names = [accelerator.name for accelerator in listed]
    for demand in asked:
        if demand.accelerator not in names:
            known = ", ".join(names) or "none"
            raise UnknownAcceleratorError(
                f"{demand.model} {demand.role}: accelerator {demand.accelerator!r} is unknown; known: {known}"
            )
    return tuple(
        Tally(accelerator=accelerator, demands=tuple(d for d in asked if d.accelerator == accelerator.name))
        for accelerator in listed
    )


def quota(demands: Iterable[Demand], headroom: int) -> int:
    """GPUs that a namespace's ResourceQuota allows: its fleets at maximum and the headroom."""
    return sum(demand.at_max for demand in demands) + headroom


def _term(demand: Demand) -> str:
    return f"{demand.model} {demand.role} {demand.maximum} x {demand.gpus_per_replica}"
