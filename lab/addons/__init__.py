"""Everything that the lab applies through the Kubernetes API: which addons there are, applying them, judging them."""

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from lab.addons import dns, inference_pool, keda, metrics_gate, model_hub, prometheus, service_ca, storage
from lab.addons.addon import Addon, AddonsNotReadyError, Site, reader
from lab.addons.applying import apply_one
from lab.addons.diagnosis import explain
from lab.addons.kubectl import Kubectl
from lab.addons.readiness import Observation
from lab.api import ApiError
from lab.progress import Progress
from lab.tools import toolchain

# In the order in which others wait for them: names first, then the signer of the gate's certificate.
ADDONS: tuple[Addon, ...] = (
    dns.ADDON,
    service_ca.ADDON,
    keda.ADDON,
    prometheus.ADDON,
    metrics_gate.ADDON,
    storage.ADDON,
    inference_pool.ADDON,
    model_hub.ADDON,
)

_READY_SECONDS = (
    240.0  # the aim for the whole lab is 90 on two idle cores; a busy machine gets the benefit of the doubt
)
_AT_ONCE = 4  # enough to keep two cores busy while the server thinks; more would delay the first ones
_POLL_SECONDS = 1.0


@dataclass(frozen=True)
class AddonStatus:
    """Whether one addon is up.

    Attributes:
        name: Which.
        ready: Whether all of it is up.
        detail: What is missing, empty when nothing is.
    """

    name: str
    ready: bool
    detail: str


def site(kubeconfig: Path) -> Site:
    """The machine as addons see it; volumes are made beside the kubeconfig, in the instance's state directory."""
    return Site(toolchain.tool("kubectl"), kubeconfig.absolute().parent / "volumes", toolchain.module_dir)


def apply(
    kubeconfig: Path,
    progress: Progress,
    *,
    addons: Sequence[Addon] = ADDONS,
    timeout_seconds: float = _READY_SECONDS,
    where: Site | None = None,
) -> None:
    """Apply every addon and wait until all are ready. Harmless to repeat.

    Args:
        kubeconfig: An administrator's; its directory is the instance's state.
        progress: Gets one line per addon that becomes ready.
        addons: Which.
        timeout_seconds: For everything together.
        where: The machine, where it is not the usual one.

    Raises:
        AddonsNotReadyError: not everything was ready in time.
    """
    where = where or site(kubeconfig)
    kubectl, get = Kubectl(where.kubectl, kubeconfig), where.read(kubeconfig)
    started = time.monotonic()
    deadline = started + timeout_seconds
    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        applying = {addon.name: pool.submit(apply_one, addon, where, kubectl, get, deadline) for addon in addons}
        waiting = list(addons)
        while waiting:
            seen = Observation(get)
            done = [addon for addon in waiting if _applied(applying[addon.name]) and not seen.missing(addon)]
            for addon in done:
                waiting.remove(addon)
                progress.note(f"  {addon.name} ready after {time.monotonic() - started:.0f} s")
            if waiting and time.monotonic() > deadline:
                raise AddonsNotReadyError(explain(waiting, get, kubectl, timeout_seconds))
            if waiting:
                time.sleep(_POLL_SECONDS)


def _applied(future: Future[None]) -> bool:
    """Whether an addon's objects are all in the cluster; raises what went wrong."""
    if not future.done():
        return False
    future.result()
    return True


def status(kubeconfig: Path, *, addons: Sequence[Addon] = ADDONS) -> list[AddonStatus]:
    """Judge every addon by one look at the cluster. An API server that does not answer makes every addon not ready."""
    try:
        get = reader(kubeconfig)
        get("/version")
    except (OSError, ApiError) as error:
        return [AddonStatus(addon.name, ready=False, detail=str(error)) for addon in addons]
    seen = Observation(get)
    missing = {addon.name: seen.missing(addon) for addon in addons}
    return [AddonStatus(name, ready=not lines, detail="; ".join(lines)) for name, lines in missing.items()]
