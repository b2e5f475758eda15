"""Does a pod get the time that its last request needs?"""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmd.drain import drain_seconds, grace_seconds, idle_seconds


@pytest.mark.parametrize(
    ("ttft", "tokens", "step", "seconds"),
    [(4.0, 2048, 0.03, 66), (1.0, 2048, 0.02, 42), (0.0, 100, 0.01, 1), (0.1, 3, 0.3, 1), (0.1, 3, 0.3000004, 2)],
)
def test_drain_is_the_longest_request_rounded_up(ttft, tokens, step, seconds):
    assert drain_seconds(ttft_seconds=ttft, max_output_tokens=tokens, inter_token_seconds=step) == seconds


@given(st.floats(0.001, 600), st.integers(1, 100_000), st.floats(0.0001, 1))
def test_drain_covers_the_request_by_less_than_a_second(ttft, tokens, step):
    longest = ttft + tokens * step
    drain = drain_seconds(ttft_seconds=ttft, max_output_tokens=tokens, inter_token_seconds=step)
    assert longest - 1e-6 <= drain < longest + 1 + 1e-6
    assert isinstance(drain, int)


@pytest.mark.parametrize(("ttft", "seconds"), [(0.5, 10.0), (5.0, 10.0), (6.0, 12.0)])
def test_idle_is_two_ttfts_and_at_least_ten_seconds(ttft, seconds):
    assert math.isclose(idle_seconds(ttft_seconds=ttft), seconds)


def test_grace_is_drain_shutdown_and_margin():
    assert grace_seconds(drain=66, engine_shutdown=30, margin=15) == 111
    assert grace_seconds(drain=66) > 66
