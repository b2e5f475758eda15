"""Which physics the environment asks for (`SIM_*`)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from simulation.engine import HOLD_TIMEOUT_SECONDS, EngineConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lab.stand_ins.model_server.arguments import ServeArguments

# Qwen3-32B on two H100 per replica, published runs of August 2026: prefill direct 15,965 tokens/s, KV into one decode
# pod 3,244 tokens/s, 330,752 tokens of KV; inter-token latency 15.0 ms at about 8 running sequences and 20.5 ms at
# about 41, which is 13.7 ms + 0.17 ms per sequence.
DEFAULTS = {
    "SIM_PREFILL_TOKENS_PER_SECOND": 15_965.0,
    "SIM_TRANSFER_TOKENS_PER_SECOND": 3_244.0,
    "SIM_DECODE_BASE_SECONDS": 0.0137,
    "SIM_DECODE_SECONDS_PER_SEQUENCE": 0.00017,
    "SIM_KV_TOKENS": 330_752.0,
    "SIM_LOAD_SECONDS": 0.0,
}


class PhysicsError(Exception):
    """A `SIM_*` variable has a value that no engine has."""


@dataclass(frozen=True)
class Physics:
    """One engine's numbers, and how long its weights take to load (seconds)."""

    engine: EngineConfig
    load_seconds: float


def read(environment: Mapping[str, str], arguments: ServeArguments) -> Physics:
    """Physics from `environment`; the limits of batch and block come from the command line.

    Raises:
        PhysicsError: a value is no number, negative, or (for rates, the step and the pool) zero.
    """
    numbers: dict[str, float] = {}
    for name, default in DEFAULTS.items():
        text = environment.get(name, str(default))
        try:
            number = float(text)
        except ValueError as error:
            raise PhysicsError(f"{name}={text!r} is not a number") from error
        if not math.isfinite(number) or number < 0:
            raise PhysicsError(f"{name}={text!r} must be finite and not negative")
        numbers[name] = number
    hold = environment.get("VLLM_NIXL_ABORT_REQUEST_TIMEOUT", str(HOLD_TIMEOUT_SECONDS))
    try:
        engine = EngineConfig(
            prefill_tokens_per_second=numbers["SIM_PREFILL_TOKENS_PER_SECOND"],
            transfer_tokens_per_second=numbers["SIM_TRANSFER_TOKENS_PER_SECOND"],
            decode_base_seconds=numbers["SIM_DECODE_BASE_SECONDS"],
            decode_seconds_per_sequence=numbers["SIM_DECODE_SECONDS_PER_SEQUENCE"],
            kv_tokens=int(numbers["SIM_KV_TOKENS"]),
            block_size=arguments.block_size,
            max_num_batched_tokens=arguments.max_num_batched_tokens,
            max_num_seqs=arguments.max_num_seqs,
            hold_timeout_seconds=float(hold),
        )
    except ValueError as error:
        raise PhysicsError(f"SIM_*: {error}") from error
    return Physics(engine=engine, load_seconds=numbers["SIM_LOAD_SECONDS"])
