"""When a scaler counts as healthy: each part of the definition can fail alone."""

import copy

import pytest

from ops.healthy import unhealthy

SCALED_OBJECT = {
    "spec": {"triggers": [{"name": "kv"}, {"name": "transfer"}]},
    "status": {
        "externalMetricNames": ["s0-prometheus", "s1-prometheus"],
        "conditions": [{"type": "Ready", "status": "True"}, {"type": "Fallback", "status": "False"}],
        "health": {
            "s0-prometheus": {"numberOfFailures": 0, "status": "Happy"},
            "s1-prometheus": {"numberOfFailures": 0, "status": "Happy"},
        },
    },
}


def current(name, value):
    return {"type": "External", "external": {"metric": {"name": name}, "current": {"averageValue": value}}}


HPA = {
    "status": {
        "conditions": [{"type": "ScalingActive", "status": "True", "reason": "ValidMetricFound"}],
        "currentMetrics": [current("s0-prometheus", "0"), current("s1-prometheus", "120m")],
    }
}


def changed(manifest, change):
    copied = copy.deepcopy(manifest)
    change(copied)
    return copied


def test_a_scaler_with_a_zero_value_is_healthy():
    assert unhealthy(SCALED_OBJECT, HPA) == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            lambda so: so["status"]["conditions"][1].update(status="True", reason="FallbackExists"),
            "KEDA serves the fallback, not the metric: FallbackExists",
        ),
        (
            lambda so: so["status"]["health"]["s1-prometheus"].update(status="Failing", numberOfFailures=7),
            "trigger s1-prometheus is Failing after 7 failed reads",
        ),
        (
            lambda so: so["status"].update(externalMetricNames=["s0-prometheus"]),
            "KEDA has built 1 of 2 triggers",
        ),
    ],
)
def test_a_scaler_is_unhealthy_by_its_scaled_object_alone(change, reason):
    assert unhealthy(changed(SCALED_OBJECT, change), HPA) == [reason]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            lambda hpa: hpa["status"]["conditions"][0].update(
                status="False", reason="FailedGetExternalMetric", message="401"
            ),
            "HPA ScalingActive is False: FailedGetExternalMetric 401",
        ),
        (
            lambda hpa: hpa["status"].update(conditions=[]),
            "HPA ScalingActive is not reported: no reason given",
        ),
        (
            lambda hpa: hpa["status"].update(currentMetrics=[current("s0-prometheus", "0")]),
            "trigger s1-prometheus has no current value in the HPA",
        ),
    ],
)
def test_a_scaler_is_unhealthy_by_its_hpa_alone(change, reason):
    assert unhealthy(SCALED_OBJECT, changed(HPA, change)) == [reason]


def test_a_scaler_that_does_not_exist_is_unhealthy():
    assert unhealthy(None, None) == ["the ScaledObject does not exist"]
    assert "no HPA" in unhealthy(SCALED_OBJECT, None)[0]
