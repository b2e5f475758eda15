"""How a long build tells the person in front of it where it is.

One line per step with its elapsed time: a moving one on a terminal, plain ones in a log.
"""

import os
import time
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import Progress as Bar
from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn


@dataclass(frozen=True)
class Progress:
    """Prints steps to a console.

    Attributes:
        console: Where to print; standard error by default, because standard output belongs to results.
    """

    console: Console = field(default_factory=lambda: Console(stderr=True, highlight=False))

    @property
    def live(self) -> bool:
        """Whether lines may move: a terminal, and not a CI job that only looks like one."""
        return self.console.is_terminal and os.environ.get("CI", "").lower() not in {"1", "true"}

    def note(self, text: str) -> None:
        """Print one line."""
        self.console.print(text, markup=False, soft_wrap=True)

    @contextmanager
    def step(self, label: str) -> Generator[None]:
        """Show that `label` is under way, then how long it took, or that it failed."""
        started = time.monotonic()
        mark = "✗"
        if not self.live:
            self.note(f"… {label}")
        try:
            with _spinner(self.console, label) if self.live else nullcontext():
                yield
            mark = "✓"
        finally:
            self.note(f"{mark} {label} {_elapsed(time.monotonic() - started)}")


def _elapsed(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else f"{int(seconds) // 60} min {int(seconds) % 60:02d} s"  # noqa: PLR2004


@contextmanager
def _spinner(console: Console, label: str) -> Generator[None]:
    columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
    with Bar(*columns, console=console, transient=True) as bar:
        bar.add_task(label, total=None)
        yield
