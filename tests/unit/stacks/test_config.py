"""Reading an environment: what is accepted, and one error that lists every fault by path, value and what is allowed."""

import contextvars
import copy
import json
from pathlib import Path

import pulumi
import pytest
import yaml

from llmd.roles import Role
from stacks.config import ConfigError, load, parse
from stacks.model_schema import CoLocated, PrefillDecode

DEV = yaml.safe_load((Path(__file__).parents[3] / "Pulumi.dev.yaml").read_text())["config"]
ABSENT = object()


def environment(changes=None):
    """The environment `dev` with other values at some key paths."""
    values = {key.removeprefix("llm-d:"): copy.deepcopy(value) for key, value in DEV.items()}
    for path, value in (changes or {}).items():
        *steps, last = path.split(".")
        section = values
        for step in steps:
            section = section.setdefault(step, {})
        if value is ABSENT:
            del section[last]
        else:
            section[last] = value
    return values


def faults(changes) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        parse(environment(changes))
    assert str(raised.value).count("\n  llm-d:") == len(raised.value.faults)
    return [str(fault) for fault in raised.value.faults]


def test_dev_is_sound():
    read = parse(environment())
    assert isinstance(read.models["tiny-pd"].topology, PrefillDecode)
    assert isinstance(read.models["tiny-co"].topology, CoLocated)
    assert [role for model in read.models.values() for role in model.topology.fleets] == [*Role]


def test_an_environment_cannot_be_changed_after_reading():
    read = parse(environment())
    with pytest.raises(ValueError, match="frozen"):
        setattr(read.models["tiny-pd"].slo, "ttft_seconds", 1.0)  # noqa: B010 - the type checker refuses the plain form


