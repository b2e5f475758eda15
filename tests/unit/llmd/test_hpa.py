"""Does the HPA arithmetic decide as kube-controller-manager does?"""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmd.hpa import (
    KUBERNETES_DEFAULT,
    ONE_AT_A_TIME,
    SYNC_SECONDS,
    Autoscaler,
    Behavior,
    History,
    Metric,
    Policy,
    PolicyKind,
    Rules,
    Scale,
    Select,
)

FREE = Behavior(
    up=Rules(policies=(Policy(kind=PolicyKind.PODS, value=1000, period_seconds=15),)),
    down=Rules(policies=(Policy(kind=PolicyKind.PODS, value=1000, period_seconds=15),)),
)


def pods(value, period):
    return Policy(kind=PolicyKind.PODS, value=value, period_seconds=period)


def percent(value, period):
    return Policy(kind=PolicyKind.PERCENT, value=value, period_seconds=period)


def once(replicas, *metrics, behavior=FREE, minimum=1, maximum=10, history=None, now=0.0):
    """One sync of a settled fleet; metrics are (value, target)."""
    scaler = Autoscaler(minimum=minimum, maximum=maximum, behavior=behavior)
    read = [Metric(value=value, target=target) for value, target in metrics]
    return scaler.sync(history or History(), now=now, scale=Scale(spec=replicas, status=replicas), metrics=read)


def run(scaler, samples, replicas=1):
    """Feed (seconds, metric values...) to a fleet that follows at once; (seconds, before, after) of every change."""
    history, events = History(), []
    for seconds, *metrics in samples:
        decision = scaler.sync(history, now=seconds, scale=Scale(spec=replicas, status=replicas), metrics=metrics)
        if decision.replicas != replicas:
            events.append((seconds, replicas, decision.replicas))
        history, replicas = decision.history, decision.replicas
    return events


def steps(*stretches):
    """(until seconds, value, target) stretches as one metric per sync."""
    start, samples = 0, []
    for until, value, target in stretches:
        samples += [(t, Metric(value=value, target=target)) for t in range(start, until, SYNC_SECONDS)]
        start = samples[-1][0] + SYNC_SECONDS
    return samples


@pytest.mark.parametrize(
    ("replicas", "value", "target", "after"),
    [
        # first samples at which the published decode-heavy run scaled, and some at which it did not
        (1, 0.928, 0.8, 2),
        (2, 1.765, 0.8, 3),
        (3, 2.648, 0.8, 4),
        (2, 1.737, 0.8, 2),
        (1, 0.813, 0.8, 1),
        (1, 0.804, 0.8, 1),
        # overlapping requests of 3,200 estimated tokens at 2,696 tokens/s
        (1, 1.187, 1.5, 1),
        (1, 2.374, 1.5, 2),
        (2, 3.561, 1.5, 3),
        (3, 5.935, 1.5, 4),
        # exactly at the tolerance nothing moves, a thousandth beyond it does
        (1, 0.88, 0.8, 1),
        (1, 0.881, 0.8, 2),
        (10, 13.5, 1.5, 10),
        (10, 13.499, 1.5, 9),
        (4, 0.0, 1.5, 1),
        # what is negative, no number or less than half a thousandth is read as 0
        (2, -3.0, 1.5, 1),
        (2, math.nan, 1.5, 1),
        (2, math.inf, 1.5, 1),
        (2, 0.0004, 1.5, 1),
    ],
)
def test_average_value_arithmetic(replicas, value, target, after):
    assert once(replicas, (value, target)).replicas == after


def test_tolerance_is_per_direction():
    behavior = replace(FREE, up=replace(FREE.up, tolerance=0.0), down=replace(FREE.down, tolerance=0.5))
    assert once(2, (2.001, 1.0), behavior=behavior).replicas == 3
    assert once(2, (1.0, 1.0), behavior=behavior).replicas == 2
    assert once(2, (0.999, 1.0), behavior=behavior).replicas == 1


def test_the_divisor_is_status_replicas_and_not_what_the_spec_asks_for():
    scaler = Autoscaler(minimum=1, maximum=10, behavior=FREE)
    metric = [Metric(value=2.1, target=1.0)]
    assert scaler.sync(History(), now=0, scale=Scale(spec=3, status=2), metrics=metric).replicas == 2
    assert scaler.sync(History(), now=0, scale=Scale(spec=3, status=3), metrics=metric).replicas == 3


def test_the_largest_metric_wins():
    assert once(2, (0.1, 1.5), (2.9, 0.8)).replicas == 4
    assert once(2, (2.9, 0.8), (0.1, 1.5)).replicas == 4


