"""What one ScaledObject asks: the triggers of each role's scaler."""

from __future__ import annotations

from dataclasses import dataclass

from llmd import promql
from llmd.dialects import EngineDialect, RouterDialect
from llmd.pool import Fleet
from llmd.rates import Rates
from llmd.scaling import DecodeSignal, ScalingError, Threshold

METRIC_TYPE = "AverageValue"  # on a sum, always: the HPA divides by the replicas once, the query never does


@dataclass(frozen=True, kw_only=True)
class Trigger:
    """One Prometheus trigger. The HPA asks for ceil(value of `query` / `threshold`) replicas."""

    name: str
    query: str
    threshold: str  # text of three decimals
    metric_type: str = METRIC_TYPE


def prefill_by_path(fleet: Fleet, rates: Rates, threshold: Threshold, router: RouterDialect) -> Trigger:
    """Seconds of backlog of a prefill (or co-located) fleet by V_P."""
    query = promql.prefill_by_path(fleet, rates.path_text, router)
    return Trigger(name="prefill-backlog", query=query, threshold=threshold.text)


def prefill_by_phase(
    prefill: Fleet, rates: Rates, threshold: Threshold, router: RouterDialect, engine: EngineDialect
) -> Trigger:
    """Seconds of backlog in the prefill phase; belongs to prefill's scaler on P/D."""
    query = promql.prefill_by_phase(prefill, rates.prefill_text, router, engine)
    return Trigger(name="prefill-backlog", query=query, threshold=threshold.text)


def transfer_by_phase(
    prefill: Fleet, rates: Rates, threshold: Threshold, router: RouterDialect, engine: EngineDialect
) -> Trigger:
    """Seconds of backlog in the transfer phase; asks about the prefill fleet and belongs to decode's scaler."""
    query = promql.transfer_by_phase(prefill, rates.transfer_text, router, engine)
    return Trigger(name="kv-transfer-backlog", query=query, threshold=threshold.text)


def decode(
    fleet: Fleet, signal: DecodeSignal, threshold: Threshold, router: RouterDialect, engine: EngineDialect
) -> Trigger:
    """KV occupancy or capacity waiters of a decode (or co-located) fleet.

    Raises:
        ScalingError: the signal is still `auto`.
    """
    if signal is DecodeSignal.AUTO:
        raise ScalingError("decodeSignal auto must be resolved before it can be asked")
    if signal is DecodeSignal.WAITERS:
        query = promql.capacity_waiters(fleet, router, engine)
        return Trigger(name="decode-capacity-waiters", query=query, threshold=threshold.text)
    query = promql.kv_occupancy(fleet, router, engine)
    return Trigger(name="decode-kv-occupancy", query=query, threshold=threshold.text)
