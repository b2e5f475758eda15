"""Whether a scaler really scales: what KEDA and the HPA say together.

The HPA alone is no witness: while KEDA serves its fallback the HPA reports `ValidMetricFound`, with a number that KEDA
made up. Only the ScaledObject's `Fallback` condition and `status.health` tell (docs/scaling.md).
"""

from collections.abc import Iterator
from typing import Any

Manifest = dict[str, Any]


def unhealthy(scaled_object: Manifest | None, hpa: Manifest | None) -> list[str]:
    """Every reason why a scaler is not Healthy; empty when it is.

    Args:
        scaled_object: the live ScaledObject, None when there is none.
        hpa: the live HorizontalPodAutoscaler that KEDA made for it, None when there is none.
    """
    if scaled_object is None:
        return ["the ScaledObject does not exist"]
    if hpa is None:
        return ["KEDA has made no HPA: look at the ScaledObject's conditions, and whether it is paused"]
    return [*_conditions(scaled_object, hpa), *_failing_triggers(scaled_object), *_silent_triggers(scaled_object, hpa)]


def _conditions(scaled_object: Manifest, hpa: Manifest) -> Iterator[str]:
    active = _condition(hpa, "ScalingActive")
    if active.get("status") != "True":
        yield f"HPA ScalingActive is {active.get('status', 'not reported')}: {_why(active)}"
    fallback = _condition(scaled_object, "Fallback")
    if fallback.get("status") == "True":
        yield f"KEDA serves the fallback, not the metric: {_why(fallback)}"


def _failing_triggers(scaled_object: Manifest) -> Iterator[str]:
    for metric, health in scaled_object.get("status", {}).get("health", {}).items():
        if health.get("status") != "Happy":
            yield f"trigger {metric} is {health.get('status')} after {health.get('numberOfFailures')} failed reads"


def _silent_triggers(scaled_object: Manifest, hpa: Manifest) -> Iterator[str]:
    current = {
        metric["external"]["metric"]["name"]
        for metric in hpa.get("status", {}).get("currentMetrics") or []
        if metric.get("external", {}).get("current", {}).get("averageValue") is not None
    }
    declared = scaled_object.get("status", {}).get("externalMetricNames") or []
    triggers = scaled_object["spec"]["triggers"]
    if len(declared) != len(triggers):
        yield f"KEDA has built {len(declared)} of {len(triggers)} triggers"
    for metric in declared:
        if metric not in current:
            yield f"trigger {metric} has no current value in the HPA"


def _condition(manifest: Manifest, kind: str) -> Manifest:
    conditions = manifest.get("status", {}).get("conditions") or []
    return next((condition for condition in conditions if condition["type"] == kind), {})


def _why(condition: Manifest) -> str:
    return " ".join(str(condition[key]) for key in ("reason", "message") if condition.get(key)) or "no reason given"
