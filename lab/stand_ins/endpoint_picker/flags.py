"""Which command line the endpoint picker takes.

The names, types and defaults are the real program's, and its parser's habits too: `--flag=value` or `--flag value`, a
boolean alone is true, `-v 2`, `-v2` and `--v=2` are one. An unknown flag or a value of the wrong type ends the program
with status 2, a combination that makes no sense with status 1.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

USAGE_STATUS = 2
INVALID_STATUS = 1
_PORTS = 2**16

POOL_GROUP = "inference.networking.k8s.io"


class FlagError(ValueError):
    """A command line that the endpoint picker refuses.

    Attributes:
        status: Exit status of the program.
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class HelpRequestedError(Exception):
    """`--help`: the message is the usage text."""


_DEFAULTS: dict[str, str | bool | int | float] = {
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
}
_DURATIONS: dict[str, float] = {  # seconds
    "drain-timeout": 30.0,
    "refresh-metrics-interval": 0.05,
    "refresh-prometheus-metrics-interval": 5.0,
    "metrics-staleness-threshold": 2.0,
}
_DEPRECATED = {
    "total-queued-requests-metric",
    "total-running-requests-metric",
    "kv-cache-usage-percentage-metric",
    "lora-info-metric",
    "cache-info-metric",
}
_BOOLEANS = {"1": True, "t": True, "true": True, "0": False, "f": False, "false": False}
_DURATION_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION_PART = re.compile(r"([0-9]*\.?[0-9]+)(ns|us|µs|ms|s|m|h)")


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


def duration_seconds(text: str) -> float:
    """Seconds of a duration written as `30s`, `50ms` or `1m30s`.

    Raises:
        ValueError: It is not written so.
    """
    if text in {"0", "+0", "-0"}:
        return 0.0
    position, total = 0, 0.0
    for part in _DURATION_PART.finditer(text):
        if part.start() != position:
            break
        total += float(part[1]) * _DURATION_UNITS[part[2]]
        position = part.end()
    if not text or position != len(text):
        raise ValueError(f"invalid duration {text!r}")
    return total


def usage() -> str:
    """One line for each flag, with its default."""
    rows = [f"      --{name} (default {default!r})" for name, default in sorted({**_DEFAULTS, **_DURATIONS}.items())]
    return "Usage of epp:\n" + "\n".join(rows)


def parse(arguments: Sequence[str], environment: Mapping[str, str]) -> Flags:
    """The command line `arguments` (without the program's name) as `Flags`.

    The pool's namespace is, in this order, `--pool-namespace`, the environment variable `NAMESPACE`, or `default`.

    Raises:
        FlagError: See the module's first lines.
        HelpRequestedError: `-h` or `--help`.
    """
    values: dict[str, str | bool | int | float] = {**_DEFAULTS, **_DURATIONS}
    given: set[str] = set()
    waiting = list(arguments)
    while waiting:
        name, text = _next(waiting)
        given.add(name)
        if name not in _DEPRECATED:
            values[name] = _convert(name, text)
    _check(values, given)
    return Flags(
        pool_name=str(values["pool-name"]),
        pool_namespace=str(values["pool-namespace"]) or environment.get("NAMESPACE", "") or "default",
        config_file=str(values["config-file"]),
        config_text=str(values["config-text"]),
        grpc_port=int(values["grpc-port"]),
        grpc_health_port=int(values["grpc-health-port"]),
        metrics_port=int(values["metrics-port"]),
        secure_serving=bool(values["secure-serving"]),
        cert_path=str(values["cert-path"]),
        metrics_endpoint_auth=bool(values["metrics-endpoint-auth"]),
        ha_enable_leader_election=bool(values["ha-enable-leader-election"]),
        drain_timeout=float(values["drain-timeout"]),
        refresh_metrics_interval=float(values["refresh-metrics-interval"]),
        refresh_prometheus_metrics_interval=float(values["refresh-prometheus-metrics-interval"]),
        metrics_staleness_threshold=float(values["metrics-staleness-threshold"]),
        grpc_max_recv_msg_size=int(values["grpc-max-recv-msg-size"]),
        grpc_max_send_msg_size=int(values["grpc-max-send-msg-size"]),
        json_logs=values["zap-encoder"] == "json",
        verbosity=int(values["v"]),
    )


def _next(waiting: list[str]) -> tuple[str, str]:
    """Take one flag, and its value where that is a word of its own, off the front."""
    word = waiting.pop(0)
    if word in {"-h", "--help"}:
        raise HelpRequestedError(usage())
    if word.startswith("--") and len(word) > len("--"):
        name, has_value, text = word[2:].partition("=")
    elif word.startswith("-v"):
        name, has_value, text = "v", word[2:], word[2:].removeprefix("=")
    elif word.startswith("-") and len(word) > 1:
        raise FlagError(f"unknown shorthand flag: {word[1]!r} in {word}", USAGE_STATUS)
    else:
        raise FlagError(f"unexpected argument {word!r}: the endpoint picker takes flags only", USAGE_STATUS)
    if name not in _DEFAULTS and name not in _DURATIONS and name not in _DEPRECATED:
        raise FlagError(f"unknown flag: --{name}", USAGE_STATUS)
    if not has_value:
        if isinstance(_DEFAULTS.get(name), bool):
            return name, "true"
        if not waiting:
            raise FlagError(f"flag needs an argument: --{name}", USAGE_STATUS)
        text = waiting.pop(0)
    return name, text


def _convert(name: str, text: str) -> str | bool | int | float:
    """`text` as the flag's type."""
    try:
        if name in _DURATIONS:
            return duration_seconds(text)
        default = _DEFAULTS[name]
        if isinstance(default, bool):
            return _BOOLEANS[text.lower()]
        if isinstance(default, int):
            return int(text)
    except (ValueError, KeyError):
        raise FlagError(f"invalid argument {text!r} for --{name}", USAGE_STATUS) from None
    else:
        return text


def _check(values: Mapping[str, str | bool | int | float], given: set[str]) -> None:
    """Refuse what parses but makes no sense, or what this stand-in lacks."""
    objections = {
        f"--{name} is no longer read: set engineConfigs of core-metrics-extractor": True for name in given & _DEPRECATED
    } | {
        "give exactly one of --pool-name and --endpoint-selector": (
            bool(values["pool-name"]) == bool(values["endpoint-selector"])
        ),
        "--endpoint-selector: this stand-in finds endpoints by --pool-name only": bool(values["endpoint-selector"]),
        f"--pool-group {values['pool-group']!r}: only {POOL_GROUP} is served": values["pool-group"] != POOL_GROUP,
        "give at most one of --config-file and --config-text": bool(values["config-file"] and values["config-text"]),
        "--refresh-metrics-interval: 50ms is the least": (
            float(values["refresh-metrics-interval"]) < _DURATIONS["refresh-metrics-interval"]
        ),
        f"--zap-encoder {values['zap-encoder']!r}: json or console": values["zap-encoder"] not in {"json", "console"},
    }
    for name in ("metrics-cert-dir", "metrics-client-ca-file"):
        objections[f"--{name}: this stand-in serves metrics over plain HTTP only"] = bool(values[name])
    for name in ("grpc-port", "grpc-health-port", "metrics-port"):
        objections[f"--{name} {values[name]}: not a port"] = not 0 < int(values[name]) < _PORTS
    for message, objects in objections.items():
        if objects:
            raise FlagError(message, INVALID_STATUS)
