"""What holds for every object of every environment, whatever it is for."""

import json

import pytest
from pulumi.output import Unknown

from tests.program import program, schemas
from tests.program.program import UNRESOLVED, Program

CLUSTER_SCOPED = {"Namespace", "ClusterRole", "ClusterRoleBinding"}
PODS = {"Deployment": "spec.template.spec", "Job": "spec.template.spec"}

# What an environment may say beyond `dev`; each must give objects that a cluster accepts.
VARIANTS = {
    "dev": {},
    "older router": {"router.version": "0.10"},
    "open Prometheus": {"prometheus": {"address": "http://prometheus.monitoring:9090", "auth": {"kind": "none"}}},
    "own certificate authority": {"prometheus.ca": {"name": "ca", "key": "ca.crt"}},
    "fixed counts": {
        "models.tiny-pd.topology.prefill.replicas": 2,
        "models.tiny-pd.topology.decode.replicas": 1,
        "models.tiny-co.topology.server.replicas": 3,
    },
    "no cache": {"models.tiny-pd.cache": "none", "models.tiny-co.cache": "none"},
    "someone else's claim": {"models.tiny-pd.cache": {"existingClaim": "weights"}},
    "retained": {"models.tiny-pd.cache.retain": True},
    "private hub": {"hub": {"endpoint": "https://hub.example", "tokenSecret": {"name": "hub", "key": "HF_TOKEN"}}},
    "someone else's namespace": {"models.tiny-pd.namespace.create": False},
    "signals by path": {"models.tiny-pd.autoscaling.prefillSignal": "path"},
    "in place": {"models.tiny-pd.rollout": {"strategy": "in-place"}},
    "load balancer": {"models.tiny-pd.router": {"serviceType": "LoadBalancer"}},
    "cluster only": {"models.tiny-pd.router": {}},
    "ids of our own": {"pods": {"runAsUser": 65532, "fsGroup": 65532}},
    "particular nodes": {
        "accelerators.sim.nodeSelector": {"nvidia.com/gpu.product": "H100"},
        "accelerators.sim.tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "accelerators.sim.runtimeClass": "nvidia",
        "images.pullSecrets": ["registry"],
    },
    "all an engine can be told": {
        "models.tiny-pd.topology.prefill.gpuMemoryUtilization": 0.85,
        "models.tiny-pd.topology.decode.maxNumSeqs": 256,
        "models.tiny-pd.topology.decode.extraArgs": ["--enforce-eager"],
        "models.tiny-pd.model.dtype": "bfloat16",
    },
}


@pytest.fixture(scope="module", params=VARIANTS, ids=lambda name: name.replace(" ", "-"))
def variant(request) -> Program:
    return program.dev(VARIANTS[request.param])


def test_a_cluster_accepts_every_object(variant):
    assert variant.objects
    refused = {one.urn: faults for one in variant.objects if (faults := schemas.faults(one.manifest))}
    assert refused == {}


def test_no_object_carries_the_text_of_an_unresolved_output(variant):
    carrying = [one.urn for one in variant.registered if UNRESOLVED in json.dumps(one.inputs)]
    assert carrying == []
    assert UNRESOLVED not in json.dumps(variant.exports)


def test_no_two_resources_are_the_same_object(variant):
    identities = [(one.type, one.inputs["metadata"].get("namespace"), one.object_name) for one in variant.objects]
    assert len(identities) == len(set(identities))


def test_every_container_runs_without_privileges(variant):
    for one in variant.objects:
        if one.manifest["kind"] in PODS:
            pod = one.inputs["spec"]["template"]["spec"]
            assert pod["securityContext"]["runAsNonRoot"] is True
            assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
            for container in [*pod["containers"], *pod.get("initContainers", [])]:
                context = container["securityContext"]
                assert context["allowPrivilegeEscalation"] is False, one.urn
                assert context["capabilities"] == {"drop": ["ALL"]}, one.urn


def test_every_object_is_named_and_labelled_by_us(dev):
    for one in dev.objects:
        meta = one.inputs["metadata"]
        assert meta["name"], one.urn
        assert meta["labels"]["app.kubernetes.io/part-of"] == "llm-d", one.urn
        assert meta["labels"]["app.kubernetes.io/managed-by"] == "pulumi", one.urn
        assert ("namespace" in meta) == (one.manifest["kind"] not in CLUSTER_SCOPED), one.urn


def test_everything_in_a_namespace_comes_after_the_namespace(dev):
    for one in dev.objects:
        namespace = one.inputs["metadata"].get("namespace")
        if namespace is not None:
            earlier = [before for before in dev.before(one) if before.is_kubernetes]
            assert ("Namespace", namespace) in {(each.manifest["kind"], each.object_name) for each in earlier}, one.urn


def test_every_object_belongs_to_a_component(dev):
    components = {one.urn for one in dev.components}
    assert {one.parent for one in dev.objects} <= components


def test_every_component_registers_its_outputs(variant):
    assert sorted(variant.finished) == sorted(one.urn for one in variant.components)


def test_type_tokens_are_those_that_states_hold(dev):
    """A changed token makes the engine replace what is below it; see docs/names.md."""
    assert {one.type for one in dev.components} == {
        f"llm-d:components:{name}"
        for name in (
            "Autoscaling", "CoLocatedServers", "GpuQuota", "ModelCache", "ModelNamespace", "ModelStack", "Monitoring",
            "OpenShiftThanos", "PrefillDecodeServers", "Router",
        )
    }  # fmt: skip


def test_a_first_preview_knows_all_but_the_names_that_carry_the_suffix(dev):
    preview = program.run(program.stack_file("dev"), stack="dev", preview=True)
    unknown = {(one.manifest["kind"], path) for one in preview.objects for path in unknown_paths(one.inputs)}
    assert unknown == {
        ("ClusterRole", "metadata.name"),
        ("ClusterRoleBinding", "metadata.name"),
        ("ClusterRoleBinding", "roleRef.name"),
    }
    assert len(preview.registered) == len(dev.registered)


def unknown_paths(value, path=()):
    if isinstance(value, dict):
        return [found for key, inner in value.items() for found in unknown_paths(inner, (*path, key))]
    if isinstance(value, list):
        return [found for index, inner in enumerate(value) for found in unknown_paths(inner, (*path, str(index)))]
    return [".".join(path)] if isinstance(value, Unknown) else []


def test_two_stacks_in_one_cluster_never_share_a_cluster_scoped_name(dev):
    names = [one.object_name for one in dev.objects if one.manifest["kind"].startswith("ClusterRole")]
    assert names
    assert all(name.endswith(f"-{program.SUFFIX}") for name in names)


@pytest.mark.parametrize(
    ("manifest", "fault"),
    [
        ({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicaz": 1}}, "replicaz"),
        ({"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "spec": {"trigger": []}}, "trigger"),
        ({"apiVersion": "v1", "kind": "Service", "metadata": {"lables": {}}}, "lables"),
        ({"apiVersion": "v2", "kind": "Service"}, "no schema"),
    ],
)
def test_the_schemas_refuse_what_a_cluster_would(manifest, fault):
    assert fault in " ".join(schemas.faults(manifest))
