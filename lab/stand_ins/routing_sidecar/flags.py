"""Which command lines the routing sidecar of a version accepts.

The real binary of a version knows its own flags only, so the version is baked into the image (STAND_IN_ROUTER_VERSION)
and not a flag. As pflag does it: `--flag=value` or `--flag value`, a bare switch is true, `--switch false` is not a
value of it, an unknown flag or a bad value is exit status 2; values that do not fit together are exit status 1.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

VERSIONS = ("0.10", "0.11")
CONNECTORS = ("nixlv2", "shared-storage", "sglang", "mooncake", "offloading")
STAGES = ("prefiller", "decoder", "encoder")


class UsageError(Exception):
    """The command line itself is wrong: exit status 2."""


class InvalidOptionsError(Exception):
    """Every flag is known, but the sidecar cannot run like this: exit status 1."""


class _Flag(NamedTuple):
    kind: str  # text | switch | number | duration | list
    default: str
    versions: tuple[str, ...] = VERSIONS
    instead: str = ""  # what to use in place of a deprecated flag
    deprecated_in: tuple[str, ...] = ()


_FLAGS: dict[str, _Flag] = {
    "port": _Flag("text", "8000"),
    "model-server-port": _Flag("text", ""),
    "vllm-port": _Flag("text", "8200", instead="model-server-port", deprecated_in=VERSIONS),
    "data-parallel-size": _Flag("number", "1"),
    "kv-connector": _Flag("text", "nixlv2"),
    "ec-connector": _Flag("text", ""),
    "secure-serving": _Flag("switch", "true", versions=("0.11",)),
    "secure-proxy": _Flag("switch", "true", instead="secure-serving", deprecated_in=("0.11",)),
    "cert-path": _Flag("text", ""),
    "enable-ssrf-protection": _Flag("switch", "false"),
    "inference-pool": _Flag("text", ""),
    "pool-group": _Flag("text", "inference.networking.k8s.io"),
    "enable-prefiller-sampling": _Flag("switch", "false"),
    "enable-tls": _Flag("list", ""),
    "tls-insecure-skip-verify": _Flag("list", ""),
    "tls-min-version": _Flag("text", "", versions=("0.11",)),
    "tls-cipher-suites": _Flag("list", "", versions=("0.11",)),
    "max-idle-conns-per-host": _Flag("number", "1000"),
    "prefill-max-retries": _Flag("number", "0"),
    "prefill-retry-backoff": _Flag("duration", "200ms"),
    "decode-chunk-size": _Flag("number", "0"),
    "mooncake-bootstrap-port": _Flag("number", "8998"),
    "p2p-connector-port": _Flag("number", "7777"),
    "enable-p2p-pull": _Flag("switch", "false"),
    "tracing": _Flag("switch", "false"),
    "metrics-port": _Flag("number", "0"),
    "metrics-cert-dir": _Flag("text", "", versions=("0.11",)),
    "configuration": _Flag("text", ""),
    "configuration-file": _Flag("text", ""),
    "zap-devel": _Flag("switch", "false"),
    "zap-encoder": _Flag("text", "json"),
    "zap-log-level": _Flag("text", "info"),
    "zap-stacktrace-level": _Flag("text", ""),
    "zap-time-encoding": _Flag("text", ""),
}
# Accepted by the real one, of no use without what they stand for.
_NOT_IN_THE_STAND_IN = ("ec-connector", "enable-tls", "configuration", "configuration-file", "decode-chunk-size")
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True, kw_only=True)
class Options:
    """What one sidecar does."""

    port: int
    model_server_port: int
    secure_serving: bool
    cert_path: str
    ssrf_protection: bool
    prefiller_sampling: bool
    prefill_max_retries: int
    prefill_retry_backoff_seconds: float
    debug_log: bool
    warnings: tuple[str, ...]


def parse(argv: Sequence[str], version: str) -> Options:
    """Options of a sidecar of `version` ("0.10" or "0.11", with any patch) from `argv` (without the program name).

    Raises:
        UsageError: unknown flag, bad value or a stray argument.
        InvalidOptionsError: a version, connector or combination that cannot run.
    """
    dialect = ".".join(version.split(".")[:2])
    if dialect not in VERSIONS:
        raise InvalidOptionsError(f"STAND_IN_ROUTER_VERSION={version!r}: this stand-in speaks {', '.join(VERSIONS)}")
    flags = {name: flag for name, flag in _FLAGS.items() if dialect in flag.versions}
    given = _read(argv, flags)
    values = {name: given.get(name, flag.default) for name, flag in flags.items()}
    for name, flag in flags.items():
        _check(name, flag, values[name])
    _validate(values)
    secure = values.get("secure-serving", values["secure-proxy"])
    if "secure-proxy" in given and "secure-serving" not in given:
        secure = given["secure-proxy"]
    return Options(
        port=_port("port", values["port"]),
        model_server_port=_port("model-server-port", _model_server_port(given, values)),
        secure_serving=_switch(secure),
        cert_path=values["cert-path"],
        ssrf_protection=_switch(values["enable-ssrf-protection"]),
        prefiller_sampling=_switch(values["enable-prefiller-sampling"]),
        prefill_max_retries=int(values["prefill-max-retries"]),
        prefill_retry_backoff_seconds=_duration(values["prefill-retry-backoff"]),
        debug_log=values["zap-log-level"] == "debug" or values["zap-log-level"].isdecimal(),
        warnings=tuple(
            f"Flag --{name} has been deprecated, use --{flags[name].instead} instead"
            for name in given
            if dialect in flags[name].deprecated_in
        ),
    )


def usage(version: str) -> str:
    """The flags of `version`, one a line."""
    dialect = ".".join(version.split(".")[:2])
    lines = [f"      --{name} {flag.kind}" for name, flag in sorted(_FLAGS.items()) if dialect in flag.versions]
    return "\n".join(["Usage of pd-sidecar:", *lines])


def _read(argv: Sequence[str], flags: Mapping[str, _Flag]) -> dict[str, str]:
    given: dict[str, str] = {}
    rest = list(argv)
    while rest:
        argument = rest.pop(0)
        if not argument.startswith("--"):
            raise UsageError(f"unknown argument {argument!r}")
        name, equals, value = argument[2:].partition("=")
        if name not in flags:
            raise UsageError(f"unknown flag: --{name}")
        if not equals:
            if flags[name].kind == "switch":
                value = "true"
            elif rest:
                value = rest.pop(0)
            else:
                raise UsageError(f"flag needs an argument: --{name}")
        # A list may be given several times and then grows; of anything else the last one counts.
        given[name] = f"{given[name]},{value}" if flags[name].kind == "list" and given.get(name) else value
    return given


def _check(name: str, flag: _Flag, value: str) -> None:
    try:
        if flag.kind == "switch":
            _switch(value)
        elif flag.kind == "number":
            int(value)
        elif flag.kind == "duration":
            _duration(value)
    except ValueError as error:
        raise UsageError(f'invalid argument "{value}" for "--{name}" flag: {error}') from error


def _validate(values: Mapping[str, str]) -> None:
    connector = values["kv-connector"]
    if connector not in CONNECTORS:
        raise InvalidOptionsError(f"--kv-connector must be one of: {', '.join(CONNECTORS)}; got {connector!r}")
    if connector != "nixlv2":
        raise InvalidOptionsError(f"--kv-connector={connector}: this stand-in has nixlv2 only")
    for name in ("enable-tls", "tls-insecure-skip-verify"):
        if not set(filter(None, values[name].split(","))) <= set(STAGES):
            raise InvalidOptionsError(f"--{name} stages must be one of: {', '.join(STAGES)}")
    for name in _NOT_IN_THE_STAND_IN:
        if values[name] != _FLAGS[name].default:
            raise InvalidOptionsError(f"--{name}={values[name]}: this stand-in does not have it")
    if _switch(values["enable-ssrf-protection"]) and not values["inference-pool"]:
        raise InvalidOptionsError("--inference-pool is required when --enable-ssrf-protection is true")


def _model_server_port(given: Mapping[str, str], values: Mapping[str, str]) -> str:
    if given.get("model-server-port"):
        return given["model-server-port"]
    return values["vllm-port"]


def _port(name: str, value: str) -> int:
    if not value.isdecimal() or int(value) not in range(1, 65536):
        raise InvalidOptionsError(f"--{name}={value!r} is not a port")
    return int(value)


def _switch(value: str) -> bool:
    """As Go's strconv.ParseBool."""
    if value in {"1", "t", "T", "true", "TRUE", "True"}:
        return True
    if value in {"0", "f", "F", "false", "FALSE", "False"}:
        return False
    raise ValueError("not a boolean")


def _duration(value: str) -> float:
    """Seconds of a Go duration such as `1m30s` or `200ms`."""
    parts = re.findall(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h)", value)
    if value != "0" and "".join(number + unit for number, unit in parts) != value:
        raise ValueError("not a duration")
    return sum(float(number) * _UNITS[unit] for number, unit in parts)