# key path, value there, what is said to be allowed, and the path that is named where it is another one
TABLE = [
    ("router.version", "0.9", "known: 0.10, 0.11"),
    ("router.version", 0.11, "in quotes"),
    ("router.version", None, "text"),
    ("router", None, "a mapping with the keys version"),
    ("engine.nmae", "vllm", "did you mean name? allowed: name, version"),
    ("engine.name", "sglang", "known: vllm"),
    ("engine.version", "0.1", "known: 0.26, 0.27"),
    ("modles", {}, "did you mean models?"),
    ("images.envoy", ABSENT, "required"),
    ("images", [], "a mapping with the keys modelServer"),
    ("images.modelServer", "vllm latest", "an image"),
    ("images.pullSecrets", "registry", "a list"),
    ("images.envoi", "x", "did you mean envoy? allowed: modelServer, endpointPicker, routingSidecar, envoy"),
    ("prometheus.address", "thanos:9091", "http:// or https://"),
    ("prometheus.auth", {"kind": "basic"}, "'none' or 'openshift-thanos'", "prometheus.auth.kind"),
    ("prometheus.auth", {"kind": "bound-token"}, "not available yet", "prometheus.auth.kind"),
    (
        "prometheus", {"address": "http://p", "auth": {"kind": "none"}, "ca": {"name": "a", "key": "b"}},
        "only with an auth kind",
    ),
    ("accelerators", None, "a mapping of names"),
    ("accelerators", {}, "at least 1 item"),
    ("accelerators.sim", {}, "required", "accelerators.sim.budget"),
    ("accelerators.sim.resource", "gpu", "such as nvidia.com/gpu"),
    ("accelerators.sim.nodes", 10**18, "less than or equal to 2147483647"),
    ("accelerators.sim.nodeSelector", [], "a mapping of names"),
    ("accelerators.sim.nodeSelector", {"gpu": True}, "text", "accelerators.sim.nodeSelector.gpu"),
    ("accelerators.sim.tolerations", {"key": "gpu"}, "a list"),
    ("accelerators.sim.tolerations", [{"kee": "gpu"}], "did you mean key?", "accelerators.sim.tolerations.0.kee"),
    ("accelerators.sim.perNode", 0, "greater than or equal to 1"),
    ("accelerators.sim.budget", 12, "1 above the budget of 12"),
    ("accelerators.sim.budget", 17, "16 GPUs"),
    ("accelerators.sim.headroom", 0, "at least 1"),
    ("models", {}, "at least 1 item"),
    ("models", ["tiny-pd"], "a mapping of names"),
    ("models.tiny-pd", None, "a mapping with the keys namespace, model"),
    ("models", {None: 1}, "text"),
    ("models.tiny-pd.model.id", "../../etc", "a model of a hub"),
    ("models.tiny-pd.model.id", "--tiny", "a model of a hub"),
    ("models.tiny-pd.model.id", "", "a model of a hub"),
    ("models.tiny-pd.model.maxModelLen", 10**400, "less than or equal to 2147483647"),
    ("models.tiny-pd.namespace.name", "default", "belongs to Kubernetes"),
    ("models.tiny-pd.namespace.name", "kube-system", "belongs to Kubernetes"),
    ("models.tiny-pd.namespace.create", "yes", "true or false"),
    ("models.tiny-pd.namespace.name", "Tiny", "DNS label"),
    ("models.tiny-pd.namespace.name", "llm-d-tiny-co", "namespace of its own"),
    ("models.tiny-pd.model.revision", "main", "40 hex digits"),
    ("models.tiny-pd.topology.kind", "split", "prefill-decode, co-located"),
    ("models.tiny-pd.topology.kind", ["co-located"], "prefill-decode, co-located"),
    ("models.tiny-pd.topology.kind", ABSENT, "missing; allowed: prefill-decode, co-located"),
    ("models.tiny-pd.topology.prefil", {}, "did you mean prefill? allowed: kind, fabric, prefill, decode"),
    ("models.tiny-pd.topology", "prefill-decode", "a mapping with the keys kind, fabric"),
    ("models.tiny-pd.slo", 4, "a mapping with the keys ttftSeconds"),
    ("router", "0.11", "a mapping with the keys version"),
    ("models.tiny-pd.calibration", "pinned", "a mapping with the keys mode, pathThroughput"),
    ("models.tiny-pd.calibration", None, "missing; allowed: pinned, measure", "models.tiny-pd.calibration.mode"),
    ("models.tiny-pd.calibration.mode", 3, "pinned, measure"),
    ("models.tiny-pd.topology.fabric", ABSENT, "required"),
    ("models.tiny-pd.topology.server", {}, "allowed: kind, fabric, prefill, decode"),
    ("models.tiny-pd.topology.decode.accelerator", "h100", "allowed: sim"),
    ("models.tiny-pd.topology.decode.tensorParallel", 32, "at most 16"),
    ("models.tiny-pd.topology.decode.tensorParallel", True, "a whole number"),
    (
        "models.tiny-pd.topology.decode.replicas", {"min": 0, "max": 2},
        "equal to 1", "models.tiny-pd.topology.decode.replicas.min",
    ),
    ("models.tiny-pd.topology.decode.replicas", {"min": 3, "max": 2}, "min 3 is above"),
    ("models.tiny-pd.topology.decode.replicas", 0, "equal to 1"),
    ("models.tiny-pd.topology.decode.replicas", "two", "a whole number, or a mapping with the keys min, max"),
    ("models.tiny-pd.topology.decode.replicas", None, "a whole number, or a mapping with the keys min, max"),
    ("models.tiny-pd.topology.decode.replicas", [1, 4], "a mapping with the keys min, max"),
    (
        "models.tiny-pd.topology.decode.replicas", {"mn": 1, "max": 2},
        "did you mean min? allowed: min, max", "models.tiny-pd.topology.decode.replicas.mn",
    ),
    ("models.tiny-pd.topology.decode.replicas", {"max": "2"}, "whole", "models.tiny-pd.topology.decode.replicas.max"),
    ("models.tiny-pd.topology.decode.startup", {"budgetSeconds": 10**6}, "86400",
     "models.tiny-pd.topology.decode.startup.budgetSeconds"),
    ("models.tiny-pd.topology.decode.gpuMemoryUtilization", 1.5, "less than or equal to 1"),
    (
        "models.tiny-pd.topology.decode.resources", {"cpu": "lots", "memory": "1Gi"},
        "CPUs such as", "models.tiny-pd.topology.decode.resources.cpu",
    ),
    ("models.tiny-pd.router.envoy.cpu", "1Ki", "CPUs such as"),
    ("models.tiny-pd.router.envoy.memory", "500m", "bytes"),
    ("models.tiny-pd.topology.decode.sharedMemory", "0", "bytes"),
    ("models.tiny-pd.topology.decode.extraEnv", [], "a mapping of names"),
    ("models.tiny-pd.topology.decode.extraEnv", {"Ä": "x"}, "environment variable",
     "models.tiny-pd.topology.decode.extraEnv.Ä"),
    ("models.tiny-pd.topology.decode.extraArgs", "--enforce-eager", "a list"),
    (
        "models.tiny-pd.topology.decode.extraEnv", {"HOME": "/root"},
        "rendered from other keys", "models.tiny-pd.topology.decode.extraEnv.HOME",
    ),
    ("models.tiny-pd.cache", "nfs", "none, {size"),
    ("models.tiny-pd.cache", None, "none, {size"),
    ("models.tiny-pd.cache.retain", 1, "true or false"),
    ("models.tiny-pd.cache.downloadSeconds", 10**30, "86400"),
    ("models.tiny-pd.cache", {"existingClaims": "a"}, "did you mean existingClaim?",
     "models.tiny-pd.cache.existingClaims"),
    ("models.tiny-pd.cache", {"existingClaim": "a", "size": "1Gi"}, "allowed: ", "models.tiny-pd.cache.size"),
    ("models.tiny-pd.slo.ttftSeconds", 0.3, "floor of 0.34 s"),
    ("models.tiny-co.slo.ttftSeconds", 0.2, "floor of 0.26 s"),
    ("models.tiny-pd.slo.ttftSeconds", -1, "greater than 0"),
    ("models.tiny-pd.slo.ttftSeconds", True, "a number"),
    ("models.tiny-pd.slo.ttftSeconds", float("nan"), "greater than 0"),
    ("models.tiny-pd.slo.ttftSeconds", 1e308, "less than or equal to 86400"),
    ("models.tiny-pd.slo.inputTokens", 10**400, "less than or equal to 2147483647"),
    ("models.tiny-pd.slo.interTokenSeconds", 3600, "256 output tokens a request may take 921602 s"),
    ("models.tiny-pd.slo.ttftStatistic", "p42", "'p90'"),
    ("models.tiny-pd.slo.inputTokens", 20000, "maxModelLen (16384)"),
    ("models.tiny-pd.slo.outputTokens", 512, "maxOutputTokens (256)"),
    ("models.tiny-pd.calibration", {"mode": "measure"}, "not available yet", "models.tiny-pd.calibration.mode"),
    ("models.tiny-pd.calibration", ABSENT, "allowed: pinned", "models.tiny-pd.calibration.mode"),
    ("models.tiny-pd.calibration", {"mode": "guess"}, "pinned, measure", "models.tiny-pd.calibration.mode"),
    ("models.tiny-pd.calibration.prefillThroughput", ABSENT, "missing"),
    ("models.tiny-pd.calibration.source", ABSENT, "required"),
    ("models.tiny-co.calibration.prefillThroughput", 9000, "leave it out"),
    ("models.tiny-pd.calibration.pathThroughput", 9000, "below prefill"),
    ("models.tiny-pd.calibration.pathThroughput", "fast", "number"),
    ("models.tiny-co.autoscaling.prefillSignal", "phase", "path"),
    (
        "models.tiny-co.autoscaling.thresholds", {"transfer": 1.0},
        "leave", "models.tiny-co.autoscaling.thresholds.transfer",
    ),
    (
        "models.tiny-co.autoscaling.thresholds", {"decode": 0.95},
        "0.9", "models.tiny-co.autoscaling.thresholds.decode",
    ),
    ("models.tiny-pd.autoscaling.thresholds", {"prefill": 1e-9}, "0.001",
     "models.tiny-pd.autoscaling.thresholds.prefill"),
    ("models.tiny-pd.autoscaling.tokenEstimateRatio", 1e300, "less than or equal to 100"),
    ("models.tiny-co.autoscaling.behavior.scaleUp.periodSeconds", 3600, "1800"),
    ("models.tiny-co.rollout", {"strategy": "recreate"}, "'surge' or 'in-place'", "models.tiny-co.rollout.strategy"),
    ("models.tiny-co.router.nodePort", 30080, "port of its own"),
    ("models.tiny-co.router.serviceType", "LoadBalancer", "NodePort"),
    ("hub.endpoint", "hub", "http://"),
    ("pods", {"runAsUser": 0}, "equal to 1", "pods.runAsUser"),
]  # fmt: skip