@pytest.mark.parametrize(
    ("metrics", "after"),
    [
        ([(None, 1.0), (0.1, 1.0)], 3),  # the readable one would shrink: blocked
        ([(None, 1.0), (5.0, 1.0)], 5),  # and may grow
        ([(None, 1.0), (3.0, 1.0)], 3),
        ([(None, 1.0), (None, 1.0)], 3),
        ([], 3),
    ],
)
def test_a_failed_metric_blocks_scale_down_alone(metrics, after):
    assert once(3, *metrics).replicas == after


def test_a_sync_without_readable_metrics_is_no_recommendation():
    before = once(3, (3.0, 1.0)).history
    decision = once(3, (None, 1.0), history=before, now=15)
    assert decision.wanted is None
    assert decision.history == before


def test_bounds_hold_and_repair():
    assert once(3, (100.0, 1.0), maximum=4).replicas == 4
    assert once(3, (0.0, 1.0), minimum=2).replicas == 2
    assert once(7, (7.0, 1.0), maximum=4).replicas == 4
    assert once(1, (1.0, 1.0), minimum=3).replicas == 3


def test_zero_replicas_switch_the_scaler_off():
    assert once(0, (9.0, 1.0)).replicas == 0


def test_scale_down_waits_until_the_window_holds_no_higher_wish():
    scaler = Autoscaler(minimum=1, maximum=4)
    # as in the decode-heavy run: the last wish above at 1,639 s, retired 300 s later
    samples = steps((1650, 2.0, 1.5), (2400, 0.0, 1.5))
    [(down, before, after)] = run(scaler, samples, replicas=2)
    assert (before, after) == (2, 1)
    assert down == max(t for t, metric in samples if metric.value > 1.5) + 300


def test_one_pod_per_300_seconds_on_the_way_down():
    # the decode-heavy run went 4, 3, 2, 1 at 3,876, 4,176 and 4,475 s
    events = run(Autoscaler(minimum=1, maximum=4), steps((60, 8.0, 1.5), (1500, 0.0, 1.5)), replicas=4)
    assert [(before, after) for _, before, after in events] == [(4, 3), (3, 2), (2, 1)]
    first, second, third = (seconds for seconds, _, _ in events)
    assert (second - first, third - second) == (300, 300)


def test_one_pod_per_180_seconds_on_the_way_up():
    events = run(Autoscaler(minimum=1, maximum=4), steps((900, 30.0, 1.5)))
    assert events == [(0, 1, 2), (180, 2, 3), (360, 3, 4)]


def test_what_was_removed_within_the_period_is_credited():
    # 18 Aug 2026: two pods at once, 89 s after one had gone (limit = 1 + 1 removed + 1)
    scaler = Autoscaler(minimum=1, maximum=4)
    samples = [(1224 - 330 + t, metric) for t, metric in steps((15, 2.0, 1.5), (405, 0.0, 1.5), (480, 9.0, 1.5))]
    events = run(scaler, samples, replicas=2)
    [(down, *gone), (up, *come), *_] = events
    assert (gone, come) == ([2, 1], [1, 3])
    assert up - down < 180


def test_what_was_added_within_the_period_is_debited_on_the_way_down():
    quick = Behavior(up=FREE.up, down=Rules(policies=(pods(1, 300),)))
    grown = once(1, (4.0, 1.0), behavior=quick)
    # the period began with 1, so at least 0 would be allowed of it, and nothing below the replicas now is: 1 - 1 < 4
    assert once(4, (0.0, 1.0), behavior=quick, history=grown.history, now=15).replicas == 1


@pytest.mark.parametrize(("select", "after"), [(Select.MAX, 8), (Select.MIN, 5), (Select.DISABLED, 4)])
def test_select_policy_on_the_way_up(select, after):
    behavior = replace(FREE, up=Rules(policies=(percent(100, 60), pods(1, 60)), select=select))
    assert once(4, (100.0, 1.0), behavior=behavior).replicas == after


@pytest.mark.parametrize(("select", "after"), [(Select.MAX, 2), (Select.MIN, 4), (Select.DISABLED, 5)])
def test_select_policy_on_the_way_down(select, after):
    # half of 5 is cut to 2, as the controller's integer conversion does
    behavior = replace(FREE, down=Rules(policies=(percent(50, 60), pods(1, 60)), select=select))
    assert once(5, (0.0, 1.0), behavior=behavior).replicas == after


def test_a_percentage_rounds_up_on_the_way_up():
    behavior = replace(FREE, up=Rules(policies=(percent(10, 60),)))
    assert once(4, (100.0, 1.0), behavior=behavior).replicas == 5


def test_kubernetes_default_doubles_or_adds_four():
    assert once(1, (100.0, 1.0), behavior=KUBERNETES_DEFAULT, maximum=100).replicas == 5
    assert once(10, (100.0, 1.0), behavior=KUBERNETES_DEFAULT, maximum=100).replicas == 20


