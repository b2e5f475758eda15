"""How fast one replica takes in a prompt, as one record with one text for every reader."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

PRECISION = 3  # decimals that a rate keeps; 0.001 tokens/s is far below what a measurement can tell
_LIMIT = 1e12  # tokens/s; up to here a float and its text of three decimals are the same number


class RateError(ValueError):
    """A throughput that no system can have, or a record that cannot be read."""


class RateMode(StrEnum):
    """Where a record comes from: measured on the cluster, or pinned in the environment's configuration."""

    MEASURE = "measure"
    PINNED = "pinned"


def text(tokens_per_second: float) -> str:
    """The exact text of a rate that every reader carries: the shortest of up to 3 decimals, whole numbers without ".0".

    Raises:
        RateError: the rate is not a positive finite number (or rounds to 0).
    """
    if not 0 < tokens_per_second < _LIMIT:
        raise RateError(f"a throughput is a positive number of tokens per second, not {tokens_per_second:g}")
    shortest = f"{tokens_per_second:.{PRECISION}f}".rstrip("0").rstrip(".")
    if shortest == "0":
        raise RateError(f"a throughput of {tokens_per_second:g} tokens per second rounds to 0")
    return shortest


@dataclass(frozen=True, kw_only=True)
class Rates:
    """The throughputs of one calibration record, in tokens per second.

    `path` is V_P, the whole path that a request takes (on P/D through the decode pod's sidecar, KV transfer
    included); `prefill` is the same request straight to the prefill pod, None where there is no second path
    (co-located). Both are kept at 3 decimals, so that a value always equals its text.

    Raises:
        RateError: a rate is not a positive finite number, or the path is not slower than the prefill that is a part
            of it.
    """

    path: float
    prefill: float | None = None
    mode: RateMode
    source: str  # for people: where the numbers come from
    key: str = ""  # identity of what was measured: hash of the fingerprint; empty when pinned

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", float(text(self.path)))
        if self.prefill is None:
            return
        object.__setattr__(self, "prefill", float(text(self.prefill)))
        if self.path >= self.prefill:
            raise RateError(
                f"the path's throughput ({text(self.path)} tokens/s) must be below prefill's "
                f"({text(self.prefill)} tokens/s): the path contains the prefill and the KV transfer"
            )
        if _series_rest(self.path, self.prefill) >= _LIMIT:
            raise RateError(
                f"path ({text(self.path)} tokens/s) and prefill ({text(self.prefill)} tokens/s) leave no measurable KV "
                "transfer between them"
            )

    @property
    def path_text(self) -> str:
        """Text of V_P: the endpoint picker's parameter and the divisor of the path query."""
        return text(self.path)

    @property
    def prefill_text(self) -> str:
        """Text of the prefill throughput, the divisor of the prefill phase query; co-located the path's."""
        return self.path_text if self.prefill is None else text(self.prefill)

    @property
    def transfer(self) -> float | None:
        """KV transfer into one decode pod, 1/(1/path - 1/prefill) tokens/s at 3 decimals; None when co-located."""
        if self.prefill is None:
            return None
        return float(text(_series_rest(self.path, self.prefill)))

    @property
    def transfer_text(self) -> str:
        """Text of `transfer`, the divisor of the transfer query.

        Raises:
            RateError: the record has only one rate (co-located).
        """
        if self.transfer is None:
            raise RateError("a record without a prefill throughput of its own has no transfer rate")
        return text(self.transfer)

    def to_dict(self) -> dict[str, object]:
        """The record as JSON values, every rate as its text.

        `transfer` is there to be read, `from_dict` derives it anew.
        """
        data: dict[str, object] = {"path": self.path_text}
        if self.prefill is not None:
            data |= {"prefill": self.prefill_text, "transfer": self.transfer_text}
        return {**data, "mode": self.mode.value, "source": self.source, "key": self.key}

    @classmethod
    def from_dict(cls, data: dict[str, object]) -> Rates:
        """Inverse of `to_dict`.

        Raises:
            RateError: a field is missing or cannot be read, or `transfer` does not follow from the other two.
        """
        try:
            prefill = data.get("prefill")
            rates = cls(
                path=float(str(data["path"])),
                prefill=None if prefill is None else float(str(prefill)),
                mode=RateMode(str(data["mode"])),
                source=str(data["source"]),
                key=str(data["key"]),
            )
        except KeyError as missing:
            raise RateError(f"a record of rates needs {missing.args[0]!r}") from missing
        except RateError:
            raise
        except ValueError as unreadable:
            raise RateError(f"a record of rates cannot be read: {unreadable}") from unreadable
        stated = data.get("transfer")
        if stated is not None and (rates.transfer is None or not math.isclose(float(str(stated)), rates.transfer)):
            raise RateError(
                f"transfer {stated} does not follow from path {rates.path_text} and prefill {rates.prefill_text}"
            )
        return rates


def _series_rest(path: float, part: float) -> float:
    """Throughput of the other part of a path: 1/(1/path - 1/part), without the rounding of two reciprocals."""
    return path * part / (part - path)
