"""The router: what it reads, who may read it, who reaches it."""

import json

import pytest

from llmd.outputs import EnvironmentOutputs
from tests.program import program

MODELS = ["tiny-pd", "tiny-co"]


def config_map(run: program.Program, model: str, key: str):
    maps = [one for one in run.kind("ConfigMap") if key in one.inputs["data"]]
    (found,) = [one for one in maps if one.name.startswith(f"{model}-epp")]
    return found


def peak(run: program.Program, model: str) -> str:
    """The text of the endpoint picker's peakPrefillThroughput."""
    text = config_map(run, model, "config.yaml").inputs["data"]["config.yaml"]
    (line,) = [line for line in text.splitlines() if "peakPrefillThroughput" in line]
    assert json.loads(text)["kind"] == "EndpointPickerConfig"
    return line.split(":")[1].strip()


def told(run: program.Program, model: str) -> str:
    """The text of V_P that day-2 commands read."""
    return EnvironmentOutputs.from_dict(run.exports["environment"]).model(model).rates.path_text


def queries(run: program.Program, scaled_object: str) -> dict[str, str]:
    triggers = run.one("ScaledObject", scaled_object).inputs["spec"]["triggers"]
    return {trigger["name"]: trigger["metadata"]["query"] for trigger in triggers}


RATES = [(2696, "2696"), (2696.5, "2696.5"), (15928.0, "15928"), (2787.1234, "2787.123")]


@pytest.mark.parametrize(("rate", "text"), RATES)
def test_co_located_every_reader_carries_the_same_rate(rate, text):
    run = program.dev({"models.tiny-co.calibration.pathThroughput": rate})
    assert told(run, "tiny-co") == text
    assert peak(run, "tiny-co") == text
    assert f"/ {text})" in queries(run, "tiny-co-server")["prefill-backlog"]


@pytest.mark.parametrize(("rate", "text"), [(2696, "2696"), (2696.5, "2696.5")])
def test_by_path_every_reader_carries_the_same_rate(rate, text):
    run = program.dev(
        {
            "models.tiny-pd.calibration.pathThroughput": rate,
            "models.tiny-pd.autoscaling.prefillSignal": "path",
            "models.tiny-pd.slo.ttftSeconds": 4.0,
        }
    )
    assert told(run, "tiny-pd") == text
    assert peak(run, "tiny-pd") == text
    assert f"/ {text})" in queries(run, "tiny-pd-prefill")["prefill-backlog"]


def test_by_phase_each_query_carries_its_own_rate(dev):
    assert peak(dev, "tiny-pd") == "6000"
    assert "/ 8000 " in queries(dev, "tiny-pd-prefill")["prefill-backlog"]
    assert "/ 24000 " in queries(dev, "tiny-pd-decode")["kv-transfer-backlog"]  # 1 / (1/6000 - 1/8000)


def test_another_rate_is_another_map_and_rolls_the_router(dev):
    other = program.dev({"models.tiny-co.calibration.pathThroughput": 7000})
    before, after = config_map(dev, "tiny-co", "config.yaml"), config_map(other, "tiny-co", "config.yaml")
    assert before.urn == after.urn  # the engine replaces it: the new map first, the old one when nothing mounts it
    assert before.object_name != after.object_name
    for run, mapped in ((dev, before), (other, after)):
        volumes = run.one("Deployment", "tiny-co-epp").inputs["spec"]["template"]["spec"]["volumes"]
        assert {"name": "picker-config", "configMap": {"name": mapped.object_name}} in volumes


def test_what_does_not_concern_the_router_does_not_roll_it(dev):
    other = program.dev({"models.tiny-co.topology.server.replicas.max": 2})
    for kind in ("config.yaml", "envoy.yaml"):
        assert config_map(dev, "tiny-co", kind).inputs == config_map(other, "tiny-co", kind).inputs
    assert dev.one("Deployment", "tiny-co-epp").inputs == other.one("Deployment", "tiny-co-epp").inputs


@pytest.mark.parametrize("model", MODELS)
def test_picker_and_envoy_find_the_files_they_are_told_to_read(dev, model):
    spec = dev.one("Deployment", f"{model}-epp").inputs["spec"]["template"]["spec"]
    maps = {volume["name"]: volume["configMap"]["name"] for volume in spec["volumes"]}
    for container in spec["containers"]:
        (mount,) = container["volumeMounts"]
        (data,) = [one.inputs["data"] for one in dev.kind("ConfigMap") if one.object_name == maps[mount["name"]]]
        named = " ".join(container["args"])
        assert any(f"{mount['mountPath']}/{file}" in named for file in data), container["name"]


def test_the_topology_decides_the_profiles(dev):
    profiles = {
        model: [each["name"] for each in json.loads(config_map(dev, model, "config.yaml").inputs["data"]["config.yaml"])
                ["schedulingProfiles"]]
        for model in MODELS
    }  # fmt: skip
    assert profiles == {"tiny-pd": ["prefill", "decode"], "tiny-co": ["default"]}


