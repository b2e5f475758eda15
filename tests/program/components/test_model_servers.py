"""The model servers: their pods, who owns their number, how they roll out and leave."""

import pytest

from tests.program import program
from tests.program.program import Registered


def pod(deployment: Registered):
    return deployment.inputs["spec"]["template"]["spec"]


def server(deployment: Registered):
    (container,) = pod(deployment)["containers"]
    return container


def environment(container):
    return {variable["name"]: variable.get("value") for variable in container["env"]}


FLEETS = ["tiny-pd-prefill", "tiny-pd-decode", "tiny-co-server"]


@pytest.fixture(scope="module")
def fixed() -> program.Program:
    return program.dev({"models.tiny-pd.topology.prefill.replicas": 2})


@pytest.mark.parametrize("fleet", FLEETS)
def test_a_scaler_owns_the_number_of_a_scaled_fleet(dev, fleet):
    deployment = dev.one("Deployment", fleet)
    assert "replicas" not in deployment.inputs["spec"]
    assert deployment.ignore_changes == ("spec.replicas",)
    assert "annotations" not in deployment.inputs["metadata"]  # a forced patch would overwrite the scaler silently


def test_we_own_the_number_of_a_fixed_fleet(fixed):
    deployment = fixed.one("Deployment", "tiny-pd-prefill")
    assert deployment.inputs["spec"]["replicas"] == 2
    assert deployment.inputs["metadata"]["annotations"] == {"pulumi.com/patchForce": "true"}
    assert deployment.ignore_changes == ()
    assert [one.object_name for one in fixed.kind("ScaledObject")].count("tiny-pd-prefill") == 0
    assert fixed.one("ScaledObject", "tiny-pd-decode")


def test_only_decode_has_the_routing_sidecar_and_it_starts_first(dev):
    (sidecar,) = pod(dev.one("Deployment", "tiny-pd-decode"))["initContainers"]
    assert sidecar["restartPolicy"] == "Always"
    assert {"--port=8000", "--model-server-port=8200", "--kv-connector=nixlv2", "--secure-serving=false"} <= set(
        sidecar["args"]
    )
    assert "initContainers" not in pod(dev.one("Deployment", "tiny-pd-prefill"))
    assert "initContainers" not in pod(dev.one("Deployment", "tiny-co-server"))


def test_the_sidecar_speaks_the_dialect_of_its_release():
    older = program.dev({"router.version": "0.10"})
    (sidecar,) = pod(older.one("Deployment", "tiny-pd-decode"))["initContainers"]
    assert "--secure-proxy=false" in sidecar["args"]
    assert "--secure-serving=false" not in sidecar["args"]


@pytest.mark.parametrize(
    ("fleet", "port"), [("tiny-pd-prefill", 8000), ("tiny-pd-decode", 8200), ("tiny-co-server", 8000)]
)
def test_probes_and_metrics_reach_vllm_itself(dev, fleet, port):
    container = server(dev.one("Deployment", fleet))
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert ports["modelserver"] == port
    assert f"--port={port}" in container["args"]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["port"] == "modelserver"
    assert container["livenessProbe"]["httpGet"]["path"] == "/health"
    assert container["readinessProbe"]["httpGet"]["path"] == "/v1/models"


@pytest.mark.parametrize("fleet", FLEETS)
def test_the_pool_selects_every_server_and_finds_its_target_port(dev, fleet):
    deployment = dev.one("Deployment", fleet)
    pool = dev.one("InferencePool", fleet.rsplit("-", 1)[0]).inputs["spec"]
    labels = deployment.inputs["spec"]["template"]["metadata"]["labels"]
    assert pool["selector"]["matchLabels"].items() <= labels.items()
    containers = [*pod(deployment)["containers"], *pod(deployment).get("initContainers", [])]
    ports = {port["containerPort"] for container in containers for port in container["ports"]}
    assert {target["number"] for target in pool["targetPorts"]} <= ports


@pytest.mark.parametrize(("fleet", "role"), [*zip(FLEETS, ["prefill", "decode", "prefill-decode"], strict=True)])
def test_service_budget_and_monitor_select_one_role(dev, fleet, role):
    wanted = {"llm-d.ai/model": fleet.rsplit("-", 1)[0], "llm-d.ai/role": role}
    assert dev.one("Deployment", fleet).inputs["spec"]["selector"]["matchLabels"] == wanted
    assert dev.one("Service", fleet).inputs["spec"]["selector"] == wanted
    assert dev.one("Service", fleet).inputs["spec"]["clusterIP"] == "None"
    assert dev.one("PodDisruptionBudget", fleet).inputs["spec"] == {
        "maxUnavailable": 1,
        "selector": {"matchLabels": wanted},
    }
    assert dev.one("PodMonitor", fleet).inputs["spec"]["selector"]["matchLabels"] == wanted


@pytest.mark.parametrize(("fleet", "model"), [("tiny-pd-prefill", "lab/tiny-pd"), ("tiny-co-server", "lab/tiny")])
def test_servers_serve_the_downloaded_weights_under_the_models_id(dev, fleet, model):
    container = server(dev.one("Deployment", fleet))
    (job,) = [one for one in dev.kind("Job") if one.object_name.startswith(fleet.rsplit("-", 1)[0])]
    target = environment(job.inputs["spec"]["template"]["spec"]["containers"][0])["TARGET"]
    assert container["command"] == ["vllm", "serve"]
    assert container["args"][0] == target
    assert target.startswith("/model-cache/")
    assert f"--served-model-name={model}" in container["args"]
    assert {"name": "model-cache", "mountPath": "/model-cache", "readOnly": True} in container["volumeMounts"]


