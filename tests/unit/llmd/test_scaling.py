"""Does a threshold keep the promise it was made from?"""

import math
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmd import dialects, promql, triggers
from llmd.names import Names
from llmd.pool import Fleet
from llmd.rates import RateMode, Rates
from llmd.roles import Role
from llmd.scaling import (
    DecodeSignal,
    ScalingError,
    Slo,
    Statistic,
    Threshold,
    backlog_threshold,
    check_occupancy_reachable,
    decode_signal,
    decode_threshold,
    phase_thresholds,
)

VLLM = dialects.engine("vllm", "0.27")
SILENT = replace(VLLM, waiting_by_reason=None)
PUBLISHED = Rates(path=2696, prefill=15965, mode=RateMode.PINNED, source="a run")


def slo(ttft=8.0, tokens=8192, **more):
    return Slo(ttft_seconds=ttft, uncached_tokens=tokens, **more)


def mean_ttft(utilisation, floor):
    """Pollaczek-Khinchine for deterministic service: the mean wait is u/(2(1-u)) services."""
    return floor + floor * utilisation / (2 * (1 - utilisation))


@pytest.mark.parametrize(
    ("ttft", "tokens", "rate", "text"),
    [
        (8.0, 8192, 2696, "6.125"),  # floor 3.04 s; the plain rule gives 4.96
        (3.0, 2048, 2696, "2.565"),
        (4.0, 8192, 2787, "1.677"),  # the plain rule gives 1.061
        (8.0, 8192, 15928, "7.734"),
    ],
)
def test_the_worked_examples(ttft, tokens, rate, text):
    assert backlog_threshold(slo(ttft, tokens), rate).text == text


@given(st.floats(0.05, 100), st.floats(1.01, 50), st.floats(1, 1e6))
def test_at_the_threshold_an_md1_queue_just_keeps_the_mean_slo(floor, ratio, tokens):
    ttft = floor * ratio
    threshold = backlog_threshold(slo(ttft, tokens), tokens / floor).value
    utilisation = 2 * (ratio - 1) / (2 * ratio - 1)
    assert math.isclose(mean_ttft(utilisation, floor), ttft, rel_tol=1e-6)
    assert math.isclose(threshold, utilisation * ttft, rel_tol=1e-6, abs_tol=0.00051)


@given(st.floats(0.05, 100), st.floats(1.01, 50), st.floats(1, 1e6))
def test_the_plain_rule_is_a_lower_bound_and_the_slo_an_upper_one(floor, ratio, tokens):
    threshold = backlog_threshold(slo(floor * ratio, tokens), tokens / floor).value
    assert floor * (ratio - 1) - 0.001 <= threshold <= floor * ratio + 0.001


@given(st.sampled_from([Statistic.P90, Statistic.P95, Statistic.P99]))
def test_a_percentile_takes_60_to_70_percent(statistic):
    mean, tail = (backlog_threshold(slo(statistic=of), 2696).value for of in (Statistic.MEAN, statistic))
    assert 0.6 - 0.001 <= tail / mean <= 0.7 + 0.001


def test_the_further_out_the_percentile_the_lower_the_threshold():
    values = [backlog_threshold(slo(statistic=statistic), 2696).value for statistic in Statistic]
    assert values == sorted(values, reverse=True)
    assert len(set(values)) == len(values)


@given(st.floats(0.2, 5))
def test_the_threshold_is_in_the_pickers_tokens(ratio):
    true, estimated = (backlog_threshold(slo(token_estimate_ratio=of), 2696).value for of in (1.0, ratio))
    assert math.isclose(estimated, true * ratio, abs_tol=0.001 * max(1.0, ratio))


@pytest.mark.parametrize("ttft", [2.0, 3.0, 3.0385])
def test_a_promise_below_the_floor_is_refused_with_the_arithmetic(ttft):
    said = f"TTFT of {ttft:g} s is not above the floor of 3.04 s (8192 tokens at 2696 tokens/s)"
    with pytest.raises(ScalingError, match=re.escape(said)):
        backlog_threshold(slo(ttft), 2696)


@pytest.mark.parametrize(("ttft", "warned"), [(3.1, True), (6.0, True), (6.08, False), (20.0, False)])
def test_a_promise_under_twice_the_floor_is_a_warning(ttft, warned):
    warnings = backlog_threshold(slo(ttft), 2696).warnings
    assert bool(warnings) is warned
    assert all("times the floor of 3.04 s" in warning for warning in warnings)


def test_an_override_is_taken_as_it_is_and_still_warned_about():
    given_value = backlog_threshold(slo(2.0, statistic=Statistic.P99, token_estimate_ratio=1.5), 2696, override=1.5)
    assert given_value.text == "1.500"
    assert len(given_value.warnings) == 1


@pytest.mark.parametrize("wrong", [0, -1, math.inf, math.nan])
def test_a_number_that_is_no_rate_is_refused(wrong):
    with pytest.raises(ScalingError, match="must be a positive number"):
        backlog_threshold(slo(), wrong)
    with pytest.raises(ScalingError, match="must be a positive number"):
        backlog_threshold(slo(), 2696, override=wrong)
    with pytest.raises(ScalingError, match="must be a positive number"):
        backlog_threshold(slo(token_estimate_ratio=wrong), 2696)
    with pytest.raises(ScalingError, match="must be a positive number"):
        backlog_threshold(slo(tokens=wrong), 2696)


@given(st.floats(0.0004, 1e6))
def test_a_threshold_is_written_with_three_decimals_and_never_as_zero(value):
    text = backlog_threshold(slo(), 2696, override=value).text
    assert re.fullmatch(r"[0-9]+\.[0-9]{3}", text)
    assert float(text) > 0


