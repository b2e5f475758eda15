"""When transfers end that share one link equally (processor sharing)."""

from __future__ import annotations

import heapq


class SharedLink:
    """A link of `tokens_per_second` on which k transfers at once each get 1/k of the rate.

    It keeps one number, the tokens that any transfer present all along would have received (`_served`): a transfer of
    n tokens that starts at level L ends when the level reaches L + n, whoever comes and goes in between. Levels are
    only computed when a transfer starts, ends or is cancelled, so asking often changes no result.
    """

    def __init__(self, tokens_per_second: float) -> None:
        if tokens_per_second <= 0:
            raise ValueError(f"a link needs a positive rate, not {tokens_per_second}")
        self._rate = tokens_per_second
        self._served = 0.0
        self._since = 0.0
        self._ends: list[tuple[float, int, str]] = []
        self._active: dict[str, int] = {}
        self._started = 0

    def __len__(self) -> int:
        return len(self._active)

    def __contains__(self, key: str) -> bool:
        return key in self._active

    def start(self, now: float, key: str, tokens: int) -> None:
        """Begin to move `tokens` tokens under `key`."""
        self._move_to(now)
        if not self._active:
            # An idle link starts from zero again, so that a long life does not eat the precision of the level.
            self._served, self._ends = 0.0, []
        self._started += 1
        self._active[key] = self._started
        heapq.heappush(self._ends, (self._served + tokens, self._started, key))

    def cancel(self, now: float, key: str) -> None:
        """Forget the transfer of `key`; the others get its share from now on."""
        self._move_to(now)
        del self._active[key]

    def next_end(self) -> float | None:
        """Time at which the next transfer ends if nothing else starts; None on an idle link."""
        self._drop_cancelled()
        if not self._ends:
            return None
        return self._since + (self._ends[0][0] - self._served) * len(self._active) / self._rate

    def finish_due(self, now: float) -> list[str]:
        """End the transfers that are due at `now` (the value of `next_end`), in the order in which they started."""
        self._drop_cancelled()
        level = self._ends[0][0]
        self._served, self._since = level, now
        done: list[str] = []
        while self._ends and self._ends[0][0] <= level:
            _, number, key = heapq.heappop(self._ends)
            if self._active.get(key) == number:
                del self._active[key]
                done.append(key)
        return done

    def _move_to(self, now: float) -> None:
        if self._active and now > self._since:
            self._served += (now - self._since) * self._rate / len(self._active)
        self._since = max(now, self._since)

    def _drop_cancelled(self) -> None:
        while self._ends and self._active.get(self._ends[0][2]) != self._ends[0][1]:
            heapq.heappop(self._ends)
