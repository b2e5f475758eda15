"""What to tell a person when addons do not become ready: what is missing, and what the cluster says about it."""

from collections.abc import Iterable
from typing import Any

from lab.addons.addon import Addon, Get, Workload
from lab.addons.kubectl import Kubectl
from lab.addons.readiness import Observation
from lab.api import ApiError

_EVENTS = 4


def explain(addons: Iterable[Addon], get: Get, kubectl: Kubectl, seconds: float) -> str:
    """One paragraph per addon that is not ready: what is missing, the last events and log lines of what is down."""
    seen = Observation(get)
    lines = [f"not ready after {seconds:.0f} s:"]
    for addon in addons:
        lines.append(f"{addon.name}: {'; '.join(seen.missing(addon))}")
        for workload in seen.down(addon):
            lines += [f"    {line}" for line in _evidence(workload, get, kubectl)]
    return "\n".join(lines)


def _evidence(workload: Workload, get: Get, kubectl: Kubectl) -> list[str]:
    try:
        pods = get(f"/api/v1/namespaces/{workload.namespace}/pods")["items"]
        events = get(f"/api/v1/namespaces/{workload.namespace}/events")["items"]
    except ApiError as error:
        return [str(error)]
    mine = [pod for pod in pods if pod["metadata"]["name"].startswith(f"{workload.name}-") and not _ready(pod)]
    said = last_events(events, workload.name)
    for pod in mine:
        name = pod["metadata"]["name"]
        said += [f"pod {name}: {line}" for line in waiting_reasons(pod)]
        said += kubectl.last_log_lines(workload.namespace, name).splitlines()
    return said or [f"no pod and no event of {workload}"]


def last_events(events: Iterable[dict[str, Any]], name: str) -> list[str]:
    """The newest events about the workload `name` or what belongs to it, oldest first."""
    about = [event for event in events if f"{event['involvedObject'].get('name', '')}-".startswith(f"{name}-")]
    about.sort(key=lambda event: event.get("lastTimestamp") or event.get("eventTime") or "")
    return [
        f"{event['involvedObject'].get('kind', '')} {event['involvedObject'].get('name', '')}: "
        f"{event.get('reason', '')}: {event.get('message', '')}"
        for event in about[-_EVENTS:]
    ]


def waiting_reasons(pod: dict[str, Any]) -> list[str]:
    """Why containers of a pod do not run, or why the pod is not scheduled."""
    status = pod.get("status", {})
    states = [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]
    waiting = [(state["name"], state.get("state", {}).get("waiting")) for state in states]
    reasons = [
        f"{name} waits: {why.get('reason', '')} {why.get('message', '')}".rstrip() for name, why in waiting if why
    ]
    unscheduled = [
        f"not scheduled: {condition.get('message', '')}"
        for condition in status.get("conditions", ())
        if condition["type"] == "PodScheduled" and condition["status"] != "True"
    ]
    return unscheduled + reasons


def _ready(pod: dict[str, Any]) -> bool:
    return any(it["type"] == "Ready" and it["status"] == "True" for it in pod.get("status", {}).get("conditions", ()))
