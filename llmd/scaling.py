"""At which backlog a fleet grows, from what its users were promised."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from llmd.dialects import EngineDialect
from llmd.hpa import TOLERANCE
from llmd.rates import Rates

# SLO / floor below which a queue leaves so little room that a replica must idle much of the time.
TIGHT = 2.0
# Of a pod's KV cache: the upstream guide's value (Sept 2026), at which a decode pod still admits short bursts.
OCCUPANCY_THRESHOLD = 0.8
# Waiting requests per pod: above one on a majority of pods, the fleet as a whole has no room.
WAITERS_THRESHOLD = 1.0


class ScalingError(ValueError):
    """A signal or target on which a fleet cannot scale; the message carries the arithmetic."""


class UnkeepableSloError(ScalingError):
    """A time to first token that no number of replicas can keep."""


class Statistic(StrEnum):
    """Of which statistic of TTFT the SLO speaks."""

    MEAN = "mean"
    P90 = "p90"
    P95 = "p95"
    P99 = "p99"

    @property
    def factor(self) -> float:
        """Share of the mean's threshold that keeps this statistic under the same limit (0.6 to 0.7 for p90 to p99)."""
        return {"mean": 1.0, "p90": 0.7, "p95": 0.65, "p99": 0.6}[self.value]


class DecodeSignal(StrEnum):
    """What decode's first trigger measures."""

    AUTO = "auto"
    OCCUPANCY = "occupancy"
    WAITERS = "waiters"


@dataclass(frozen=True, kw_only=True)
class Slo:
    """What a user is promised about the first token, and for which request."""

    ttft_seconds: float
    uncached_tokens: float  # prompt tokens that no prefix cache holds
    statistic: Statistic = Statistic.MEAN
    token_estimate_ratio: float = 1.0  # the picker's estimate (text bytes / 4, in blocks) over true tokens


@dataclass(frozen=True, kw_only=True)
class Threshold:
    """A trigger's target per replica."""

    value: float  # in the unit of the query; a multiple of 0.001

    @property
    def text(self) -> str:
        """Three decimals, since KEDA rounds a target to thousandths."""
        return f"{self.value:.3f}"


@dataclass(frozen=True, kw_only=True)
class BacklogThreshold(Threshold):
    """A target of a backlog query, in seconds, and how it came about."""

    floor_seconds: float  # what this phase takes of one request on an idle fleet
    slo_seconds: float  # what this phase may take
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PhaseThresholds:
    """Targets of the two TTFT signals of a P/D model."""

    prefill: BacklogThreshold
    transfer: BacklogThreshold


def backlog_threshold(slo: Slo, tokens_per_second: float, override: float | None = None) -> BacklogThreshold:
    """Seconds of backlog per replica at which an M/D/1 queue just keeps the SLO.

    The time average of backlog per replica is utilisation x TTFT. With floor f = uncached tokens / rate and s = SLO /
    f, the queue's mean TTFT equals the SLO at utilisation 2(s-1)/(2s-1), so the target is SLO x 2(s-1)/(2s-1). It is
    never below SLO - f, the plain rule. A percentile takes 0.6 to 0.7 of it. The result is in the picker's own tokens
    (times `token_estimate_ratio`), as the query is. With `override` the value is that, and the arithmetic only warns.

    Raises:
        UnkeepableSloError: the SLO is not above the floor.
        ScalingError: a number is not positive.
    """
    _positive(tokens_per_second, "throughput")
    return _threshold(slo, slo.ttft_seconds, tokens_per_second, "", override)


def phase_thresholds(
    slo: Slo, rates: Rates, *, prefill_override: float | None = None, transfer_override: float | None = None
) -> PhaseThresholds:
    """Thresholds of the prefill phase and of the KV transfer phase of one SLO.

    A request passes both, so each phase may take what the other's floor leaves: SLO(prefill) = SLO - floor(transfer)
    and the other way round. Each thus gets its own floor and the whole slack (SLO - both floors): the fleets are
    sized apart, and only the slower one queues for long. Were both at their target at once, the mean TTFT would be
    above the SLO by at most the slack; an environment that must exclude that sets a percentile. The two floors add up
    to uncached tokens / path throughput, so both phases fail or pass together.

    Raises:
        UnkeepableSloError: the SLO is not above the sum of the floors.
        ScalingError: `rates` has no second rate (co-located).
    """
    if rates.prefill is None or rates.transfer is None:
        raise ScalingError("thresholds by phase need a path and a prefill throughput; this record has the path's only")
    prefill_floor = slo.uncached_tokens / rates.prefill
    transfer_floor = slo.uncached_tokens / rates.transfer
    if slo.ttft_seconds <= prefill_floor + transfer_floor and (prefill_override is None or transfer_override is None):
        raise UnkeepableSloError(
            f"TTFT of {slo.ttft_seconds:g} s is not above the floor of {prefill_floor + transfer_floor:.2f} s "
            f"({slo.uncached_tokens:g} tokens: {prefill_floor:.2f} s prefill at {rates.prefill_text} tokens/s "
            f"and {transfer_floor:.2f} s transfer at {rates.transfer_text} tokens/s); no number of replicas keeps it"
        )
    return PhaseThresholds(
        prefill=_threshold(slo, slo.ttft_seconds - transfer_floor, rates.prefill, "prefill ", prefill_override),
        transfer=_threshold(slo, slo.ttft_seconds - prefill_floor, rates.transfer, "transfer ", transfer_override),
    )


