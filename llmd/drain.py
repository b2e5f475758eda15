"""How long a pod needs to leave without losing a request."""

from __future__ import annotations

import math

# vLLM after its last request, when the workers of a tensor-parallel group end; upstream gives 45 s, requests included.
ENGINE_SHUTDOWN_SECONDS = 30
# As the upstream graceful-shutdown component leaves (Sept 2026): the kubelet's clock starts before ours.
MARGIN_SECONDS = 15
SHORTEST_IDLE_SECONDS = 10.0  # a short TTFT must not make one quiet look mean idle


def drain_seconds(*, ttft_seconds: float, max_output_tokens: int, inter_token_seconds: float) -> int:
    """Longest that one admitted request may still take, ceil(ttft + max output x inter-token time). Unit: seconds."""
    # a thousandth of a millisecond is float noise, not a second more
    return math.ceil(round(ttft_seconds + max_output_tokens * inter_token_seconds, 6))


def idle_seconds(*, ttft_seconds: float) -> float:
    """How long a decode pod must show no running and no waiting request before it is idle, max(10 s, 2 x ttft).

    During the prefill leg a request exists in the routing sidecar alone, so a decode engine without requests may be
    about to get one. A prefill pod must show zero KV usage as well, since its blocks wait there to be pulled.
    """
    return max(SHORTEST_IDLE_SECONDS, 2 * ttft_seconds)


def grace_seconds(*, drain: int, engine_shutdown: int = ENGINE_SHUTDOWN_SECONDS, margin: int = MARGIN_SECONDS) -> int:
    """terminationGracePeriodSeconds: drain, then the engine's own shutdown, then a margin."""
    return drain + engine_shutdown + margin
