"""Does each role's vLLM start with the guide's flags and ours?"""

from dataclasses import replace

import pytest

from llmd import dialects, vllm
from llmd.roles import Role
from llmd.vllm import Hub, Server, Variable

VLLM = dialects.engine("vllm", "0.27")
SERVER = Server(
    model="/model-cache/models/Qwen/Qwen3-32B",
    served_name="Qwen/Qwen3-32B",
    dtype="bfloat16",
    max_model_len=32768,
    max_batched_tokens=8192,
    tensor_parallel=2,
    gpu_memory_utilization=0.85,
    shutdown_seconds=66,
)


def test_the_arguments_of_a_prefill_server():
    assert vllm.arguments(Role.PREFILL, SERVER, VLLM) == [
        "/model-cache/models/Qwen/Qwen3-32B",
        "--served-model-name=Qwen/Qwen3-32B",
        "--disable-access-log-for-endpoints=/health,/metrics,/v1/models",
        "--dtype=bfloat16",
        "--max-model-len=32768",
        "--max-num-batched-tokens=8192",
        "--tensor-parallel-size=2",
        "--gpu-memory-utilization=0.85",
        "--block-size=128",
        '--kv-transfer-config={"kv_connector":"NixlConnector","kv_role":"kv_both"}',
        "--no-disable-hybrid-kv-cache-manager",
        "--port=8000",
        "--shutdown-timeout=66",
    ]


def test_decode_differs_by_its_port_alone():
    prefill, decode = (vllm.arguments(role, SERVER, VLLM) for role in (Role.PREFILL, Role.DECODE))
    assert set(prefill) ^ set(decode) == {"--port=8000", "--port=8200"}
    assert vllm.port(Role.DECODE) == 8200


def test_co_located_pods_exchange_no_kv():
    given = vllm.arguments(Role.BOTH, SERVER, VLLM)
    assert [argument for argument in given if "kv" in argument and argument.startswith("--")] == []
    assert "--port=8000" in given


def test_what_is_not_set_is_left_to_vllm():
    bare = replace(SERVER, gpu_memory_utilization=None, shutdown_seconds=None)
    written = " ".join(vllm.arguments(Role.BOTH, bare, VLLM))
    for flag in ("--revision", "--gpu-memory-utilization", "--max-num-seqs", "--shutdown-timeout", "None"):
        assert flag not in written


def test_a_downloading_server_names_its_revision_and_extras_come_last():
    server = replace(SERVER, model="Qwen/Qwen3-32B", revision="9216db5", max_num_seqs=64, extra=("--enforce-eager",))
    given = vllm.arguments(Role.BOTH, server, VLLM)
    assert given[0] == "Qwen/Qwen3-32B"
    assert {"--revision=9216db5", "--max-num-seqs=64"} <= set(given)
    assert given[-1] == "--enforce-eager"


def test_an_engine_that_aborts_on_sigterm_gets_no_shutdown_flag():
    given = vllm.arguments(Role.BOTH, SERVER, replace(VLLM, shutdown_timeout_flag=None))
    assert [argument for argument in given if "shutdown" in argument] == []


def test_a_role_that_moves_kv_says_where_it_can_be_reached():
    for role in (Role.PREFILL, Role.DECODE):
        by_name = {variable.name: variable for variable in vllm.environment(role)}
        assert by_name["VLLM_NIXL_SIDE_CHANNEL_HOST"].field_path == "status.podIP"
        assert by_name["VLLM_NIXL_SIDE_CHANNEL_PORT"].value == "5600"
    assert not any("NIXL" in variable.name for variable in vllm.environment(Role.BOTH))


def test_a_server_with_cached_weights_stays_offline_and_another_gets_the_hub():
    cached = {variable.name: variable for variable in vllm.environment(Role.BOTH)}
    assert cached["HF_HUB_OFFLINE"].value == "1"
    hub = Hub(endpoint="http://hub", token=("hf", "token"))
    loading = {variable.name: variable for variable in vllm.environment(Role.BOTH, hub)}
    assert "HF_HUB_OFFLINE" not in loading
    assert loading["HF_ENDPOINT"].value == "http://hub"
    assert loading["HF_TOKEN"].secret == ("hf", "token")
    public = {variable.name for variable in vllm.environment(Role.BOTH, Hub())}
    assert public & {"HF_HUB_OFFLINE", "HF_ENDPOINT", "HF_TOKEN"} == set()


@pytest.mark.parametrize("sources", [{}, {"value": "1", "field_path": "status.podIP"}])
def test_a_variable_has_exactly_one_source(sources):
    with pytest.raises(ValueError, match="exactly one"):
        Variable(name="X", **sources)
