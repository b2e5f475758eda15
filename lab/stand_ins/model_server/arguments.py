"""Which command lines `vllm serve` accepts, and what they ask for.

The table holds the flags of vLLM 0.27 that the llm-d guides and this project use; any other flag ends with usage and
exit status 2, as on the real one. Flags that change nothing a client or a scraper can see are accepted and ignored.
"""

from __future__ import annotations

import argparse
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

VLLM_VERSION = "0.27.1"

# Used when nothing says how long a context the model has (an id without files); Qwen3-32B's max_position_embeddings.
DEFAULT_MAX_MODEL_LEN = 40_960
# vLLM 0.27's defaults for an API server on an H100-class GPU.
DEFAULT_MAX_NUM_BATCHED_TOKENS = 8192
DEFAULT_MAX_NUM_SEQS = 1024

CONNECTORS = (
    "ExampleConnector",
    "LMCacheConnectorV1",
    "MooncakeConnector",
    "MultiConnector",
    "NixlConnector",
    "NixlPullConnector",
    "OffloadingConnector",
    "P2pNcclConnector",
)
KV_ROLES = ("kv_producer", "kv_consumer", "kv_both")
_KV_KEYS = {
    "enable_permute_local_kv": bool,
    "engine_id": str,
    "kv_buffer_device": str,
    "kv_buffer_size": (int, float),
    "kv_connector": str,
    "kv_connector_extra_config": dict,
    "kv_connector_module_path": str,
    "kv_ip": str,
    "kv_load_failure_policy": str,
    "kv_parallel_size": int,
    "kv_port": int,
    "kv_rank": int,
    "kv_role": str,
}

_SWITCHES = (  # each has its `--no-` form
    "async-scheduling",
    "disable-hybrid-kv-cache-manager",
    "enable-auto-tool-choice",
    "enable-chunked-prefill",
    "enable-expert-parallel",
    "enable-force-include-usage",
    "enable-log-requests",
    "enable-prefix-caching",
    "enable-prompt-tokens-details",
    "enforce-eager",
    "disable-access-log",
    "disable-log-stats",
    "disable-uvicorn-access-log",
    "trust-remote-code",
)
_TEXTS = (  # accepted and ignored
    "api-key",
    "attention-backend",
    "chat-template",
    "compilation-config",
    "config-format",
    "cpu-offload-gb",
    "distributed-executor-backend",
    "download-dir",
    "generation-config",
    "hf-overrides",
    "hf-token",
    "kv-cache-dtype",
    "kv-cache-memory-bytes",
    "load-format",
    "mm-processor-kwargs",
    "moe-backend",
    "quantization",
    "reasoning-parser",
    "revision",
    "scheduling-policy",
    "swap-space",
    "task",
    "tokenizer",
    "tokenizer-mode",
    "tool-call-parser",
    "uvicorn-log-level",
)
_COUNTS = (  # whole numbers of at least 1, accepted and ignored
    "api-server-count",
    "data-parallel-size",
    "decode-context-parallel-size",
    "nnodes",
    "pipeline-parallel-size",
)
_DTYPES = ("auto", "half", "float16", "bfloat16", "float", "float32")


class ConfigurationError(Exception):
    """The arguments are well formed, but no engine can start with them; vLLM exits with 1 then."""


@dataclass(frozen=True, kw_only=True)
class ServeArguments:
    """What one `vllm serve` was asked for."""

    model: str
    served_model_names: tuple[str, ...]
    host: str
    port: int
    max_model_len: int
    max_num_batched_tokens: int
    max_num_seqs: int
    block_size: int
    gpu_memory_utilization: float
    tensor_parallel_size: int
    prefix_caching: bool
    kv_connector: str | None
    kv_engine_id: str | None
    kv_load_failure_policy: str
    shutdown_timeout: float
    access_log: bool
    access_log_disabled_for: frozenset[str]


