"""The environment `dev` on a real engine and API server with a played node: it comes, stays, changes and goes."""

import json
from typing import Any

import pytest

from llmd.outputs import EnvironmentOutputs
from tests.engine.api_server import ApiServer, wait_for
from tests.engine.conftest import StackMaker
from tests.engine.stack import Stack

PD, CO = "llm-d-tiny-pd", "llm-d-tiny-co"
OURS = "labelSelector=app.kubernetes.io/part-of%3Dllm-d"


@pytest.fixture
def dev(make_stack: StackMaker, api_server: ApiServer) -> Stack:
    return make_stack(name="dev", config_of="dev", kubeconfig=api_server.kubeconfig)


def scale(api: ApiServer, namespace: str, name: str, replicas: int) -> None:
    """What an HPA does."""
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}"
    api.patch(f"{path}/scale", {"spec": {"replicas": replicas}})

    def settled() -> bool:
        return api.request("GET", path)["status"].get("readyReplicas") == replicas

    wait_for(settled, f"{name} to have {replicas} ready replicas")


def replicas(api: ApiServer, namespace: str, name: str) -> int:
    return api.request("GET", f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}")["spec"]["replicas"]


def names(api: ApiServer, path: str) -> list[str]:
    return sorted(item["metadata"]["name"] for item in api.request("GET", f"{path}?{OURS}")["items"])


def changed(outcome: Any) -> dict[str, list[str]]:
    """Operation → names of the Kubernetes resources that it is about."""
    found: dict[str, list[str]] = {}
    for step in outcome.steps():
        if step["op"] not in {"same", "refresh"} and step["type"].startswith("kubernetes:"):
            found.setdefault(step["op"], []).append(step["urn"].rsplit("::", 1)[1])
    return {op: sorted(set(resources)) for op, resources in found.items()}


def test_dev_comes_stays_while_a_scaler_works_and_goes(dev: Stack, api_server: ApiServer):
    assert set(dev.preview().changes) == {"create"}
    assert names(api_server, "/api/v1/namespaces") == []  # a preview makes nothing

    up = dev.up()
    assert set(up.changes) == {"create"}
    assert [said for said in up.diagnostics if said[0] in {"error", "warning"}] == []
    outputs = EnvironmentOutputs.from_dict(dev.outputs()["environment"])
    assert {model.key for model in outputs.models} == {"tiny-pd", "tiny-co"}
    quota = api_server.request("GET", f"/api/v1/namespaces/{PD}/resourcequotas/tiny-pd-gpus")["status"]
    assert quota["hard"] == {"requests.nvidia.com/gpu": "10"}
    assert quota["used"] == {"requests.nvidia.com/gpu": "2"}

    assert dev.up().changes == {}
    scale(api_server, PD, "tiny-pd-prefill", 3)
    assert dev.up().changes == {}
    assert dev.preview("--refresh").changes == {}
    assert replicas(api_server, PD, "tiny-pd-prefill") == 3

    dev.configure("llm-d:models.tiny-pd.topology.prefill.resources.memory", "300Mi", path=True)
    assert changed(dev.up()) == {"update": ["tiny-pd-prefill"]}
    assert replicas(api_server, PD, "tiny-pd-prefill") == 3  # a rollout does not undo the scaler

    dev.destroy()
    assert [one for one in dev.resources() if one["type"] != "pulumi:pulumi:Stack"] == []
    assert names(api_server, "/api/v1/namespaces") == []
    for kind in ("clusterroles", "clusterrolebindings"):
        assert names(api_server, f"/apis/rbac.authorization.k8s.io/v1/{kind}") == []


