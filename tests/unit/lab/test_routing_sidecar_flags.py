"""The sidecar stand-in takes the flags that the real one of its version has, and no others."""

import pytest

from lab.stand_ins.go_flags import InvalidOptionsError, UsageError
from lab.stand_ins.routing_sidecar.flags import parse


def test_defaults_are_the_real_ones():
    options = parse([], "0.11.0")
    assert (options.port, options.model_server_port) == (8000, 8200)
    assert options.secure_serving
    assert not options.ssrf_protection
    assert (options.prefill_max_retries, options.prefill_retry_backoff_seconds) == (0, 0.2)
    assert options.warnings == ()


def test_the_guides_flags_of_0_10_are_taken():
    options = parse(["--port=8000", "--kv-connector=nixlv2", "--zap-log-level=1", "--secure-proxy=false"], "0.10.0")
    assert not options.secure_serving
    assert options.debug_log
    assert options.warnings == ()


def test_the_guides_flags_of_0_11_are_taken():
    options = parse(["--secure-serving=false", "--model-server-port", "8300"], "0.11.0")
    assert not options.secure_serving
    assert options.model_server_port == 8300


def test_deprecated_names_still_work_and_say_what_to_use():
    options = parse(["--secure-proxy=false", "--vllm-port=8300"], "0.11.0")
    assert not options.secure_serving
    assert options.model_server_port == 8300
    assert options.warnings == (
        "Flag --secure-proxy has been deprecated, use --secure-serving instead",
        "Flag --vllm-port has been deprecated, use --model-server-port instead",
    )


def test_the_new_port_name_wins_over_the_old_one():
    assert parse(["--vllm-port=1", "--model-server-port=2"], "0.10.0").model_server_port == 2


@pytest.mark.parametrize(
    ("argv", "version", "says"),
    [
        (["--connector=nixlv2"], "0.10", "unknown flag: --connector"),
        (["--connector=nixlv2"], "0.11", "unknown flag: --connector"),
        (["--prefiller-use-tls"], "0.10", "unknown flag: --prefiller-use-tls"),
        (["--secure-serving=false"], "0.10", "unknown flag: --secure-serving"),
        (["--tls-min-version=VersionTLS13"], "0.10", "unknown flag: --tls-min-version"),
        (["--prefill-max-retries=few"], "0.11", "invalid argument"),
        (["--prefill-retry-backoff=5"], "0.11", "not a duration"),
    ],
)
def test_a_wrong_command_line_is_a_usage_error(argv, version, says):
    with pytest.raises(UsageError, match=says):
        parse(argv, version)


@pytest.mark.parametrize(
    ("argv", "version", "says"),
    [
        ([], "0.9.0", "speaks 0.10, 0.11"),
        (["--kv-connector=nixl"], "0.11", "must be one of: nixlv2"),
        (["--kv-connector=sglang"], "0.11", "has nixlv2 only"),
        (["--enable-tls=prefill"], "0.11", "stages must be one of"),
        (["--enable-tls=prefiller"], "0.11", "does not have it"),
        (["--enable-ssrf-protection"], "0.11", "--inference-pool is required"),
        (["--port=http"], "0.11", "not a port"),
    ],
)
def test_options_that_cannot_run_are_refused(argv, version, says):
    with pytest.raises(InvalidOptionsError, match=says):
        parse(argv, version)