def parse(argv: Sequence[str]) -> ServeArguments:
    """Read `argv` (without the program name), e.g. `["serve", "Qwen/Qwen3-32B", "--port=8200"]`.

    Raises:
        SystemExit: usage error, status 2, with usage on stderr; `--help` and `--version`, status 0.
        ConfigurationError: the values do not fit together, or the model directory is none.
    """
    options = _parser().parse_args([_dashed(argument) for argument in argv])
    model = options.model_tag or options.model
    if model is None:
        raise ConfigurationError("no model was given")
    longest = _context_length(model)
    max_model_len = longest if options.max_model_len in {None, -1} else options.max_model_len
    if max_model_len > longest:
        raise ConfigurationError(
            f"User-specified max_model_len ({max_model_len}) is greater than the derived max_model_len "
            f"(max_position_embeddings={longest}) of {model}"
        )
    if options.max_num_batched_tokens < options.max_num_seqs:
        raise ConfigurationError(
            f"max_num_batched_tokens ({options.max_num_batched_tokens}) must be greater than or equal to "
            f"max_num_seqs ({options.max_num_seqs})"
        )
    transfer = options.kv_transfer_config or {}
    return ServeArguments(
        model=model,
        served_model_names=tuple(options.served_model_name or [model]),
        host=options.host,
        port=options.port,
        max_model_len=max_model_len,
        max_num_batched_tokens=options.max_num_batched_tokens,
        max_num_seqs=options.max_num_seqs,
        block_size=options.block_size,
        gpu_memory_utilization=options.gpu_memory_utilization,
        tensor_parallel_size=options.tensor_parallel_size,
        prefix_caching=options.enable_prefix_caching is not False,
        kv_connector=transfer.get("kv_connector"),
        kv_engine_id=transfer.get("engine_id"),
        kv_load_failure_policy=transfer.get("kv_load_failure_policy", "fail"),
        shutdown_timeout=options.shutdown_timeout,
        access_log=not (options.disable_uvicorn_access_log or options.disable_access_log),
        access_log_disabled_for=frozenset(filter(None, options.disable_access_log_for_endpoints.split(","))),
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="vllm", allow_abbrev=False)
    parser.add_argument("-v", "--version", action="version", version=VLLM_VERSION)
    commands = parser.add_subparsers(dest="command", required=True, metavar="{serve}")
    serve = commands.add_parser("serve", allow_abbrev=False, help="start the OpenAI-compatible API server")
    serve.add_argument("model_tag", nargs="?", metavar="model_tag", help="model id or directory")
    serve.add_argument("--model", help="model id or directory")
    serve.add_argument("--served-model-name", nargs="+")
    serve.add_argument("--host", default="0.0.0.0")  # noqa: S104 - a pod's server listens on every address, as vLLM
    serve.add_argument("--port", type=_port, default=8000)
    serve.add_argument("--max-model-len", type=_length)
    serve.add_argument("--max-num-batched-tokens", type=_count, default=DEFAULT_MAX_NUM_BATCHED_TOKENS)
    serve.add_argument("--max-num-seqs", type=_count, default=DEFAULT_MAX_NUM_SEQS)
    serve.add_argument("--block-size", type=int, choices=(1, 8, 16, 32, 64, 128, 256), default=16)
    serve.add_argument("--gpu-memory-utilization", type=_share, default=0.9)
    serve.add_argument("-tp", "--tensor-parallel-size", type=_count, default=1)
    serve.add_argument("--dtype", choices=_DTYPES, default="auto")
    serve.add_argument("--kv-transfer-config", type=_kv_transfer_config)
    serve.add_argument("--shutdown-timeout", type=_seconds, default=0.0)
    serve.add_argument("--disable-access-log-for-endpoints", default="")
    serve.add_argument("--seed", type=int, default=0)
    for name in _SWITCHES:
        serve.add_argument(f"--{name}", action=argparse.BooleanOptionalAction)
    for name in _COUNTS:
        short = {"pipeline-parallel-size": ["-pp"], "data-parallel-size": ["-dp"]}.get(name, [])
        serve.add_argument(*short, f"--{name}", type=_count, default=1)
    for name in _TEXTS:
        serve.add_argument(f"--{name}")
    return parser


def _dashed(argument: str) -> str:
    """`--max_model_len=8` as `--max-model-len=8`: vLLM takes underscores in flags as dashes."""
    flag, equals, value = argument.partition("=")
    return flag.replace("_", "-") + equals + value if flag.startswith("--") else argument


def _context_length(model: str) -> int:
    """Longest context of `model`, from its config.json if it is a directory."""
    path = Path(model)
    if not path.is_dir():
        if not re.fullmatch(r"[\w][\w.-]*(/[\w][\w.-]*)?", model):
            raise ConfigurationError(f"{model} is neither a directory nor a model id of the form name or owner/name")
        return DEFAULT_MAX_MODEL_LEN
    file = path / "config.json"
    try:
        config = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"no readable config.json in {model}: {error}") from error
    if not isinstance(config, dict) or not (config.get("architectures") or config.get("model_type")):
        raise ConfigurationError(f"{file} names neither architectures nor a model_type")
    return int(config.get("max_position_embeddings", DEFAULT_MAX_MODEL_LEN))


def _kv_transfer_config(text: str) -> Mapping[str, object]:
    try:
        config = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"not JSON: {error}") from error
    if not isinstance(config, dict):
        raise argparse.ArgumentTypeError("not a JSON object")
    for key, value in config.items():
        if key not in _KV_KEYS:
            raise argparse.ArgumentTypeError(f"unknown key {key!r}; known: {', '.join(_KV_KEYS)}")
        if not isinstance(value, _KV_KEYS[key]):
            raise argparse.ArgumentTypeError(f"{key} has a value of the wrong type: {value!r}")
    if config.get("kv_connector") not in CONNECTORS:
        raise argparse.ArgumentTypeError(
            f"kv_connector {config.get('kv_connector')!r} is none of {', '.join(CONNECTORS)}"
        )
    if config.get("kv_role") not in KV_ROLES:
        raise argparse.ArgumentTypeError(f"kv_role {config.get('kv_role')!r} is none of {', '.join(KV_ROLES)}")
    if config.get("kv_load_failure_policy", "fail") not in {"fail", "recompute"}:
        raise argparse.ArgumentTypeError("kv_load_failure_policy is fail or recompute")
    return config


_SUFFIXES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}


def _count(text: str) -> int:
    """A whole number of at least 1; `8k` is 8,000 and `8K` is 8,192, as vLLM reads them."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmgKMG]?)", text)
    number = float(match[1]) * _SUFFIXES[match[2]] if match else 0.0
    if number < 1 or number != int(number):
        raise argparse.ArgumentTypeError(f"not a whole number of at least 1: {text!r}")
    return int(number)


def _length(text: str) -> int:
    return -1 if text in {"-1", "auto"} else _count(text)


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) not in range(1, 65536):
        raise argparse.ArgumentTypeError(f"not a port: {text!r}")
    return int(text)


def _share(text: str) -> float:
    share = _number(text)
    if not 0.0 < share <= 1.0:
        raise argparse.ArgumentTypeError(f"not in (0, 1]: {text!r}")
    return share


def _seconds(text: str) -> float:
    seconds = _number(text)
    if seconds < 0:
        raise argparse.ArgumentTypeError(f"not a number of seconds: {text!r}")
    return seconds


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"not a number: {text!r}") from error
