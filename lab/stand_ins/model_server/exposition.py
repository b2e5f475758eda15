"""How series are kept and rendered as Prometheus text.

The endpoint picker reads every model server twenty times a second. prometheus-client takes 2.8 ms of CPU for one such
page, 6 % of a core per pod; with the unchanging part of each line rendered once it is a tenth of that.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Value:
    """One sample: a gauge that is set, or a counter that grows."""

    __slots__ = ("_head", "value")

    def __init__(self, name: str, labels: Mapping[str, str]) -> None:
        self._head = _series(name, labels) + " "
        self.value = 0.0

    def set(self, value: float) -> None:
        """Make it `value`."""
        self.value = value

    def inc(self, by: float = 1.0) -> None:
        """Add to it."""
        self.value += by

    def lines(self) -> list[str]:
        """Its line."""
        return [f"{self._head}{float(self.value)!r}"]


class Histogram:
    """Observations by upper bound, with their sum and count."""

    __slots__ = ("_bounds", "_counts", "_heads", "_sum", "_tails")

    def __init__(self, name: str, labels: Mapping[str, str], bounds: Sequence[float]) -> None:
        self._bounds = [float(bound) for bound in bounds]
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0
        shown = [*(repr(bound) for bound in self._bounds), "+Inf"]
        self._heads = [_series(f"{name}_bucket", {**labels, "le": bound}) + " " for bound in shown]
        self._tails = [_series(f"{name}_{part}", labels) + " " for part in ("count", "sum")]

    def observe(self, value: float) -> None:
        """Count `value` into the first bucket whose bound it does not exceed."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def lines(self) -> list[str]:
        """Its cumulative buckets, then count and sum."""
        lines: list[str] = []
        total = 0
        for head, count in zip(self._heads, self._counts, strict=True):
            total += count
            lines.append(f"{head}{float(total)!r}")
        return [*lines, f"{self._tails[0]}{float(total)!r}", f"{self._tails[1]}{self._sum!r}"]


class _Series(Protocol):
    def lines(self) -> list[str]: ...


class Page:
    """All families of one server, in the order in which they were added."""

    def __init__(self) -> None:
        self._families: list[tuple[str, list[_Series]]] = []

    def add(self, name: str, kind: str, text: str, *series: _Series) -> None:
        """Show `series` under `name` (as it stands in the text, with `_total` for a counter)."""
        self._families.append((f"# HELP {name} {text}\n# TYPE {name} {kind}", list(series)))

    def render(self) -> bytes:
        """The exposition text."""
        lines: list[str] = []
        for header, members in self._families:
            lines.append(header)
            for series in members:
                lines += series.lines()
        lines.append("")
        return "\n".join(lines).encode()


def _series(name: str, labels: Mapping[str, str]) -> str:
    shown = ",".join(f'{key}="{_escaped(value)}"' for key, value in labels.items())
    return f"{name}{{{shown}}}" if shown else name


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
