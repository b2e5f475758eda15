"""How metrics are counted and written in the Prometheus text format, the way Go's client writes them.

A family without a series is left out entirely, so that a series exists from its first event on; numbers and `le` bounds
have Go's shortest form (`0.1`, `1`, `1.048576e+06`, `+Inf`).
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from math import inf, isinf, isnan
from typing import Protocol

Labels = tuple[str, ...]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_FIRST_SCIENTIFIC_EXPONENT = 6  # Go writes 1e+06 in scientific form, 999999 plainly
_SMALLEST_PLAIN_EXPONENT = -4


class Family(Protocol):
    """Anything that can be written as one metric family."""

    def lines(self) -> Iterable[str]:
        """HELP, TYPE and samples; nothing at all without samples."""
        ...


def number(value: float) -> str:
    """`value` as Go's shortest `%g` writes it."""
    if isnan(value):
        return "NaN"
    if isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if value == 0:
        return "0"
    sign, digits, scale = Decimal(repr(float(value))).normalize().as_tuple()
    exponent = len(digits) + int(scale) - 1
    if _SMALLEST_PLAIN_EXPONENT <= exponent < _FIRST_SCIENTIFIC_EXPONENT:
        return format(Decimal(repr(float(value))).normalize(), "f")
    text = "".join(map(str, digits))
    mantissa = text[0] + ("." + text[1:] if text[1:] else "")
    return f"{'-' if sign else ''}{mantissa}e{exponent:+03d}"


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def sample(name: str, labels: Mapping[str, str], value: float) -> str:
    """One line; labels in alphabetical order, as Go's client has them, `le` last."""
    pairs = sorted((key, text) for key, text in labels.items() if key != "le")
    if "le" in labels:
        pairs.append(("le", labels["le"]))
    inside = ",".join(f'{key}="{_escape(text)}"' for key, text in pairs)
    return f"{name}{{{inside}}} {number(value)}" if inside else f"{name} {number(value)}"


def _head(name: str, help_text: str, kind: str) -> list[str]:
    return [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}"]


class Values:
    """A counter or gauge with label names."""

    def __init__(self, kind: str, name: str, help_text: str, label_names: Labels = ()) -> None:
        self._kind, self._name, self._help, self._label_names = kind, name, help_text, label_names
        self._values: dict[Labels, float] = {}

    def add(self, amount: float, *labels: str) -> None:
        """Raise (or lower) one series; it exists from then on."""
        self._values[labels] = self._values.get(labels, 0.0) + amount

    def set(self, value: float, *labels: str) -> None:
        """Set one series; it exists from then on."""
        self._values[labels] = value

    def lines(self) -> Iterable[str]:
        """See `Family`."""
        if not self._values:
            return []
        return _head(self._name, self._help, self._kind) + [
            sample(self._name, dict(zip(self._label_names, labels, strict=True)), value)
            for labels, value in sorted(self._values.items())
        ]


class Rebuilt:
    """A gauge whose series are asked for at each scrape, and so never outlive what they describe."""

    def __init__(
        self, name: str, help_text: str, collect: Callable[[], Iterable[tuple[Mapping[str, str], float]]]
    ) -> None:
        self._name, self._help, self._collect = name, help_text, collect

    def lines(self) -> Iterable[str]:
        """See `Family`."""
        samples = sorted(sample(self._name, labels, value) for labels, value in self._collect())
        return _head(self._name, self._help, "gauge") + samples if samples else []


class Histogram:
    """A histogram with label names; `bounds` without +Inf, ascending."""

    def __init__(self, name: str, help_text: str, bounds: tuple[float, ...], label_names: Labels = ()) -> None:
        self._name, self._help, self._label_names = name, help_text, label_names
        self._bounds = (*bounds, inf)
        self._counts: dict[Labels, list[int]] = {}
        self._sums: dict[Labels, float] = {}

    def observe(self, value: float, *labels: str) -> None:
        """Count one observation."""
        counts = self._counts.setdefault(labels, [0] * len(self._bounds))
        counts[bisect_left(self._bounds, value)] += 1
        self._sums[labels] = self._sums.get(labels, 0.0) + value

    def lines(self) -> Iterable[str]:
        """See `Family`."""
        if not self._counts:
            return []
        lines = _head(self._name, self._help, "histogram")
        for values, counts in sorted(self._counts.items()):
            labels = dict(zip(self._label_names, values, strict=True))
            below = 0
            for bound, count in zip(self._bounds, counts, strict=True):
                below += count
                lines.append(sample(f"{self._name}_bucket", labels | {"le": number(bound)}, below))
            lines.append(sample(f"{self._name}_sum", labels, self._sums[values]))
            lines.append(sample(f"{self._name}_count", labels, below))
        return lines


def render(families: Iterable[Family]) -> str:
    """The whole exposition, families in alphabetical order."""
    blocks = sorted(list(family.lines()) for family in families)
    return "".join(f"{line}\n" for block in blocks for line in block)
