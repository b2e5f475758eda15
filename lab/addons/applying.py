"""How one addon comes into the cluster: what others build on first, then the rest, each again until it succeeds."""

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from lab.addons.addon import Addon, AddonsNotReadyError, Get, Manifest, Site
from lab.addons.kubectl import KubectlError
from lab.addons.readiness import Observation

_FIRST = {"Namespace", "CustomResourceDefinition"}
_POLL_SECONDS = 0.5


class Changes(Protocol):
    """What changes a cluster; `lab.addons.kubectl.Kubectl` is one. Both raise KubectlError."""

    def apply(self, objects: Sequence[Manifest]) -> None:
        """Create or update objects."""

    def create_missing(self, objects: Sequence[Manifest]) -> None:
        """Create those objects that do not exist."""


def apply_one(addon: Addon, where: Site, kubectl: Changes, get: Get, deadline: float) -> None:
    """Apply everything of `addon`, without waiting for it to be ready.

    A refusal is tried again until `deadline` (monotonic seconds): a server that has just started refuses for a moment
    what it accepts a second later (the kind of a new definition, a namespace that is being made).

    Raises:
        AddonsNotReadyError: still refused at the deadline.
    """

    def settle(what: str, attempt: Callable[[], None]) -> None:
        while True:
            try:
                attempt()
            except KubectlError as refusal:
                if time.monotonic() > deadline:
                    raise AddonsNotReadyError(f"{addon.name}: {what}: {refusal}") from refusal
                time.sleep(_POLL_SECONDS)
            else:
                return

    def served() -> None:
        if lines := Observation(get).unserved(addon):
            raise KubectlError("; ".join(lines))

    objects, seeds = addon.objects(where), addon.seeds(where)
    first = [it for it in objects if it["kind"] in _FIRST]
    rest = [it for it in objects if it["kind"] not in _FIRST]
    settle("namespaces and definitions", lambda: kubectl.apply(first))
    settle("definitions", served)
    settle("first objects", lambda: kubectl.create_missing(seeds))
    where.await_images(rest)
    settle("objects", lambda: kubectl.apply(rest))