def test_scale_up_stabilization_takes_the_lowest_recent_wish():
    behavior = replace(FREE, up=replace(FREE.up, stabilization_seconds=60))
    scaler = Autoscaler(minimum=1, maximum=10, behavior=behavior)
    events = run(scaler, steps((30, 1.0, 1.0), (60, 3.0, 1.0), (180, 6.0, 1.0)))
    # the last wish for 1 was at 15 s and for 3 at 45 s; each stops counting 60 s later
    assert events == [(75, 1, 3), (105, 3, 6)]


def test_behavior_is_written_as_the_api_has_it():
    assert ONE_AT_A_TIME.to_dict() == {
        "scaleUp": {
            "stabilizationWindowSeconds": 0,
            "selectPolicy": "Max",
            "policies": [{"type": "Pods", "value": 1, "periodSeconds": 180}],
        },
        "scaleDown": {
            "stabilizationWindowSeconds": 300,
            "selectPolicy": "Max",
            "policies": [{"type": "Pods", "value": 1, "periodSeconds": 300}],
        },
    }
    assert replace(ONE_AT_A_TIME.up, tolerance=0.05).to_dict()["tolerance"] == "0.05"


def test_decode_of_the_published_staged_ramp_scales_at_the_same_syncs():
    # Prefill's gauge flaps between two looks of the sampler (0 in 60 % of them), so its samples do not determine what
    # the controller read at its own instants; decode's occupancy moves slowly enough to compare.
    recorded = json.loads(Path(__file__).with_name("staged_ramp.json").read_text())["samples"]
    samples = [(seconds, Metric(value=occupancy / 1000, target=0.8)) for seconds, _, occupancy in recorded]
    events = run(Autoscaler(minimum=1, maximum=4, behavior=ONE_AT_A_TIME), samples)
    published = [(2121, 1, 2), (2395, 2, 3), (2732, 3, 2), (3036, 2, 1)]
    assert [change for _, *change in events] == [change for _, *change in published]
    one_look = 17  # seconds: the sampler looked every 16 s, so a change shows up to one look late
    late = [ours - theirs for (ours, *_), (theirs, *_) in zip(events, published, strict=True)]
    assert all(abs(seconds) <= one_look for seconds in late), late


METRICS = st.lists(
    st.builds(Metric, value=st.none() | st.floats(0, 100), target=st.floats(0.1, 10)), min_size=1, max_size=3
)
BEHAVIORS = st.builds(
    Behavior,
    up=st.builds(
        Rules,
        policies=st.lists(
            st.builds(
                Policy, kind=st.sampled_from(PolicyKind), value=st.integers(1, 200), period_seconds=st.integers(1, 600)
            ),
            min_size=1,
            max_size=3,
        ).map(tuple),
        stabilization_seconds=st.integers(0, 600),
        select=st.sampled_from(Select),
        tolerance=st.floats(0, 0.5),
    ),
    down=st.builds(
        Rules,
        policies=st.lists(
            st.builds(
                Policy, kind=st.sampled_from(PolicyKind), value=st.integers(1, 100), period_seconds=st.integers(1, 600)
            ),
            min_size=1,
            max_size=3,
        ).map(tuple),
        stabilization_seconds=st.integers(0, 600),
        select=st.sampled_from(Select),
        tolerance=st.floats(0, 0.5),
    ),
)


@given(BEHAVIORS, st.lists(METRICS, min_size=1, max_size=30), st.integers(1, 5), st.integers(0, 10))
def test_replicas_stay_within_bounds_and_never_shrink_while_a_metric_fails(behavior, syncs, minimum, width):
    scaler = Autoscaler(minimum=minimum, maximum=minimum + width, behavior=behavior)
    history, replicas = History(), minimum
    for index, metrics in enumerate(syncs):
        scale = Scale(spec=replicas, status=replicas)
        decision = scaler.sync(history, now=index * SYNC_SECONDS, scale=scale, metrics=metrics)
        assert minimum <= decision.replicas <= minimum + width
        if any(metric.value is None for metric in metrics) and decision.replicas < replicas:
            assert decision.wanted is not None
            assert decision.wanted >= replicas
        history, replicas = decision.history, decision.replicas


@given(BEHAVIORS, st.floats(0, 50), st.integers(1, 8))
def test_a_steady_metric_is_a_fixed_point(behavior, value, replicas):
    scaler = Autoscaler(minimum=1, maximum=20, behavior=behavior)
    events = run(scaler, [(t, Metric(value=value, target=1.0)) for t in range(0, 3600 * 4, 60)], replicas)
    directions = {math.copysign(1, after - before) for _, before, after in events}
    assert len(directions) <= 1
