"""An engine emits its tokens when its rates, its pool and its queue say so."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulation.engine import Engine, EngineConfig, Event, EventKind, Load, Request

CONFIG = EngineConfig(
    prefill_tokens_per_second=8192.0,
    transfer_tokens_per_second=4096.0,
    decode_base_seconds=0.010,
    decode_seconds_per_sequence=0.001,
    kv_tokens=160_000,
    block_size=16,
    max_num_batched_tokens=8192,
    max_num_seqs=64,
    hold_timeout_seconds=30.0,
)


def run(engine: Engine) -> list[Event]:
    events = engine.advance(0.0)
    while (time := engine.next_event()) is not None:
        events += engine.advance(time)
    return events


def times(events: list[Event], kind: EventKind, request_id: str) -> list[float]:
    return [event.time for event in events if event.kind is kind and event.request_id == request_id]


def ask(request_id: str, prompt: int, output: int = 1, **more) -> Request:
    return Request(id=request_id, prompt_tokens=prompt, output_tokens=output, **more)


def test_an_idle_engine_prefills_in_tokens_over_speed():
    engine = Engine(CONFIG)
    engine.submit(3.0, ask("a", 8192))
    assert run(engine) == [
        Event(3.0, EventKind.SCHEDULED, "a"),
        Event(4.0, EventKind.TOKEN, "a"),
        Event(4.0, EventKind.FINISHED, "a"),
    ]
    assert engine.load() == Load(running=0, waiting_capacity=0, waiting_deferred=0, kv_usage=0.0)


def test_a_prompt_longer_than_the_chunk_takes_several_steps_and_the_same_time():
    engine = Engine(replace(CONFIG, max_num_batched_tokens=1000))
    engine.submit(0.0, ask("a", 8192))
    assert times(run(engine), EventKind.TOKEN, "a") == [pytest.approx(1.0)]


def test_prompts_are_served_first_come_first_served_and_wait_for_capacity():
    engine = Engine(CONFIG)
    for name in "abc":
        engine.submit(0.0, ask(name, 8192))
    assert engine.load() == Load(running=1, waiting_capacity=2, waiting_deferred=0, kv_usage=512 / 10_000)
    events = run(engine)
    assert [times(events, EventKind.TOKEN, name) for name in "abc"] == [[1.0], [2.0], [3.0]]


def test_short_prompts_that_queued_share_one_step_and_its_end():
    engine = Engine(CONFIG)
    engine.submit(0.0, ask("first", 4096))
    for name in ("a", "b"):
        engine.submit(0.1, ask(name, 2048))
    events = run(engine)
    assert times(events, EventKind.TOKEN, "first") == [0.5]
    assert times(events, EventKind.TOKEN, "a") == times(events, EventKind.TOKEN, "b") == [1.0]


def test_decode_latency_grows_with_the_number_of_sequences():
    engine = Engine(CONFIG)
    for name in "abcd":
        engine.submit(0.0, ask(name, 16, 3, remote_prefill=True))
    tokens = [event.time for event in run(engine) if event.kind is EventKind.TOKEN]
    arrival = 4 * 16 / 4096
    assert tokens == pytest.approx([arrival + 0.014 * step for step in (1, 2, 3) for _ in range(4)])


def test_a_sequence_joins_decode_at_the_next_step():
    engine = Engine(CONFIG)
    engine.submit(0.0, ask("a", 8192, 4))
    engine.submit(0.0, ask("b", 82, 2))  # done at 1.01001, while the first decode step of a lasts until 1.011
    events = run(engine)
    assert times(events, EventKind.TOKEN, "a") == pytest.approx([1.0, 1.011, 1.023, 1.034])
    assert times(events, EventKind.TOKEN, "b") == pytest.approx([1.0 + 82 / 8192, 1.023])


def test_two_transfers_at_once_take_twice_as_long_as_one():
    def first_token(count: int) -> float:
        engine = Engine(replace(CONFIG, decode_seconds_per_sequence=0.0))
        for number in range(count):
            engine.submit(0.0, ask(str(number), 4096, remote_prefill=True))
        return times(run(engine), EventKind.TRANSFERRED, "0")[0]

    assert first_token(2) == 2 * first_token(1) == 2.0


def test_a_transfer_is_waiting_deferred_and_has_its_blocks():
    engine = Engine(CONFIG)
    engine.submit(0.0, ask("a", 1600, 2, remote_prefill=True))
    assert engine.load() == Load(running=0, waiting_capacity=0, waiting_deferred=1, kv_usage=0.01)
    engine.advance(1600 / 4096)
    assert engine.load() == Load(running=1, waiting_capacity=0, waiting_deferred=0, kv_usage=0.01)


def test_a_remote_prefill_costs_the_prefill_engine_nothing():
    engine = Engine(CONFIG)
    engine.submit(0.0, ask("remote", 4096, remote_prefill=True))
    engine.submit(0.0, ask("local", 8192))
    events = run(engine)
    assert times(events, EventKind.TOKEN, "local") == [1.0]
    assert times(events, EventKind.TOKEN, "remote") == pytest.approx([1.011])


def test_a_request_without_blocks_waits_for_capacity_and_blocks_those_behind_it():
    engine = Engine(replace(CONFIG, kv_tokens=16_384))
    engine.submit(0.0, ask("a", 8192, hold_for_pull=True))
    engine.advance(1.0)
    engine.submit(1.0, ask("big", 16_384))
    engine.submit(1.0, ask("small", 16))
    assert engine.load() == Load(running=0, waiting_capacity=2, waiting_deferred=0, kv_usage=0.5)
    assert engine.pulled(5.0, "a")
    events = run(engine)
    assert times(events, EventKind.TOKEN, "big") == [7.0]
    assert times(events, EventKind.TOKEN, "small") == [7.0 + 16 / 8192]


def test_no_more_than_max_num_seqs_run():
    engine = Engine(replace(CONFIG, max_num_seqs=2))
    for name in "abc":
        engine.submit(0.0, ask(name, 16, 5, remote_prefill=True))
    engine.submit(0.0, ask("d", 16, 5, remote_prefill=True))
    seen = []
    while (time := engine.next_event()) is not None:
        engine.advance(time)
        seen.append(engine.load().running)
    assert max(seen) == 2
    assert seen[-1] == 0


def test_held_blocks_stay_until_they_are_pulled():
    engine = Engine(CONFIG)
    engine.submit(0.0, ask("a", 1600, hold_for_pull=True))
    engine.advance(1.0)
    assert engine.holds("a")
    assert engine.load() == Load(running=0, waiting_capacity=0, waiting_deferred=0, kv_usage=0.01)
    assert engine.pulled(2.0, "a")
    assert not engine.pulled(2.0, "a")
    assert engine.load().kv_usage == 0.0


def test_held_blocks_that_nobody_pulls_expire():
    engine = Engine(CONFIG)
    engine.submit(0.0, ask("a", 8192, hold_for_pull=True))
    assert run(engine)[-1] == Event(31.0, EventKind.EXPIRED, "a")
    assert not engine.pulled(31.0, "a")
    assert engine.load().kv_usage == 0.0


@pytest.mark.parametrize("at", [0.2, 1.005, 1.2])
@pytest.mark.parametrize("remote", [False, True])
def test_an_aborted_request_frees_everything_and_says_no_more(at, remote):
    engine = Engine(CONFIG)
    engine.submit(0.0, ask("a", 8192, 200, remote_prefill=remote))
    engine.advance(at)
    assert engine.abort(at, "a")
    assert engine.load() == Load(running=0, waiting_capacity=0, waiting_deferred=0, kv_usage=0.0)
    assert not [event for event in run(engine) if event.request_id == "a"]
    assert not engine.abort(at, "a")


def test_an_aborted_transfer_leaves_its_bandwidth_to_the_others():
    engine = Engine(CONFIG)
    engine.submit(0.0, ask("a", 4096, remote_prefill=True))
    engine.submit(0.0, ask("b", 4096, remote_prefill=True))
    engine.abort(1.0, "b")
    assert times(run(engine), EventKind.TRANSFERRED, "a") == [1.5]


def test_an_empty_pool_preempts_the_youngest_which_computes_its_context_again():
    config = replace(CONFIG, kv_tokens=64, decode_seconds_per_sequence=0.0)
    engine = Engine(config)
    engine.submit(0.0, ask("old", 17, 30))
    engine.submit(0.0, ask("young", 17, 25))
    events = run(engine)
    assert times(events, EventKind.PREEMPTED, "young")
    assert not times(events, EventKind.PREEMPTED, "old")
    assert len(times(events, EventKind.TOKEN, "old")) == 30
    assert len(times(events, EventKind.TOKEN, "young")) == 25
    assert max(times(events, EventKind.TOKEN, "young")) > max(times(events, EventKind.TOKEN, "old"))


def test_a_late_submit_counts_from_its_arrival_on_an_idle_engine():
    engine = Engine(CONFIG)
    engine.advance(10.0)
    engine.submit(9.99, ask("a", 8192))
    assert times(run(engine), EventKind.TOKEN, "a") == [10.99]


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (ask("a", 0), "at least one prompt token"),
        (ask("a", 1, 0), "at least one prompt token"),
        (ask("a", 160_001), "needs 10001 KV blocks, the pool has 10000"),
        (ask("twice", 1), "already here"),
    ],
)
def test_a_request_that_cannot_be_is_refused(request_, says):
    engine = Engine(CONFIG)
    engine.submit(0.0, ask("twice", 8192))
    with pytest.raises(ValueError, match=says):
        engine.submit(0.0, request_)


@pytest.mark.parametrize("field", ["prefill_tokens_per_second", "decode_base_seconds", "max_num_seqs", "kv_tokens"])
def test_a_config_without_a_rate_or_a_pool_is_refused(field):
    with pytest.raises(ValueError, match=r"must be|holds no block"):
        Engine(replace(CONFIG, **{field: 0}))


def test_a_negative_slope_is_refused():
    with pytest.raises(ValueError, match="must not be negative"):
        replace(CONFIG, decode_seconds_per_sequence=-0.1)


# Properties over random scenarios: small pools and batches, so that queueing, preemption and holding all happen.
scenarios = st.lists(
    st.fixed_dictionaries(
        {
            "gap": st.floats(0, 0.2),
            "prompt": st.integers(1, 600),
            "output": st.integers(1, 40),
            "remote": st.booleans(),
            "hold": st.booleans(),
            "abort_after": st.none() | st.floats(0, 0.3),
        }
    ),
    min_size=1,
    max_size=12,
)
SMALL = replace(CONFIG, kv_tokens=1024, max_num_seqs=4, max_num_batched_tokens=256, hold_timeout_seconds=0.5)


def calls(scenario):
    """The submits and aborts of a scenario in order of time."""
    clock, out = 0.0, []
    for number, step in enumerate(scenario):
        clock += step["gap"]
        request = ask(
            str(number), step["prompt"], step["output"], remote_prefill=step["remote"], hold_for_pull=step["hold"]
        )
        out.append((clock, "submit", request))
        if step["abort_after"] is not None:
            out.append((clock + step["abort_after"], "abort", str(number)))
    return sorted(out, key=lambda call: call[0])


def play(scenario, stride: float | None = None):
    """Run a scenario, looking every `stride` seconds (None: only at the calls and the end); returns the events."""
    engine, events, looked = Engine(SMALL), [], 0.0
    for at, what, argument in calls(scenario):
        while stride is not None and looked + stride < at:
            looked += stride
            events += engine.advance(looked)
            check_state(engine)
        if what == "submit":
            engine.submit(at, argument)
        else:
            engine.abort(at, argument)
        check_state(engine)
        looked = at
    while (time := engine.next_event()) is not None:
        events += engine.advance(time if stride is not None else 1e6)
        check_state(engine)
    return engine, events + engine.advance(1e6)


def check_state(engine: Engine) -> None:
    load = engine.load()
    assert 0.0 <= load.kv_usage <= 1.0
    assert 0 <= load.running <= SMALL.max_num_seqs
    assert load.waiting_capacity >= 0
    assert load.waiting_deferred >= 0
    if load.running or load.waiting:
        assert engine.next_event() is not None, "work is there and nothing would ever happen"


@given(scenarios)
def test_every_request_gets_exactly_its_tokens_or_was_aborted(scenario):
    engine, events = play(scenario)
    for number, step in enumerate(scenario):
        tokens = len(times(events, EventKind.TOKEN, str(number)))
        finished = len(times(events, EventKind.FINISHED, str(number)))
        if step["abort_after"] is None:
            assert (tokens, finished) == (step["output"], 1)
        else:
            assert finished == (tokens == step["output"])
    assert engine.load() == Load(running=0, waiting_capacity=0, waiting_deferred=0, kv_usage=0.0)
    assert events == sorted(events, key=lambda event: event.time)


@given(scenarios, st.floats(0.001, 0.1))
def test_looking_often_changes_nothing(scenario, stride):
    assert play(scenario, stride)[1] == play(scenario)[1]


@given(st.lists(st.integers(1, 20_000), min_size=1, max_size=20), st.integers(1, 20_000))
def test_a_burst_is_served_in_order_without_a_gap(prompts, chunk):
    engine = Engine(replace(CONFIG, kv_tokens=10_000_000, max_num_batched_tokens=chunk))
    for number, prompt in enumerate(prompts):
        engine.submit(0.0, ask(str(number), prompt))
    firsts = [event for event in run(engine) if event.kind is EventKind.TOKEN]
    assert [event.request_id for event in firsts] == [str(number) for number in range(len(prompts))]
    assert firsts[-1].time == pytest.approx(sum(prompts) / CONFIG.prefill_tokens_per_second)
