"""How waiting ends."""

import pytest

from cluster import NotYet, wait_for


def test_waiting_returns_the_first_value_the_probe_has():
    answers = iter([NotYet("0 of 2"), NotYet("1 of 2"), 2])

    def probe():
        answer = next(answers)
        if isinstance(answer, NotYet):
            raise answer
        return answer

    assert wait_for("two pods", probe, timeout_seconds=60, interval_seconds=0) == 2


def test_waiting_in_vain_says_what_was_seen_last():
    def probe():
        raise NotYet("1 of 2 ready")

    with pytest.raises(TimeoutError, match=r"two pods: not within 0 s; seen last: 1 of 2 ready"):
        wait_for("two pods", probe, timeout_seconds=0)


def test_an_error_that_is_no_not_yet_ends_the_wait_at_once():
    calls = []

    def probe():
        calls.append(1)
        raise PermissionError("pods is forbidden")

    with pytest.raises(PermissionError):
        wait_for("two pods", probe, timeout_seconds=60, interval_seconds=0)
    assert len(calls) == 1
