"""The endpoint picker's command line."""

import pytest

from lab.stand_ins.endpoint_picker.flags import parse
from lab.stand_ins.go_flags import FlagError, HelpRequestedError

POOL = ("--pool-name", "qwen")


def test_defaults_are_the_real_ones():
    flags = parse(POOL, {})
    assert (flags.grpc_port, flags.grpc_health_port, flags.metrics_port) == (9002, 9003, 9090)
    assert (flags.secure_serving, flags.metrics_endpoint_auth, flags.ha_enable_leader_election) == (True, True, False)
    assert (flags.drain_timeout, flags.refresh_metrics_interval, flags.metrics_staleness_threshold) == (30, 0.05, 2)
    assert flags.refresh_prometheus_metrics_interval == 5
    assert (flags.pool_name, flags.pool_namespace) == ("qwen", "default")


def test_the_arguments_of_the_chart_are_taken():
    flags = parse(
        (
            *("--pool-name", "qwen", "--pool-namespace", "llm", "--pool-group", "inference.networking.k8s.io"),
            *("--zap-encoder", "json", "--config-file", "/config/pd-config.yaml", "--grpc-health-port", "9003"),
            *("--v=2", "--tracing=false", "--metrics-endpoint-auth=false", "--ha-enable-leader-election"),
        ),
        {"NAMESPACE": "elsewhere"},
    )
    assert (flags.pool_namespace, flags.config_file, flags.verbosity, flags.json_logs) == (
        "llm",
        "/config/pd-config.yaml",
        2,
        True,
    )
    assert (flags.metrics_endpoint_auth, flags.ha_enable_leader_election) == (False, True)


def test_the_namespace_comes_from_the_environment_when_the_flag_is_absent():
    assert parse(POOL, {"NAMESPACE": "mine"}).pool_namespace == "mine"


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (("--endpoint-pool=x",), 2, "unknown flag: --endpoint-pool"),
        (("--grpc-port=many",), 2, "invalid argument 'many' for --grpc-port"),
        (("--drain-timeout=30",), 2, "invalid argument '30' for --drain-timeout"),
        (("--lora-info-metric=x",), 1, "--lora-info-metric is no longer read"),
        (("--endpoint-selector=a=b",), 1, "exactly one of"),
        (("--pool-group=inference.networking.x-k8s.io",), 1, "only inference.networking.k8s.io"),
        (("--config-file=a", "--config-text=b"), 1, "at most one of"),
        (("--refresh-metrics-interval=10ms",), 1, "50ms is the least"),
        (("--zap-encoder=xml",), 1, "json or console"),
        (("--metrics-cert-dir=/certs",), 1, "plain HTTP only"),
        (("--metrics-port=70000",), 1, "not a port"),
    ],
)
def test_refusals_name_the_flag_and_set_the_status(words, status, message):
    with pytest.raises(FlagError) as refused:
        parse((*POOL, *words), {})
    assert message in str(refused.value)
    assert refused.value.status == status


def test_selector_mode_is_refused_as_missing_here():
    with pytest.raises(FlagError, match="by --pool-name only"):
        parse(("--endpoint-selector", "app=x"), {})


def test_help_lists_every_flag():
    with pytest.raises(HelpRequestedError, match="--refresh-prometheus-metrics-interval"):
        parse(("--help",), {})
