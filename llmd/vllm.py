"""With which arguments and environment a vLLM model server starts."""

from __future__ import annotations

import json
from dataclasses import dataclass

from llmd.dialects import EngineDialect
from llmd.roles import Role

COMMAND = ("vllm", "serve")
# Tokens of a KV block: the upstream P/D guide's, large enough that a transfer is not bound by its number of blocks.
BLOCK_SIZE = 128
# Of prefill and co-located pods, and of the sidecar in front of decode: what the InferencePool targets
SERVING_PORT = 8000
DECODE_PORT = 8200  # behind the sidecar
NIXL_PORT = 5600  # side channel of the KV transfer; vLLM's default
# Above the 90 s for which the sidecar's HTTP client keeps an idle connection; vLLM's own 5 s cause resets
KEEP_ALIVE_SECONDS = 120

_QUIET = "/health,/metrics,/v1/models"  # probes and scrapes would drown the access log
_KV_TRANSFER = {"kv_connector": "NixlConnector", "kv_role": "kv_both"}
HOME = "/tmp"  # noqa: S108 - inside a container: the one path that an arbitrary user id may write
MODEL_CACHE = "/model-cache"  # where the claim with the weights is mounted


@dataclass(frozen=True, kw_only=True)
class Variable:
    """One environment variable: a plain value, a field of the pod, or a key of a Secret (exactly one of them)."""

    name: str
    value: str | None = None
    field_path: str | None = None  # e.g. status.podIP
    secret: tuple[str, str] | None = None  # Secret name, key

    def __post_init__(self) -> None:
        if sum(source is not None for source in (self.value, self.field_path, self.secret)) != 1:
            raise ValueError(f"{self.name}: an environment variable has exactly one of value, field_path and secret")


@dataclass(frozen=True, kw_only=True)
class Server:
    """What a role's model server serves and with how much."""

    model: str  # positional argument: model id, or path of the cached weights
    served_name: str
    revision: str | None = None  # commit of the model id; None for a path
    dtype: str = "auto"
    max_model_len: int  # tokens
    max_batched_tokens: int  # tokens per step: the chunk of a prefill, and of its calibration
    tensor_parallel: int  # GPUs
    gpu_memory_utilization: float | None = None  # None: vLLM's default
    max_num_seqs: int | None = None  # None: vLLM's default
    shutdown_seconds: int | None = None  # how long running requests may end after SIGTERM; None: they are aborted
    block_size: int = BLOCK_SIZE
    extra: tuple[str, ...] = ()  # further arguments, last and as they are


@dataclass(frozen=True, kw_only=True)
class Hub:
    """A Hugging Face hub from which weights are downloaded."""

    endpoint: str | None = None  # None: the public one
    token: tuple[str, str] | None = None  # Secret name, key

    def variables(self) -> list[Variable]:
        """What the hub's client reads."""
        found = []
        if self.endpoint is not None:
            found.append(Variable(name="HF_ENDPOINT", value=self.endpoint))
        if self.token is not None:
            found.append(Variable(name="HF_TOKEN", secret=self.token))
        return found


def port(role: Role) -> int:
    """Port on which the role's vLLM listens: 8200 behind the decode sidecar, else 8000."""
    return DECODE_PORT if role is Role.DECODE else SERVING_PORT


def arguments(role: Role, server: Server, engine: EngineDialect) -> list[str]:
    """Arguments after `vllm serve`.

    Prefill and decode exchange KV blocks over NIXL; co-located pods exchange nothing.
    """
    flags: list[tuple[str, object]] = [
        ("--served-model-name", server.served_name),
        ("--revision", server.revision),
        ("--disable-access-log-for-endpoints", _QUIET),
        ("--dtype", server.dtype),
        ("--max-model-len", server.max_model_len),
        ("--max-num-batched-tokens", server.max_batched_tokens),
        ("--max-num-seqs", server.max_num_seqs),
        ("--tensor-parallel-size", server.tensor_parallel),
        ("--gpu-memory-utilization", server.gpu_memory_utilization),
        ("--block-size", server.block_size),
    ]
    transfer: list[str] = []
    if role is not Role.BOTH:
        flags.append(("--kv-transfer-config", json.dumps(_KV_TRANSFER, separators=(",", ":"))))
        transfer = ["--no-disable-hybrid-kv-cache-manager"]
    end: list[tuple[str, object]] = [("--port", port(role))]
    if engine.shutdown_timeout_flag:
        end.append((engine.shutdown_timeout_flag, server.shutdown_seconds))
    return [server.model, *_written(flags), *transfer, *_written(end), *server.extra]


def environment(role: Role, hub: Hub | None = None) -> list[Variable]:
    """Environment of the role's vLLM container.

    `hub` is None where the weights are in the cache, and then vLLM stays offline.
    """
    variables = [
        *home(),
        Variable(name="USER", value="llm-d"),  # an arbitrary user id has no name, and getpass would fail
        Variable(name="VLLM_HTTP_TIMEOUT_KEEP_ALIVE", value=str(KEEP_ALIVE_SECONDS)),
    ]
    if role is not Role.BOTH:
        variables.append(Variable(name="VLLM_NIXL_SIDE_CHANNEL_HOST", field_path="status.podIP"))
        variables.append(Variable(name="VLLM_NIXL_SIDE_CHANNEL_PORT", value=str(NIXL_PORT)))
    return [*variables, *(hub.variables() if hub is not None else [Variable(name="HF_HUB_OFFLINE", value="1")])]


def home() -> list[Variable]:
    """Where a container writes what it keeps for itself, also without a home of its user's own."""
    return [Variable(name="HOME", value=HOME), Variable(name="HF_HOME", value=f"{HOME}/huggingface")]


def _written(flags: list[tuple[str, object]]) -> list[str]:
    return [f"{name}={value}" for name, value in flags if value is not None]
