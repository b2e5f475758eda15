"""Which command line the endpoint picker takes: the real program's names, types and defaults."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lab.stand_ins.go_flags import InvalidOptionsError, port, read

POOL_GROUP = "inference.networking.k8s.io"

_DEFAULTS: dict[str, Any] = {
    # strings
    "pool-name": "",
    "pool-namespace": "",
    "pool-group": POOL_GROUP,
    "endpoint-selector": "",
    "endpoint-target-ports": "",
    "config-file": "",
    "config-text": "",
    "cert-path": "",
    "tls-min-version": "",
    "tls-cipher-suites": "",
    "metrics-cert-dir": "",
    "metrics-client-ca-file": "",
    "zap-encoder": "console",
    "zap-log-level": "",
    "zap-stacktrace-level": "",
    "zap-time-encoding": "",
    # booleans
    "ha-enable-leader-election": False,
    "secure-serving": True,
    "enable-cert-reload": False,
    "metrics-endpoint-auth": True,
    "enable-pprof": True,
    "tracing": True,
    "health-checking": False,
    "allow-experimental-plugins": False,
    "disable-endpoint-subset-filter": False,
    "emit-endpoint-scores": False,
    "enable-grpc-stream-metrics": False,
    "zap-devel": False,
    # whole numbers
    "grpc-port": 9002,
    "grpc-health-port": 9003,
    "metrics-port": 9090,
    "grpc-max-recv-msg-size": 0,
    "grpc-max-send-msg-size": 0,
    "v": 0,
    # durations, in seconds
    "drain-timeout": 30.0,
    "refresh-metrics-interval": 0.05,
    "refresh-prometheus-metrics-interval": 5.0,
    "metrics-staleness-threshold": 2.0,
}
_NO_LONGER_READ = {
    "total-queued-requests-metric",
    "total-running-requests-metric",
    "kv-cache-usage-percentage-metric",
    "lora-info-metric",
    "cache-info-metric",
}


@dataclass(frozen=True, kw_only=True)
class Flags:
    """The command line, checked; durations in seconds. Flags without a field here are accepted and change nothing."""

    pool_name: str
    pool_namespace: str
    config_file: str
    config_text: str
    grpc_port: int
    grpc_health_port: int
    metrics_port: int
    secure_serving: bool
    cert_path: str
    metrics_endpoint_auth: bool
    ha_enable_leader_election: bool
    drain_timeout: float
    refresh_metrics_interval: float
    refresh_prometheus_metrics_interval: float
    metrics_staleness_threshold: float
    grpc_max_recv_msg_size: int
    grpc_max_send_msg_size: int
    json_logs: bool
    verbosity: int


def parse(arguments: Sequence[str], environment: Mapping[str, str]) -> Flags:
    """The command line `arguments` (without the program's name) as `Flags`.

    The pool's namespace is, in this order, `--pool-namespace`, the environment variable `NAMESPACE`, or `default`.

    Raises:
        FlagError: It is refused.
        HelpRequestedError: `-h` or `--help`.
    """
    given = read("epp", arguments, _DEFAULTS | dict.fromkeys(_NO_LONGER_READ, ""), shorthands="v")
    values = _DEFAULTS | given
    _check(values, given)
    return Flags(
        pool_name=values["pool-name"],
        pool_namespace=values["pool-namespace"] or environment.get("NAMESPACE", "") or "default",
        config_file=values["config-file"],
        config_text=values["config-text"],
        grpc_port=port("grpc-port", values["grpc-port"]),
        grpc_health_port=port("grpc-health-port", values["grpc-health-port"]),
        metrics_port=port("metrics-port", values["metrics-port"]),
        secure_serving=values["secure-serving"],
        cert_path=values["cert-path"],
        metrics_endpoint_auth=values["metrics-endpoint-auth"],
        ha_enable_leader_election=values["ha-enable-leader-election"],
        drain_timeout=values["drain-timeout"],
        refresh_metrics_interval=values["refresh-metrics-interval"],
        refresh_prometheus_metrics_interval=values["refresh-prometheus-metrics-interval"],
        metrics_staleness_threshold=values["metrics-staleness-threshold"],
        grpc_max_recv_msg_size=values["grpc-max-recv-msg-size"],
        grpc_max_send_msg_size=values["grpc-max-send-msg-size"],
        json_logs=values["zap-encoder"] == "json",
        verbosity=values["v"],
    )


def _check(values: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Refuse what parses but makes no sense, or what this stand-in lacks."""
    objections = {
        f"--{name} is no longer read: set engineConfigs of core-metrics-extractor": True
        for name in given
        if name in _NO_LONGER_READ
    } | {
        "give exactly one of --pool-name and --endpoint-selector": (
            bool(values["pool-name"]) == bool(values["endpoint-selector"])
        ),
        "--endpoint-selector: this stand-in finds endpoints by --pool-name only": bool(values["endpoint-selector"]),
        f"--pool-group {values['pool-group']!r}: only {POOL_GROUP} is served": values["pool-group"] != POOL_GROUP,
        "give at most one of --config-file and --config-text": bool(values["config-file"] and values["config-text"]),
        "--refresh-metrics-interval: 50ms is the least": (
            values["refresh-metrics-interval"] < _DEFAULTS["refresh-metrics-interval"]
        ),
        f"--zap-encoder {values['zap-encoder']!r}: json or console": values["zap-encoder"] not in {"json", "console"},
    }
    for name in ("metrics-cert-dir", "metrics-client-ca-file"):
        objections[f"--{name}: this stand-in serves metrics over plain HTTP only"] = bool(values[name])
    for message, objects in objections.items():
        if objects:
            raise InvalidOptionsError(message)
