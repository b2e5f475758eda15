"""How long to wait for a condition, and what to say when it never comes."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class NotYet(Exception):  # noqa: N818 - not an error: a condition that may still come true
    """Raised by a probe that has not seen what it waits for; the message says what it saw instead."""


def wait_for(what: str, probe: Callable[[], T], *, timeout_seconds: float, interval_seconds: float = 1.0) -> T:
    """The first value that `probe` returns instead of raising `NotYet`.

    The probe runs at least once. Any other exception ends the wait at once.

    Raises:
        TimeoutError: names `what`, the time waited in seconds and what was seen last.
    """
    deadline = time.monotonic() + timeout_seconds
    while True:
        try:
            return probe()
        except NotYet as last:
            if time.monotonic() >= deadline:
                msg = f"{what}: not within {timeout_seconds:g} s; seen last: {last}"
                raise TimeoutError(msg) from None
        time.sleep(interval_seconds)