def decode_signal(wanted: DecodeSignal, *, prefill_decode: bool, engine: EngineDialect) -> DecodeSignal:
    """Resolve `auto`: waiters on P/D where the engine exports them, else occupancy (never returns AUTO).

    Co-located pods wait for capacity during prefill too, so there the wait is no sign of a full KV cache.

    Raises:
        ScalingError: waiters are wanted of an engine that does not export them.
    """
    if wanted is DecodeSignal.AUTO:
        return DecodeSignal.WAITERS if prefill_decode and engine.waiting_by_reason else DecodeSignal.OCCUPANCY
    if wanted is DecodeSignal.WAITERS and engine.waiting_by_reason is None:
        raise ScalingError(
            f"decodeSignal waiters: {engine.name} {engine.version} does not say why requests wait; use occupancy"
        )
    return wanted


def decode_threshold(signal: DecodeSignal, override: float | None = None) -> Threshold:
    """Target of decode's KV trigger per replica: 0.8 of a pod's KV cache, or 1 waiting request.

    Raises:
        ScalingError: the signal is not resolved, or an override is not positive (occupancy: not within 0 to 1).
    """
    if signal is DecodeSignal.AUTO:
        raise ScalingError("decodeSignal auto must be resolved before it has a threshold")
    occupancy = signal is DecodeSignal.OCCUPANCY
    default = OCCUPANCY_THRESHOLD if occupancy else WAITERS_THRESHOLD
    value = default if override is None else _positive(override, "threshold")
    if occupancy and value * (1 + TOLERANCE) >= 1:
        raise ScalingError(
            f"occupancy threshold {value:g}: a fleet grows above {1 + TOLERANCE:g} x {value:g} = "
            f"{value * (1 + TOLERANCE):g} of its KV cache, which it never holds; the most useful value is 0.9"
        )
    return Threshold(value=_thousandths(value))


def check_occupancy_reachable(
    *, threshold: Threshold, max_sequences: int, tokens_per_sequence: int, kv_tokens: int
) -> None:
    """Refuse an occupancy threshold that a full batch cannot reach.

    Raises:
        ScalingError: a batch of `max_sequences` sequences of `tokens_per_sequence` tokens fills less of `kv_tokens`
            than the HPA needs.
    """
    full = max_sequences * tokens_per_sequence / _positive(kv_tokens, "KV capacity")
    needed = threshold.value * (1 + TOLERANCE)
    if full <= needed:
        raise ScalingError(
            f"occupancy threshold {threshold.text}: a full batch of {max_sequences} sequences x {tokens_per_sequence} "
            f"tokens is {full:.2f} of the {kv_tokens} KV tokens, and the fleet grows above {needed:.2f}; "
            "use decodeSignal waiters, a lower threshold or more sequences"
        )


def _threshold(slo: Slo, phase_slo: float, rate: float, phase: str, override: float | None) -> BacklogThreshold:
    _positive(slo.ttft_seconds, "TTFT")
    floor = _positive(slo.uncached_tokens, "uncached tokens") / rate
    ratio = phase_slo / floor
    arithmetic = f"{slo.uncached_tokens:g} tokens at {rate:g} tokens/s"
    if override is None and ratio <= 1:
        raise UnkeepableSloError(
            f"{phase}TTFT of {phase_slo:g} s is not above the floor of {floor:.2f} s ({arithmetic}); "
            "no number of replicas keeps it"
        )
    warnings: list[str] = []
    if ratio < TIGHT:
        warnings.append(
            f"{phase}TTFT of {phase_slo:.2f} s is only {ratio:.2f} times the floor of {floor:.2f} s ({arithmetic}); "
            f"below {TIGHT:g} a replica must idle much of the time to keep it"
        )
    value = override
    if value is None:
        value = phase_slo * 2 * (ratio - 1) / (2 * ratio - 1) * slo.statistic.factor
        value *= _positive(slo.token_estimate_ratio, "token estimate ratio")
    return BacklogThreshold(
        value=_thousandths(_positive(value, "threshold")),
        floor_seconds=floor,
        slo_seconds=phase_slo,
        warnings=tuple(warnings),
    )


def _thousandths(value: float) -> float:
    """Round as KEDA does; a target must stay above zero, by which it divides."""
    return max(round(value, 3), 0.001)


def _positive(value: float, what: str) -> float:
    if not 0 < value < float("inf"):
        raise ScalingError(f"{what} must be a positive number, not {value:g}")
    return value