def test_rates_and_owners_change_and_a_retained_claim_outlives_it_all(dev: Stack, api_server: ApiServer):
    dev.configure("llm-d:models.tiny-co.cache.retain", "true", path=True)
    dev.up()

    another_rate_rolls_the_router_and_its_scaler_and_nothing_else(dev, api_server)
    the_number_of_replicas_changes_hands_and_back(dev, api_server)

    claim = f"/api/v1/namespaces/{CO}/persistentvolumeclaims/tiny-co-model-cache"
    weights = api_server.request("GET", claim)["metadata"]["uid"]
    dev.destroy()
    try:
        assert names(api_server, "/api/v1/namespaces") == [CO]
        assert api_server.request("GET", claim)["metadata"]["uid"] == weights
        assert names(api_server, f"/apis/apps/v1/namespaces/{CO}/deployments") == []

        dev.up()  # and finds its weights again
        assert api_server.request("GET", claim)["metadata"]["uid"] == weights
        dev.destroy()
        assert names(api_server, "/api/v1/namespaces") == [CO]
    finally:
        api_server.request("DELETE", f"/api/v1/namespaces/{CO}")
        wait_for(lambda: api_server.get(f"/api/v1/namespaces/{CO}") is None, f"namespace {CO} to go")


def another_rate_rolls_the_router_and_its_scaler_and_nothing_else(dev: Stack, api_server: ApiServer) -> None:
    maps = f"/api/v1/namespaces/{CO}/configmaps"
    before = names(api_server, maps)
    dev.configure("llm-d:models.tiny-co.calibration.pathThroughput", "7000.5", path=True)
    outcome = dev.up()
    assert changed(outcome) == {
        "create-replacement": ["tiny-co-epp-config"],
        "replace": ["tiny-co-epp-config"],
        "delete-replaced": ["tiny-co-epp-config"],
        "update": ["tiny-co-epp", "tiny-co-server"],
    }
    assert {step["type"].rsplit(":", 1)[1] for step in outcome.steps("update")} == {"Deployment", "ScaledObject"}
    after = names(api_server, maps)
    assert len(after) == len(before)
    (gone,) = set(before) - set(after)
    (come,) = set(after) - set(before)
    router = api_server.request("GET", f"/apis/apps/v1/namespaces/{CO}/deployments/tiny-co-epp")
    mounted = json.dumps(router["spec"]["template"]["spec"]["volumes"])
    assert come in mounted
    assert gone not in mounted


def the_number_of_replicas_changes_hands_and_back(dev: Stack, api_server: ApiServer) -> None:
    scale(api_server, CO, "tiny-co-server", 3)
    dev.configure("llm-d:models.tiny-co.topology.server.replicas", "2", path=True)
    dev.up()
    assert replicas(api_server, CO, "tiny-co-server") == 2
    assert api_server.get(f"/apis/keda.sh/v1alpha1/namespaces/{CO}/scaledobjects/tiny-co-server") is None

    dev.run("config", "rm", "--stack", "dev", "--path", "llm-d:models.tiny-co.topology.server.replicas")
    dev.configure("llm-d:models.tiny-co.topology.server.replicas.max", "3", path=True)
    dev.up()
    assert replicas(api_server, CO, "tiny-co-server") == 2  # no drop to 1 in between
    scale(api_server, CO, "tiny-co-server", 3)
    dev.configure("llm-d:models.tiny-co.topology.server.resources.memory", "300Mi", path=True)
    dev.up()
    assert replicas(api_server, CO, "tiny-co-server") == 3


def test_a_faulty_configuration_ends_before_anything_is_registered(dev: Stack, api_server: ApiServer):
    dev.configure("llm-d:models.tiny-co.slo.ttftSeconds", "0.1", path=True)
    dev.configure("llm-d:models.tiny-pd.cache", "disk", path=True)
    outcome = dev.up(status=None)
    assert outcome.status != 0
    (said,) = [message for severity, message in outcome.diagnostics if severity == "error" and "fault" in message]
    assert "the configuration has 2 faults" in said
    assert "llm-d:models.tiny-pd.cache: 'disk': allowed: none" in said
    assert "llm-d:models.tiny-co.slo.ttftSeconds: 0.1: " in said
    assert "Traceback" not in said
    assert [one for one in dev.resources() if one["type"] != "pulumi:pulumi:Stack"] == []
    assert names(api_server, "/api/v1/namespaces") == []
