"""What differs between versions of the router and the inference engine: flags, config API and metric names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


class UnknownDialectError(ValueError):
    """A version (or engine) of which we know no dialect; the message lists the known ones."""

    def __init__(self, what: str, value: str, known: Iterable[str]) -> None:
        super().__init__(f"{what} {value!r} is unknown; known: {', '.join(known)}")
        self.value = value


@dataclass(frozen=True, kw_only=True)
class RouterDialect:
    """One minor version of llm-d-router (endpoint picker and routing sidecar, which are released together)."""

    version: str
    config_api_version: str  # apiVersion of EndpointPickerConfig
    sidecar_secure_flag: str  # routing sidecar: TLS on its own port
    prunes_inflight: bool  # whether in-flight series of departed pods are deleted; the queries do not rely on it
    sidecar_port_flag: str = "--model-server-port"  # routing sidecar: port of the model server behind it
    inflight_tokens: str = "llm_d_epp_inflight_tokens"
    inflight_requests: str = "llm_d_epp_inflight_requests"
    endpoint_queue: str = "llm_d_epp_per_endpoint_queue_size"
    disagg_decisions: str = "llm_d_epp_disagg_decision_total"
    inflight_producer: str = "inflight-load-producer"  # label producer_name = the plugin's instance name


@dataclass(frozen=True, kw_only=True)
class EngineDialect:
    """One minor version of an inference engine."""

    name: str
    version: str
    kv_usage: str  # gauge, 0..1 of the KV cache, per pod (and engine)
    running: str  # gauge, requests in the batch
    waiting: str  # gauge, requests in the queue
    waiting_by_reason: str | None  # gauge with label `reason`; None where the engine does not export it
    request_success: str  # counter with label `finished_reason`: requests answered to their end
    shutdown_timeout_flag: str | None  # seconds to let running requests end after SIGTERM; None where it aborts at once


_ROUTERS = {
    "0.10": RouterDialect(
        version="0.10",
        config_api_version="llm-d.ai/v1alpha1",
        sidecar_secure_flag="--secure-proxy",
        prunes_inflight=False,
    ),
    "0.11": RouterDialect(
        version="0.11",
        config_api_version="llm-d.ai/v1",
        sidecar_secure_flag="--secure-serving",
        prunes_inflight=True,
    ),
}


def _vllm(version: str) -> EngineDialect:
    return EngineDialect(
        name="vllm",
        version=version,
        kv_usage="vllm:kv_cache_usage_perc",
        running="vllm:num_requests_running",
        waiting="vllm:num_requests_waiting",
        waiting_by_reason="vllm:num_requests_waiting_by_reason",
        request_success="vllm:request_success_total",
        shutdown_timeout_flag="--shutdown-timeout",
    )


_ENGINES = {"vllm": {version: _vllm(version) for version in ("0.26", "0.27", "0.30")}}


def router(version: str) -> RouterDialect:
    """Dialect of a router version such as "0.11", "0.11.0" or "v0.11.0" (the patch number never matters).

    Raises:
        UnknownDialectError: listing the known versions.
    """
    dialect = _ROUTERS.get(_minor(version))
    if dialect is None:
        raise UnknownDialectError("router version", version, _ROUTERS)
    return dialect


def engine(name: str, version: str) -> EngineDialect:
    """Dialect of an engine such as ("vllm", "0.27").

    Raises:
        UnknownDialectError: listing the known engines or versions.
    """
    versions = _ENGINES.get(name)
    if versions is None:
        raise UnknownDialectError("engine", name, _ENGINES)
    dialect = versions.get(_minor(version))
    if dialect is None:
        raise UnknownDialectError(f"{name} version", version, versions)
    return dialect


def _minor(version: str) -> str:
    return ".".join(version.removeprefix("v").split(".")[:2])