@pytest.mark.parametrize("row", TABLE, ids=[f"{row[0]}={row[1]}"[:60] for row in TABLE])
def test_a_fault_names_the_path_the_value_and_what_is_allowed(row):
    path, value, allowed, *elsewhere = row
    where = elsewhere[0] if elsewhere else path
    found = faults({path: value})
    named = [fault for fault in found if fault.startswith(f"{where}: ")]
    assert any(allowed in fault for fault in named), found
    if where == path and value is not ABSENT and not isinstance(value, dict):
        shown = repr(value).removesuffix(".0")[:70]  # a long one is cut
        assert any(fault.startswith(f"{where}: {shown}") for fault in named), named


def test_two_words_that_are_no_keys_are_both_named():
    found = faults({"modles": {}, "models.tiny-pd.slo.ttftSecnds": 1})
    assert [fault.split("?")[0] for fault in found] == [
        "models.tiny-pd.slo.ttftSecnds: 1: unknown key; did you mean ttftSeconds",
        "modles: {}: unknown key; did you mean models",
    ]


def test_keys_of_another_kind_are_not_offered():
    (fault,) = faults({"models.tiny-pd.topology.server": {}})
    assert fault.endswith("unknown key; allowed: kind, fabric, prefill, decode")


def test_a_misspelt_name_at_the_top_of_the_stack_file_is_not_overlooked():
    """The SDK answers only to names that it is asked for."""

    def read():
        values = {f"llm-d:{key}": json.dumps(value) for key, value in environment({"hubb": {}}).items()}
        pulumi.runtime.set_all_config({**values, "kubernetes:context": "lab"})
        return load()

    with pytest.raises(ConfigError) as raised:
        contextvars.copy_context().run(read)
    (fault,) = raised.value.faults
    assert str(fault).startswith("hubb: {}: unknown key; did you mean hub? allowed: router, engine, accelerators, ")