def test_without_a_cache_each_pod_downloads_the_pinned_revision():
    without = program.dev({"models.tiny-co.cache": "none"})
    container = server(without.one("Deployment", "tiny-co-server"))
    assert container["args"][0] == "lab/tiny"
    assert "--revision=0fb3f0eaf059e6463d9cf5942b60a6eb96060da8" in container["args"]
    assert environment(container)["HF_ENDPOINT"] == "http://model-hub.model-hub"
    assert [mount["name"] for mount in container["volumeMounts"]] == ["shm"]
    assert [one.object_name for one in without.kind("PersistentVolumeClaim")] == ["tiny-pd-model-cache"]
    assert [one for one in without.kind("Job") if "tiny-co" in one.object_name] == []


@pytest.mark.parametrize("fleet", FLEETS)
def test_a_pod_has_time_to_end_what_it_has_begun(dev, fleet):
    deployment = dev.one("Deployment", fleet)
    container = server(deployment)
    (drain,) = [int(each.split("=")[1]) for each in container["args"] if each.startswith("--shutdown-timeout")]
    wait = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert drain == 8  # 2 s to the first token, then 256 tokens of 20 ms
    assert pod(deployment)["terminationGracePeriodSeconds"] >= wait + drain + 15


@pytest.mark.parametrize(
    ("strategy", "rolling"),
    [("surge", {"maxSurge": 1, "maxUnavailable": 0}), ("in-place", {"maxSurge": 0, "maxUnavailable": 1})],
)
def test_a_rollout_spares_capacity_or_gpus(strategy, rolling):
    rolled = program.dev({"models.tiny-pd.rollout": {"strategy": strategy}})
    assert rolled.one("Deployment", "tiny-pd-decode").inputs["spec"]["strategy"]["rollingUpdate"] == rolling


def test_the_engine_waits_as_long_as_a_server_may_take_to_start():
    slow = program.dev({"models.tiny-pd.topology.prefill.startup": {"budgetSeconds": 3600, "periodSeconds": 30}})
    deployment = slow.one("Deployment", "tiny-pd-prefill")
    assert server(deployment)["startupProbe"]["failureThreshold"] == 120
    deadline = deployment.inputs["spec"]["progressDeadlineSeconds"]
    assert deadline > 3600
    assert deployment.timeouts["create"] == f"{int(deadline)}s"


@pytest.mark.parametrize("fleet", FLEETS)
def test_gpus_stand_in_requests_and_limits(dev, fleet):
    resources = server(dev.one("Deployment", fleet))["resources"]
    assert resources["requests"]["nvidia.com/gpu"] == resources["limits"]["nvidia.com/gpu"] == "1"


def test_a_server_can_do_nothing_to_the_cluster(dev):
    for fleet in FLEETS:
        account = pod(dev.one("Deployment", fleet))["serviceAccountName"]
        assert pod(dev.one("Deployment", fleet))["automountServiceAccountToken"] is False
        bound = [subject["name"] for kind in ("RoleBinding", "ClusterRoleBinding") for one in dev.kind(kind)
                 for subject in one.inputs["subjects"]]  # fmt: skip
        assert account not in bound


@pytest.mark.parametrize("fleet", FLEETS)
def test_the_quota_is_there_before_the_servers(dev, fleet):
    earlier = [
        (one.manifest["kind"], one.object_name) for one in dev.before(dev.one("Deployment", fleet)) if one.is_kubernetes
    ]
    assert ("ResourceQuota", f"{fleet.rsplit('-', 1)[0]}-gpus") in earlier


def test_the_quota_holds_every_fleet_at_maximum_and_the_headroom(dev):
    assert dev.one("ResourceQuota", "tiny-pd-gpus").inputs["spec"] == {
        "hard": {"requests.nvidia.com/gpu": "10"}
    }  # 4 + 4 + 2
    assert dev.one("ResourceQuota", "tiny-co-gpus").inputs["spec"] == {
        "hard": {"requests.nvidia.com/gpu": "5"}
    }  # 3 + 2


def test_the_quota_counts_each_kind_of_accelerator():
    mixed = program.dev(
        {
            "accelerators.other": {"resource": "amd.com/gpu", "perNode": 8, "nodes": 1, "budget": 8, "headroom": 2},
            "accelerators.third": {"resource": "nvidia.com/gpu", "perNode": 8, "nodes": 2, "budget": 12, "headroom": 4},
            "models.tiny-pd.topology.decode.accelerator": "other",
            "models.tiny-co.topology.server.accelerator": "third",
            "models.tiny-co.topology.server.tensorParallel": 2,
        }
    )
    assert mixed.one("ResourceQuota", "tiny-pd-gpus").inputs["spec"]["hard"] == {
        "requests.amd.com/gpu": "6",
        "requests.nvidia.com/gpu": "6",
    }
    assert mixed.one("ResourceQuota", "tiny-co-gpus").inputs["spec"]["hard"] == {"requests.nvidia.com/gpu": "10"}
    assert server(mixed.one("Deployment", "tiny-pd-decode"))["resources"]["limits"]["amd.com/gpu"] == "1"