def test_each_phase_gets_its_own_floor_and_what_the_others_floor_leaves():
    both = phase_thresholds(slo(8.0), PUBLISHED)
    prefill_floor, transfer_floor = 8192 / 15965, 8192 / 3243.774
    assert math.isclose(both.prefill.floor_seconds, prefill_floor)
    assert math.isclose(both.transfer.floor_seconds, transfer_floor)
    assert math.isclose(both.prefill.slo_seconds, 8.0 - transfer_floor)
    assert math.isclose(both.transfer.slo_seconds, 8.0 - prefill_floor)
    assert (both.prefill.text, both.transfer.text) == ("5.205", "5.968")


@given(st.floats(100, 5000), st.floats(1.1, 20), st.floats(256, 32768), st.floats(1.05, 20))
def test_a_phase_at_its_threshold_beside_an_idle_one_just_keeps_the_slo(path, faster, tokens, ratio):
    rates = Rates(path=path, prefill=path * faster, mode=RateMode.PINNED, source="")
    promised = tokens / path * ratio
    both = phase_thresholds(slo(promised, tokens), rates)
    for phase, other in ((both.prefill, both.transfer), (both.transfer, both.prefill)):
        stretch = phase.slo_seconds / phase.floor_seconds
        utilisation = 2 * (stretch - 1) / (2 * stretch - 1)
        assert math.isclose(mean_ttft(utilisation, phase.floor_seconds) + other.floor_seconds, promised, rel_tol=1e-6)
        assert math.isclose(phase.value, utilisation * phase.slo_seconds, rel_tol=1e-5, abs_tol=0.00051)


def test_two_phases_whose_floors_exceed_the_promise_are_refused_with_both():
    with pytest.raises(ScalingError, match=r"floor of 3\.04 s \(8192 tokens: 0\.51 s prefill .* and 2\.53 s transfer"):
        phase_thresholds(slo(3.0), PUBLISHED)
    overridden = phase_thresholds(slo(3.0), PUBLISHED, prefill_override=1, transfer_override=2)
    assert (overridden.prefill.text, overridden.transfer.text) == ("1.000", "2.000")


def test_phases_need_two_rates():
    with pytest.raises(ScalingError, match="path's only"):
        phase_thresholds(slo(), replace(PUBLISHED, prefill=None))


@pytest.mark.parametrize(
    ("wanted", "prefill_decode", "engine", "signal"),
    [
        (DecodeSignal.AUTO, True, VLLM, DecodeSignal.WAITERS),
        (DecodeSignal.AUTO, False, VLLM, DecodeSignal.OCCUPANCY),
        (DecodeSignal.AUTO, True, SILENT, DecodeSignal.OCCUPANCY),
        (DecodeSignal.OCCUPANCY, True, VLLM, DecodeSignal.OCCUPANCY),
        (DecodeSignal.WAITERS, False, VLLM, DecodeSignal.WAITERS),
    ],
)
def test_decode_waits_are_asked_where_the_engine_tells_them_on_prefill_decode(wanted, prefill_decode, engine, signal):
    assert decode_signal(wanted, prefill_decode=prefill_decode, engine=engine) is signal


def test_waiters_of_an_engine_that_does_not_tell_are_refused():
    with pytest.raises(ScalingError, match="does not say why requests wait"):
        decode_signal(DecodeSignal.WAITERS, prefill_decode=True, engine=SILENT)
    with pytest.raises(promql.UnavailableMetricError, match="does not say why requests wait"):
        promql.capacity_waiters(Fleet.of(Names("m", "n"), Role.DECODE), dialects.router("0.11"), SILENT)


def test_the_threshold_follows_the_decode_signal():
    assert decode_threshold(DecodeSignal.OCCUPANCY).text == "0.800"
    assert decode_threshold(DecodeSignal.WAITERS).text == "1.000"
    assert decode_threshold(DecodeSignal.WAITERS, override=3).text == "3.000"
    for function in (decode_threshold, _trigger):
        with pytest.raises(ScalingError, match="must be resolved"):
            function(DecodeSignal.AUTO)


def _trigger(signal):
    fleet = Fleet.of(Names("m", "n"), Role.DECODE)
    return triggers.decode(fleet, signal, Threshold(value=1.0), dialects.router("0.11"), VLLM)


def test_each_decode_signal_asks_its_own_question():
    occupancy, waiters = _trigger(DecodeSignal.OCCUPANCY), _trigger(DecodeSignal.WAITERS)
    assert "by_reason" not in occupancy.query
    assert "by_reason" in waiters.query
    assert occupancy.name != waiters.name
    assert {occupancy.metric_type, waiters.metric_type} == {"AverageValue"}


@pytest.mark.parametrize("override", [0.91, 0.95, 1.5])
def test_an_occupancy_that_the_hpa_can_never_see_exceeded_is_refused(override):
    with pytest.raises(ScalingError, match="never holds"):
        decode_threshold(DecodeSignal.OCCUPANCY, override=override)


def test_an_occupancy_that_a_full_batch_cannot_reach_is_refused_when_capacity_is_known():
    threshold = decode_threshold(DecodeSignal.OCCUPANCY)
    with pytest.raises(ScalingError, match=r"256 sequences x 512 tokens is 0\.40 of the 330752 KV tokens"):
        check_occupancy_reachable(threshold=threshold, max_sequences=256, tokens_per_sequence=512, kv_tokens=330752)
    check_occupancy_reachable(threshold=threshold, max_sequences=256, tokens_per_sequence=4096, kv_tokens=330752)