@pytest.mark.parametrize(("given", "read"), [(2, "2"), (0.5, "0.5"), ("250m", "250m")])
def test_cpus_may_be_a_number(given, read):
    assert parse(environment({"models.tiny-pd.router.envoy.cpu": given})).models["tiny-pd"].router.envoy.cpu == read


def test_a_models_key_is_a_name_that_kubernetes_can_carry():
    model = environment()["models"]["tiny-co"]
    for key in ("Tiny", "tiny_co", "t" * 39):
        found = faults({"models": {key: model}})
        assert any(fault.startswith(f"models.{key}:") for fault in found), found


def test_no_models_key_begins_anothers():
    values = environment()
    values["models"]["tiny"] = values["models"].pop("tiny-co")
    with pytest.raises(ConfigError, match=r"models\.tiny-pd: 'tiny-pd': begins with the model name 'tiny'"):
        parse(values)


def test_one_error_lists_faults_of_form_in_every_part():
    found = faults(
        {
            "router.version": 11,
            "accelerators.sim.perNode": "many",
            "images.tools": ABSENT,
            "models.tiny-pd.slo.ttftSeconds": 0,
            "models.tiny-co.topology.server.replica": 1,
            "models.tiny-co.cache": "disk",
        }
    )
    paths = [fault.split(": ")[0] for fault in found]
    assert sorted(paths) == [
        "accelerators.sim.perNode",
        "images.tools",
        "models.tiny-co.cache",
        "models.tiny-co.topology.server.replica",
        "models.tiny-pd.slo.ttftSeconds",
        "router.version",
    ]


