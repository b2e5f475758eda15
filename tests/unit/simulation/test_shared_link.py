"""Transfers on a shared link end when processor sharing says so."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulation.shared_link import SharedLink


def drain(link: SharedLink) -> list[tuple[float, str]]:
    ended = []
    while (time := link.next_end()) is not None:
        ended += [(time, key) for key in link.finish_due(time)]
    return ended


def test_one_transfer_has_the_whole_rate():
    link = SharedLink(1000.0)
    link.start(5.0, "a", 2000)
    assert drain(link) == [(7.0, "a")]


def test_two_transfers_at_once_take_twice_as_long():
    link = SharedLink(1000.0)
    link.start(0.0, "a", 2000)
    link.start(0.0, "b", 2000)
    assert drain(link) == [(4.0, "a"), (4.0, "b")]


def test_a_later_transfer_slows_the_first_only_while_both_run():
    link = SharedLink(1000.0)
    link.start(0.0, "a", 2000)
    link.start(1.0, "b", 2000)  # a has 1000 left and gets 500/s until 3.0; then b has 1000 left and the whole rate
    assert drain(link) == [(3.0, "a"), (4.0, "b")]


def test_a_cancelled_transfer_leaves_its_share_to_the_others():
    link = SharedLink(1000.0)
    link.start(0.0, "a", 2000)
    link.start(0.0, "b", 2000)
    link.cancel(2.0, "b")  # each has moved 1000
    assert drain(link) == [(3.0, "a")]
    assert len(link) == 0


def test_a_key_may_come_back_after_it_was_cancelled():
    link = SharedLink(1000.0)
    link.start(0.0, "a", 1000)
    link.cancel(0.5, "a")
    link.start(2.0, "a", 3000)
    assert drain(link) == [(5.0, "a")]


def test_a_link_without_rate_is_refused():
    with pytest.raises(ValueError, match="positive rate"):
        SharedLink(0.0)


@given(st.lists(st.tuples(st.floats(0, 10), st.integers(1, 100_000)), min_size=1, max_size=20))
def test_a_busy_link_moves_exactly_its_rate(transfers):
    link, clock, ended = SharedLink(5000.0), 0.0, []
    for number, (gap, tokens) in enumerate(transfers):
        at = clock + gap
        while (time := link.next_end()) is not None and time <= at:
            ended += [(time, key) for key in link.finish_due(time)]
        link.start(at, str(number), tokens)
        clock = at
    ended += drain(link)
    assert sorted(key for _, key in ended) == sorted(str(number) for number in range(len(transfers)))
    # The last end of a busy period is when all work that arrived in it is done, in whatever order it was shared.
    clock, free = 0.0, 0.0
    for gap, tokens in transfers:
        clock += gap
        free = max(free, clock) + tokens / 5000.0
    assert max(time for time, _ in ended) == pytest.approx(free, rel=1e-9)
