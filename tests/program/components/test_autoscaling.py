"""The scalers: what they ask, how fast they act, what they do when Prometheus is away, what must be there before."""

import re

import pytest

from llmd.outputs import EnvironmentOutputs
from tests.program import program

SCALED = ["tiny-pd-prefill", "tiny-pd-decode", "tiny-co-server"]


def spec(run: program.Program, name: str):
    return run.one("ScaledObject", name).inputs["spec"]


def test_each_fleet_asks_about_its_own_work(dev):
    asked = {name: [trigger["name"] for trigger in spec(dev, name)["triggers"]] for name in SCALED}
    assert asked == {
        "tiny-pd-prefill": ["prefill-backlog"],
        "tiny-pd-decode": ["decode-capacity-waiters", "kv-transfer-backlog"],
        "tiny-co-server": ["prefill-backlog", "decode-kv-occupancy"],
    }


@pytest.mark.parametrize("name", SCALED)
def test_a_scaler_targets_its_deployment_within_its_bounds(dev, name):
    wanted = spec(dev, name)
    assert wanted["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    assert wanted["minReplicaCount"] == 1
    assert wanted["maxReplicaCount"] == (3 if name == "tiny-co-server" else 4)


@pytest.mark.parametrize("name", SCALED)
def test_a_source_that_is_gone_never_shrinks_a_fleet(dev, name):
    wanted = spec(dev, name)
    assert wanted["fallback"] == {"failureThreshold": 3, "replicas": 1, "behavior": "currentReplicasIfHigher"}
    assert all(trigger["metadata"]["ignoreNullValues"] == "false" for trigger in wanted["triggers"])
    assert all(trigger["metricType"] == "AverageValue" for trigger in wanted["triggers"])
    assert "pollingInterval" not in wanted  # it only drives 0 to 1, and draws a warning


@pytest.mark.parametrize("name", SCALED)
def test_a_scaler_comes_after_all_that_it_needs(dev, name):
    model = name.rsplit("-", 1)[0]
    earlier = {
        (one.manifest["kind"], one.object_name)
        for one in dev.before(dev.one("ScaledObject", name))
        if one.is_kubernetes
    }
    assert {
        ("Deployment", name),
        ("TriggerAuthentication", f"{model}-prometheus"),
        ("PodMonitor", name),
        ("ServiceMonitor", f"{model}-epp"),
    } <= earlier


@pytest.mark.parametrize("name", SCALED)
def test_on_openshift_keda_shows_a_token_that_may_read_metrics(dev, name):
    model = name.rsplit("-", 1)[0]
    for trigger in spec(dev, name)["triggers"]:
        assert trigger["authenticationRef"] == {"name": f"{model}-prometheus"}
        assert trigger["metadata"]["authModes"] == "bearer"
    references = dev.one("TriggerAuthentication", f"{model}-prometheus").inputs["spec"]["secretTargetRef"]
    assert references == [
        {"parameter": "bearerToken", "name": f"{model}-keda-token", "key": "token"},
        {"parameter": "ca", "name": f"{model}-keda-token", "key": "service-ca.crt"},
    ]
    account = dev.one("Secret", f"{model}-keda-token").inputs["metadata"]["annotations"][
        "kubernetes.io/service-account.name"
    ]
    views = [
        one for one in dev.kind("ClusterRoleBinding") if one.inputs["roleRef"]["name"] == "cluster-monitoring-view"
    ]
    (binding,) = [one for one in views if one.inputs["subjects"][0]["namespace"] == f"llm-d-{model}"]
    assert [subject["name"] for subject in binding.inputs["subjects"]] == [account]


def test_an_authority_of_ones_own_replaces_the_service_ca():
    run = program.dev({"prometheus.ca": {"name": "our-ca", "key": "ca.crt"}})
    references = run.one("TriggerAuthentication", "tiny-co-prometheus").inputs["spec"]["secretTargetRef"]
    assert {"parameter": "ca", "name": "our-ca", "key": "ca.crt"} in references


def test_an_open_prometheus_needs_no_credentials():
    run = program.dev({"prometheus": {"address": "http://prometheus.monitoring:9090", "auth": {"kind": "none"}}})
    assert run.kind("TriggerAuthentication") == []
    assert [one for one in run.objects if "keda" in one.object_name] == []
    for name in SCALED:
        for trigger in spec(run, name)["triggers"]:
            assert "authenticationRef" not in trigger
            assert "authModes" not in trigger["metadata"]
            assert trigger["metadata"]["serverAddress"] == "http://prometheus.monitoring:9090"


def test_by_default_one_replica_comes_or_goes_at_a_time():
    run = program.dev({"models.tiny-co.autoscaling": program.ABSENT})
    behavior = spec(run, "tiny-co-server")["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    up, down = behavior["scaleUp"], behavior["scaleDown"]
    assert [(each["type"], each["value"], each["periodSeconds"]) for each in up["policies"]] == [("Pods", 1, 180)]
    assert [(each["type"], each["value"], each["periodSeconds"]) for each in down["policies"]] == [("Pods", 1, 300)]
    assert (up["stabilizationWindowSeconds"], down["stabilizationWindowSeconds"]) == (0, 300)


def test_the_environment_decides_how_fast(dev):
    behavior = spec(dev, "tiny-pd-decode")["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    assert behavior["scaleUp"]["policies"][0]["periodSeconds"] == 15
    assert behavior["scaleDown"]["stabilizationWindowSeconds"] == 30


def test_by_path_prefill_asks_one_question_and_decode_none_about_transfer():
    run = program.dev({"models.tiny-pd.autoscaling.prefillSignal": "path"})
    assert [each["name"] for each in spec(run, "tiny-pd-prefill")["triggers"]] == ["prefill-backlog"]
    assert [each["name"] for each in spec(run, "tiny-pd-decode")["triggers"]] == ["decode-capacity-waiters"]


def test_a_threshold_of_ones_own_replaces_the_computed_one(dev):
    run = program.dev({"models.tiny-pd.autoscaling.thresholds": {"prefill": 1.5, "transfer": 0.75, "decode": 2}})
    thresholds = {
        trigger["name"]: float(trigger["metadata"]["threshold"])
        for name in SCALED[:2]
        for trigger in spec(run, name)["triggers"]
    }
    assert thresholds == {"prefill-backlog": 1.5, "kv-transfer-backlog": 0.75, "decode-capacity-waiters": 2.0}
    assert float(spec(dev, "tiny-pd-prefill")["triggers"][0]["metadata"]["threshold"]) != 1.5


@pytest.mark.parametrize("name", SCALED)
def test_queries_ask_for_the_jobs_that_the_monitors_make(dev, name):
    """Prometheus calls a PodMonitor's job namespace/name, and a ServiceMonitor's by the Service that it selects."""
    pods = {f"{one.inputs['metadata']['namespace']}/{one.object_name}" for one in dev.kind("PodMonitor")}
    routers = {one.object_name for one in dev.kind("Service") if one.object_name.endswith("-epp")}
    for trigger in spec(dev, name)["triggers"]:
        jobs = set(re.findall(r'job="([^"]+)"', trigger["metadata"]["query"]))
        assert jobs
        assert jobs <= pods | routers
        assert jobs & routers
        namespaces = set(re.findall(r'namespace="([^"]+)"', trigger["metadata"]["query"]))
        assert namespaces == {dev.one("ScaledObject", name).inputs["metadata"]["namespace"]}


@pytest.mark.parametrize(("kind", "interval"), [("PodMonitor", "15s"), ("ServiceMonitor", "10s")])
def test_metrics_are_as_fresh_as_the_scaler_looks(dev, kind, interval):
    endpoints = [
        endpoint
        for one in dev.kind(kind)
        for endpoint in one.inputs["spec"].get("podMetricsEndpoints", one.inputs["spec"].get("endpoints"))
    ]
    assert endpoints
    assert {endpoint["interval"] for endpoint in endpoints} == {interval}


def test_the_outputs_say_what_was_deployed(dev):
    outputs = EnvironmentOutputs.from_dict(dev.exports["environment"])
    assert {model.key for model in outputs.models} == {"tiny-pd", "tiny-co"}
    for model in outputs.models:
        assert dev.exports["endpoints"][model.key] == model.endpoint
        assert model.endpoint == f"http://{model.router}.{model.namespace}"
        assert dev.one("InferencePool", model.pool).inputs["metadata"]["namespace"] == model.namespace
        for fleet in model.fleets:
            assert dev.one("Deployment", fleet.deployment)
            assert fleet.scaler is not None
            live = {each["name"]: each["metadata"] for each in spec(dev, fleet.scaler.scaled_object)["triggers"]}
            said = {trigger.name: trigger for trigger in fleet.scaler.triggers}
            assert {name: (each["query"], each["threshold"]) for name, each in live.items()} == {
                name: (trigger.query, trigger.threshold) for name, trigger in said.items()
            }


def test_a_fixed_fleet_has_no_scaler_in_the_outputs():
    run = program.dev({"models.tiny-co.topology.server.replicas": 2})
    (fleet,) = EnvironmentOutputs.from_dict(run.exports["environment"]).model("tiny-co").fleets
    assert (fleet.minimum, fleet.maximum, fleet.scaler) == (2, 2, None)
    assert [one for one in run.kind("ScaledObject") if one.object_name == "tiny-co-server"] == []