def test_one_error_lists_contradictions_of_every_model():
    found = faults(
        {
            "accelerators.sim.headroom": 0,
            "models.tiny-pd.topology.prefill.accelerator": "h100",
            "models.tiny-pd.calibration.pathThroughput": 9000,
            "models.tiny-co.slo.ttftSeconds": 0.1,
            "models.tiny-co.slo.outputTokens": 1000,
        }
    )
    paths = {fault.split(": ")[0] for fault in found}
    assert paths == {
        "accelerators.sim.headroom",
        "models.tiny-pd.topology.prefill.accelerator",
        "models.tiny-pd.calibration.pathThroughput",
        "models.tiny-co.slo.ttftSeconds",
        "models.tiny-co.slo.outputTokens",
    }


def test_a_contradiction_in_one_model_is_listed_beside_a_fault_of_form_in_another():
    found = faults({"models.tiny-pd.cache": "disk", "models.tiny-co.slo.ttftSeconds": 0.1})
    assert [fault.split(": ")[0] for fault in found] == ["models.tiny-pd.cache", "models.tiny-co.slo.ttftSeconds"]


@pytest.mark.parametrize(
    ("argument", "flag"),
    [
        ("--max-num-batched-tokens=4096", "--max-num-batched-tokens"),
        ("--max_num_batched_tokens=4096", "--max-num-batched-tokens"),
        ("--max-num-batched 4096", "--max-num-batched-tokens"),
        ("-tp=2", "--tensor-parallel-size"),
        ("--port=9000", "--port"),
        ("--kv-transfer-config={}", "--kv-transfer-config"),
        ("--disable-hybrid-kv-cache-manager", "--no-disable-hybrid-kv-cache-manager"),
        ("--shutdown-timeout=0", "--shutdown-timeout"),
        ("--served-model-name=other", "--served-model-name"),
    ],
)
def test_extra_arguments_may_not_change_a_flag_of_ours(argument, flag):
    (fault,) = faults({"models.tiny-pd.topology.prefill.extraArgs": ["--enforce-eager", argument]})
    assert fault.startswith(f"models.tiny-pd.topology.prefill.extraArgs: '{argument}':")
    assert flag in fault


@pytest.mark.parametrize("argument", ["--enforce-eager", "--kv-cache-dtype=fp8", "--max-logprobs=5", "fp8"])
def test_other_extra_arguments_are_free(argument):
    read = parse(environment({"models.tiny-pd.topology.prefill.extraArgs": [argument]}))
    assert read.models["tiny-pd"].topology.fleets[Role.PREFILL].extra_args == (argument,)


def test_an_occupancy_that_a_full_batch_never_reaches_is_refused():
    changes = {
        "models.tiny-co.topology.server.maxNumSeqs": 8,
        "models.tiny-co.topology.server.kvTokens": 131072,
    }
    (fault,) = faults(changes)
    assert fault.startswith("models.tiny-co.autoscaling.decodeSignal: ")
    assert "8 sequences x 2112 tokens" in fault
    parse(environment({**changes, "models.tiny-co.topology.server.maxNumSeqs": 256}))


def test_a_long_value_is_cut_in_the_message():
    (fault,) = faults({"images.other": "x" * 500})
    assert len(fault) < 300


def test_a_fraction_may_be_text_since_the_cli_writes_it_so():
    read = parse(environment({"models.tiny-co.slo.ttftSeconds": "1.5"}))
    assert read.models["tiny-co"].slo.ttft_seconds == 1.5


def test_what_is_left_out_has_the_documented_default():
    read = parse(environment({"router": ABSENT, "engine": ABSENT, "hub": ABSENT, "models.tiny-co.autoscaling": ABSENT}))
    assert (read.router.version, read.engine.name, read.engine.version) == ("0.11", "vllm", "0.27")
    behavior = read.models["tiny-co"].autoscaling.behavior
    assert (behavior.scale_up.pods, behavior.scale_up.period_seconds, behavior.scale_up.stabilization_seconds) == (
        1,
        180,
        0,
    )
    assert (behavior.scale_down.pods, behavior.scale_down.period_seconds) == (1, 300)
    assert behavior.scale_down.stabilization_seconds == 300
