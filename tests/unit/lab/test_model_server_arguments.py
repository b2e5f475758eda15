"""`vllm serve` of the stand-in takes the real one's command lines and refuses the others."""

import json

import pytest

from lab.stand_ins.model_server import physics
from lab.stand_ins.model_server.arguments import ConfigurationError, parse

GUIDE_PREFILL = [
    "serve",
    "openai/gpt-oss-120b",
    "--disable-access-log-for-endpoints=/health,/metrics,/v1/models",
    "--tensor-parallel-size=1",
    "--block-size=128",
    "--kv-transfer-config",
    '{"kv_connector": "NixlConnector", "kv_role": "kv_both"}',
    "--no-disable-hybrid-kv-cache-manager",
]


def test_the_guides_prefill_arguments_are_taken():
    arguments = parse(GUIDE_PREFILL)
    assert arguments.model == "openai/gpt-oss-120b"
    assert arguments.served_model_names == ("openai/gpt-oss-120b",)
    assert (arguments.host, arguments.port, arguments.block_size) == ("0.0.0.0", 8000, 128)
    assert arguments.kv_connector == "NixlConnector"
    assert arguments.access_log
    assert arguments.access_log_disabled_for == {"/health", "/metrics", "/v1/models"}


@pytest.mark.parametrize(
    "argument",
    [
        "--dtype=bfloat16",
        "--enable-auto-tool-choice",
        "--enable-prefix-caching",
        "--no-enable-prefix-caching",
        "--pipeline-parallel-size=2",
        "--quantization=fp8",
        "--reasoning-parser=openai_gptoss",
        "--revision=abc",
        "--seed=7",
        "--tool-call-parser=openai",
        "--trust-remote-code",
    ],
)
def test_flags_without_an_effect_here_are_taken(argument):
    assert parse(["serve", "lab/tiny", argument]).model == "lab/tiny"


@pytest.mark.parametrize(
    "argv",
    [
        ["--max-model-len", "1024"],
        ["--max-model-len=1024"],
        ["--max_model_len=1024"],
        ["--max-model-len=1K"],
        ["--max-model-len=2048", "--max-model-len=1024"],
    ],
)
def test_a_value_may_follow_its_flag_in_every_form_vllm_knows(argv):
    assert parse(["serve", "lab/tiny", *argv]).max_model_len == 1024


def test_values_reach_the_engine():
    argv = [
        "serve",
        "M",
        "--served-model-name",
        "a",
        "b",
        "--port",
        "8200",
        "-tp",
        "2",
        "--max-num-batched-tokens",
        "8k",
    ]
    arguments = parse(
        [
            *argv,
            "--max-num-seqs=64",
            "--gpu-memory-utilization=0.85",
            "--shutdown-timeout=45",
            "--no-enable-prefix-caching",
        ]
    )
    assert arguments.served_model_names == ("a", "b")
    assert arguments.port == 8200
    assert arguments.tensor_parallel_size == 2
    assert (arguments.max_num_batched_tokens, arguments.max_num_seqs) == (8000, 64)
    assert arguments.gpu_memory_utilization == 0.85
    assert arguments.shutdown_timeout == 45.0
    assert not arguments.prefix_caching


@pytest.mark.parametrize(
    ("argument", "says"),
    [
        ("--max-num-batched-token=8192", "unrecognized arguments: --max-num-batched-token=8192"),
        ("--no-such-flag", "unrecognized arguments: --no-such-flag"),
        ("--block-size=48", "--block-size: invalid choice"),
        ("--dtype=int4", "--dtype: invalid choice"),
        ("--gpu-memory-utilization=1.2", "not in (0, 1]"),
        ("--max-num-seqs=0", "not a whole number of at least 1"),
        ("--port=70000", "not a port"),
        ("--shutdown-timeout=soon", "not a number"),
        ("--kv-transfer-config={", "not JSON"),
        ("--kv-transfer-config=[]", "not a JSON object"),
        ('--kv-transfer-config={"kv_connector":"Nixl","kv_role":"kv_both"}', "kv_connector 'Nixl' is none of"),
        ('--kv-transfer-config={"kv_connector":"NixlConnector","kv_role":"both"}', "kv_role 'both' is none of"),
        ('--kv-transfer-config={"kv_connector":"NixlConnector"}', "kv_role None is none of"),
        ('--kv-transfer-config={"connector":"NixlConnector"}', "unknown key 'connector'"),
        (
            '--kv-transfer-config={"kv_connector":"NixlConnector","kv_port":"x"}',
            "kv_port has a value of the wrong type",
        ),
    ],
)
def test_a_wrong_command_line_ends_with_usage_and_status_2(argument, says, capsys):
    with pytest.raises(SystemExit) as exit_:
        parse(["serve", "lab/tiny", argument])
    assert exit_.value.code == 2
    error = capsys.readouterr().err
    assert "usage: vllm" in error
    assert says in error


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["/no/such/directory"], "neither a directory nor a model id"),
        ([], "no model was given"),
        (["m", "--max-model-len=50000"], "greater than the derived max_model_len"),
        (["m", "--max-num-batched-tokens=128"], "must be greater than or equal to max_num_seqs"),
    ],
)
def test_arguments_that_no_engine_can_start_with_are_refused(argv, says):
    with pytest.raises(ConfigurationError, match=says):
        parse(["serve", *argv])


def test_a_model_directory_needs_a_config(tmp_path):
    with pytest.raises(ConfigurationError, match=r"no readable config\.json"):
        parse(["serve", str(tmp_path)])
    config = tmp_path / "config.json"
    config.write_text("{}")
    with pytest.raises(ConfigurationError, match="neither architectures nor"):
        parse(["serve", str(tmp_path)])
    config.write_text(json.dumps({"architectures": ["X"], "max_position_embeddings": 2048}))
    assert parse(["serve", str(tmp_path)]).max_model_len == 2048


def test_physics_comes_from_the_environment_and_limits_from_the_command_line():
    arguments = parse(["serve", "m", "--block-size=128", "--max-num-seqs=8", "--max-num-batched-tokens=4096"])
    numbers = physics.read({"SIM_PREFILL_TOKENS_PER_SECOND": "1e4", "SIM_LOAD_SECONDS": "2.5"}, arguments)
    assert numbers.load_seconds == 2.5
    assert numbers.engine.prefill_tokens_per_second == 10_000
    assert numbers.engine.transfer_tokens_per_second == 3_244
    assert (numbers.engine.block_size, numbers.engine.max_num_seqs) == (128, 8)
    assert numbers.engine.max_num_batched_tokens == 4096


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SIM_PREFILL_TOKENS_PER_SECOND", "fast"),
        ("SIM_PREFILL_TOKENS_PER_SECOND", "0"),
        ("SIM_KV_TOKENS", "-1"),
        ("SIM_DECODE_BASE_SECONDS", "nan"),
        ("SIM_TRANSFER_TOKENS_PER_SECOND", "inf"),
    ],
)
def test_physics_that_no_engine_has_is_refused(name, value):
    with pytest.raises(physics.PhysicsError, match="SIM_"):
        physics.read({name: value}, parse(["serve", "m"]))
