"""What is known of each part: running, ready, or how it died. Written by the supervisor, read by `status`."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from signal import Signals
from typing import Any


class PartState(StrEnum):
    """Where a part is in its life."""

    WAITING = "waiting"  # for the parts it needs
    STARTING = "starting"  # runs, and its probe has not answered yet
    READY = "ready"
    SILENT = "silent"  # was ready; the process is there and does not answer any more
    DEAD = "dead"


@dataclass(frozen=True, kw_only=True)
class PartRecord:
    """One part as the supervisor knows it.

    Attributes:
        name: The part.
        state: Where it is.
        pid: Its process inside the lab's PID namespace; 0 = none.
        seconds_to_ready: From the start of its process to its first answer.
        exit: How it ended, in words.
        ended_at: When, seconds since the epoch.
        last_lines: What it said last.
        starts: How often it was started.
    """

    name: str
    state: PartState = PartState.WAITING
    pid: int = 0
    seconds_to_ready: float | None = None
    exit: str | None = None
    ended_at: float | None = None
    last_lines: tuple[str, ...] = ()
    starts: int = 0

    @property
    def running(self) -> bool:
        """Whether it has a process."""
        return self.state in {PartState.STARTING, PartState.READY, PartState.SILENT}

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "PartRecord":
        """Back from `to_json`."""
        values = dict(document)
        values["state"] = PartState(values["state"])
        values["last_lines"] = tuple(values["last_lines"])
        return cls(**values)


def exit_words(code: int) -> str:
    """A wait status in words: `exit status 2`, `killed by SIGKILL`; negative codes are signals, as in subprocess."""
    if code < 0:
        try:
            return f"killed by {Signals(-code).name}"
        except ValueError:
            return f"killed by signal {-code}"
    return f"exit status {code}"