@pytest.mark.parametrize(("version", "api"), [("0.10", "llm-d.ai/v1alpha1"), ("0.11", "llm-d.ai/v1")])
def test_the_pickers_configuration_speaks_its_release(version, api):
    run = program.dev({"router.version": version})
    assert json.loads(config_map(run, "tiny-co", "config.yaml").inputs["data"]["config.yaml"])["apiVersion"] == api


@pytest.mark.parametrize("model", MODELS)
def test_the_pool_points_to_the_picker_and_never_to_itself(dev, model):
    pool = dev.one("InferencePool", model).inputs["spec"]
    service = dev.one("Service", f"{model}-epp").inputs["spec"]
    assert pool["endpointPickerRef"]["name"] == f"{model}-epp"
    assert pool["endpointPickerRef"]["port"]["number"] in {port["port"] for port in service["ports"]}
    labels = dev.one("Deployment", f"{model}-epp").inputs["spec"]["template"]["metadata"]["labels"]
    assert service["selector"].items() <= labels.items()
    assert not pool["selector"]["matchLabels"].items() <= labels.items()


@pytest.mark.parametrize("model", MODELS)
def test_prometheus_reads_the_pickers_metrics_as_one_who_may(dev, model):
    (endpoint,) = dev.one("ServiceMonitor", f"{model}-epp").inputs["spec"]["endpoints"]
    credentials = endpoint["authorization"]["credentials"]
    token = dev.one("Secret", credentials["name"])
    assert credentials["key"] == "token"
    assert token.inputs["type"] == "kubernetes.io/service-account-token"
    account = token.inputs["metadata"]["annotations"]["kubernetes.io/service-account.name"]
    (binding,) = [
        one
        for one in dev.kind("ClusterRoleBinding")
        if {"kind": "ServiceAccount", "name": account, "namespace": f"llm-d-{model}"} in one.inputs["subjects"]
    ]
    rules = dev.one("ClusterRole", binding.inputs["roleRef"]["name"]).inputs["rules"]
    assert {"nonResourceURLs": ["/metrics"], "verbs": ["get"]} in rules
    assert endpoint["port"] in {port["name"] for port in dev.one("Service", f"{model}-epp").inputs["spec"]["ports"]}


@pytest.mark.parametrize("model", MODELS)
def test_the_router_selects_the_services_that_the_monitor_means(dev, model):
    selector = dev.one("ServiceMonitor", f"{model}-epp").inputs["spec"]["selector"]["matchLabels"]
    matching = [
        one.object_name for one in dev.kind("Service") if selector.items() <= one.inputs["metadata"]["labels"].items()
    ]
    assert matching == [f"{model}-epp"]


def test_from_outside_only_the_api_can_be_reached(dev):
    services = {one.object_name: one.inputs["spec"] for one in dev.kind("Service")}
    outside = {name: spec for name, spec in services.items() if spec.get("type") == "NodePort"}
    assert {name: [port["nodePort"] for port in spec["ports"]] for name, spec in outside.items()} == {
        "tiny-pd-epp-external": [30080],
        "tiny-co-epp-external": [30081],
    }
    assert {port["targetPort"] for spec in outside.values() for port in spec["ports"]} == {"http"}


def test_nothing_is_exposed_unless_asked():
    inside = program.dev({"models.tiny-pd.router": {}, "models.tiny-co.router": {}})
    assert {one.inputs["spec"].get("type", "ClusterIP") for one in inside.kind("Service")} == {"ClusterIP"}


@pytest.mark.parametrize("model", MODELS)
def test_a_leaving_router_stays_until_its_longest_stream_has_ended(dev, model):
    spec = dev.one("Deployment", f"{model}-epp").inputs["spec"]["template"]["spec"]
    waits = {container["lifecycle"]["preStop"]["sleep"]["seconds"] for container in spec["containers"]}
    assert waits == {8}
    assert spec["terminationGracePeriodSeconds"] > 8
    assert dev.one("Deployment", f"{model}-epp").inputs["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0


@pytest.mark.parametrize("model", MODELS)
def test_the_picker_may_watch_what_it_watches_before_it_starts(dev, model):
    before = dev.before(dev.one("Deployment", f"{model}-epp"))
    earlier = {(one.manifest["kind"], one.name) for one in before if one.is_kubernetes}
    name = f"{model}-epp"
    assert {("RoleBinding", name), ("ClusterRoleBinding", f"{name}-metrics"), ("InferencePool", model)} <= earlier
    rules = dev.one("Role", name).inputs["rules"]
    watched = {resource for rule in rules for resource in rule["resources"]}
    assert watched >= {"pods", "inferencepools", "inferenceobjectives"}
    assert {verb for rule in rules for verb in rule["verbs"]} == {"get", "list", "watch"}
