"""How long the program and the lab take, and how much the lab holds: `make bench`.

Times of program and engine are medians of several runs; the lab starts once. Run it on an idle machine.
"""

import copy
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from lab.engine.__main__ import engine_for
from lab.paths import Instance
from tests.engine.stack import write_project
from tests.program import program

LAB = Instance("bench")
RUNS = 5


@dataclass(frozen=True)
class Figure:
    """One measured quantity: its samples, their unit, and what we aim at."""

    name: str
    samples: list[float]
    unit: str
    aim: float

    @property
    def median(self) -> float:
        """The figure to quote."""
        return statistics.median(self.samples)


def seconds(work: Callable[[], object]) -> float:
    """Wall time of one call."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def environment_of(models: int) -> dict[str, object]:
    """`dev` with its prefill/decode model as often as asked, each in a namespace of its own."""
    config = program.stack_file("dev")
    template = config["llm-d:models"]["tiny-pd"]
    config["llm-d:models"] = {}
    for number in range(models):
        model = copy.deepcopy(template)
        model["namespace"]["name"] = f"bench-{number:02d}"
        model["router"] = {
            "endpointPicker": {"cpu": "50m", "memory": "256Mi"},
            "envoy": {"cpu": "50m", "memory": "256Mi"},
        }
        config["llm-d:models"][f"model-{number:02d}"] = model
    config["llm-d:accelerators"]["sim"] |= {"nodes": models, "budget": 16 * models}
    return config


def under_mocks(models: int) -> list[float]:
    """Program runs in a process that has imported everything."""
    config = environment_of(models)

    def fresh() -> float:
        gc.collect()  # else a run pays for what the one before left: 20 to 30 % with 50 models
        return seconds(lambda: program.run(config))

    return [fresh() for _ in range(3)]


def previews(work: Path) -> tuple[list[float], list[float]]:
    """No-op preview of `dev` and preview of an empty program, in turn, with the same engine."""
    pulumi, settings = engine_for(LAB)
    environment = {**os.environ, **settings}
    empty = write_project(work / "empty", {"__main__.py": "import pulumi\n"}, name="empty")
    projects = {"empty": empty, "dev": program.ROOT}

    def run(stack: str, *words: str) -> None:
        command = [str(pulumi), *words, "--stack", stack, "--non-interactive"]
        subprocess.run(command, cwd=projects[stack], env=environment, check=True, capture_output=True)

    for stack in projects:
        run(stack, "stack", "init")
    run("dev", "up", "--yes", "--skip-preview")
    samples = [
        (seconds(lambda: run("dev", "preview", "--expect-no-changes")), seconds(lambda: run("empty", "preview")))
        for _ in range(RUNS)
    ]
    return [dev for dev, _ in samples], [empty for _, empty in samples]


def lab(*words: str) -> str:
    """`python -m lab WORDS` for the bench's own instance."""
    command = [sys.executable, "-m", "lab", *words, "--instance", LAB.id]
    return subprocess.run(command, cwd=program.ROOT, check=True, capture_output=True, text=True).stdout


def measure() -> list[Figure]:
    """Every figure, in the order in which they are printed."""
    program.run(environment_of(1))  # imports what is imported lazily
    figures = [
        Figure("program under mocks, 1 model", under_mocks(1), "s", 0.3),
        Figure("program under mocks, 50 models", under_mocks(50), "s", 4),
        Figure("lab start to all Ready", [seconds(lambda: lab("up"))], "s", 90),
    ]
    try:
        figures.append(
            Figure("lab memory, idle", [json.loads(lab("status", "--json"))["memory_bytes"] / 2**30], "GiB", 2)
        )
        with tempfile.TemporaryDirectory() as work:
            dev, empty = previews(Path(work))
        ratios = [one / other for one, other in zip(dev, empty, strict=True)]
        figures += [
            Figure("no-op preview of dev", dev, "s", float("inf")),
            Figure("preview of an empty program", empty, "s", float("inf")),
            Figure("no-op preview of dev / of an empty program", ratios, "x", 2),
        ]
    finally:
        lab("down")
    return figures


def main() -> None:
    """Print the figures; an aim that is missed is marked, not an error."""
    table = Table("", "median", "min", "max", "aim")
    for figure in measure():
        mark = "" if figure.median <= figure.aim else " [red]missed[/]"
        aim = f"<= {figure.aim:g} {figure.unit}{mark}" if figure.aim < float("inf") else ""
        values = (f"{value:.2f} {figure.unit}" for value in (figure.median, min(figure.samples), max(figure.samples)))
        table.add_row(figure.name, *values, aim)
    Console().print(table)


if __name__ == "__main__":
    main()
