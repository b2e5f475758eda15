"""Which command lines the routing sidecar of a version accepts.

The real binary of a version knows its own flags only, so the version is baked into the image (STAND_IN_ROUTER_VERSION)
and not a flag.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from lab.stand_ins.go_flags import InvalidOptionsError, port, read

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

VERSIONS = ("0.10", "0.11")
CONNECTORS = ("nixlv2", "shared-storage", "sglang", "mooncake", "offloading")
STAGES = ("prefiller", "decoder", "encoder")


class _Flag(NamedTuple):
    default: Any
    versions: tuple[str, ...] = VERSIONS
    instead: str = ""  # what to use in place of a deprecated flag
    deprecated_in: tuple[str, ...] = ()


_FLAGS: dict[str, _Flag] = {
    "port": _Flag("8000"),
    "model-server-port": _Flag(""),
    "vllm-port": _Flag("8200", instead="model-server-port", deprecated_in=VERSIONS),
    "data-parallel-size": _Flag(1),
    "kv-connector": _Flag("nixlv2"),
    "ec-connector": _Flag(""),
    "secure-serving": _Flag(default=True, versions=("0.11",)),
    "secure-proxy": _Flag(default=True, instead="secure-serving", deprecated_in=("0.11",)),
    "cert-path": _Flag(""),
    "enable-ssrf-protection": _Flag(default=False),
    "inference-pool": _Flag(""),
    "pool-group": _Flag("inference.networking.k8s.io"),
    "enable-prefiller-sampling": _Flag(default=False),
    "enable-tls": _Flag(()),
    "tls-insecure-skip-verify": _Flag(()),
    "tls-min-version": _Flag("", versions=("0.11",)),
    "tls-cipher-suites": _Flag((), versions=("0.11",)),
    "max-idle-conns-per-host": _Flag(1000),
    "prefill-max-retries": _Flag(0),
    "prefill-retry-backoff": _Flag(0.2),
    "decode-chunk-size": _Flag(0),
    "mooncake-bootstrap-port": _Flag(8998),
    "p2p-connector-port": _Flag(7777),
    "enable-p2p-pull": _Flag(default=False),
    "tracing": _Flag(default=False),
    "metrics-port": _Flag(0),
    "metrics-cert-dir": _Flag("", versions=("0.11",)),
    "configuration": _Flag(""),
    "configuration-file": _Flag(""),
    "zap-devel": _Flag(default=False),
    "zap-encoder": _Flag("json"),
    "zap-log-level": _Flag("info"),
    "zap-stacktrace-level": _Flag(""),
    "zap-time-encoding": _Flag(""),
}
# Accepted by the real one, of no use without what they stand for.
_NOT_IN_THE_STAND_IN = ("ec-connector", "enable-tls", "configuration", "configuration-file", "decode-chunk-size")


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
        HelpRequestedError: `-h` or `--help`.
        InvalidOptionsError: a version, connector or combination that cannot run.
    """
    dialect = ".".join(version.split(".")[:2])
    if dialect not in VERSIONS:
        raise InvalidOptionsError(f"STAND_IN_ROUTER_VERSION={version!r}: this stand-in speaks {', '.join(VERSIONS)}")
    flags = {name: flag for name, flag in _FLAGS.items() if dialect in flag.versions}
    defaults = {name: flag.default for name, flag in flags.items()}
    given = read("pd-sidecar", argv, defaults)
    values = defaults | given
    _validate(values)
    secure = values.get("secure-serving", values["secure-proxy"])
    if "secure-serving" not in given:
        secure = given.get("secure-proxy", secure)
    return Options(
        port=port("port", values["port"]),
        model_server_port=port("model-server-port", values["model-server-port"] or values["vllm-port"]),
        secure_serving=secure,
        cert_path=values["cert-path"],
        ssrf_protection=values["enable-ssrf-protection"],
        prefiller_sampling=values["enable-prefiller-sampling"],
        prefill_max_retries=values["prefill-max-retries"],
        prefill_retry_backoff_seconds=values["prefill-retry-backoff"],
        debug_log=values["zap-log-level"] == "debug" or values["zap-log-level"].isdecimal(),
        warnings=tuple(
            f"Flag --{name} has been deprecated, use --{flags[name].instead} instead"
            for name in given
            if dialect in flags[name].deprecated_in
        ),
    )


def _validate(values: Mapping[str, Any]) -> None:
    connector = values["kv-connector"]
    if connector not in CONNECTORS:
        raise InvalidOptionsError(f"--kv-connector must be one of: {', '.join(CONNECTORS)}; got {connector!r}")
    if connector != "nixlv2":
        raise InvalidOptionsError(f"--kv-connector={connector}: this stand-in has nixlv2 only")
    for name in ("enable-tls", "tls-insecure-skip-verify"):
        if not set(values[name]) <= set(STAGES):
            raise InvalidOptionsError(f"--{name} stages must be one of: {', '.join(STAGES)}")
    for name in _NOT_IN_THE_STAND_IN:
        if values[name] != _FLAGS[name].default:
            raise InvalidOptionsError(f"--{name}={values[name]!r}: this stand-in does not have it")
    if values["enable-ssrf-protection"] and not values["inference-pool"]:
        raise InvalidOptionsError("--inference-pool is required when --enable-ssrf-protection is true")
