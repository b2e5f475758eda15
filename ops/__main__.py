"""The day-2 command line: `python -m ops`."""

import dataclasses
import json
import sys
from enum import StrEnum
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cluster import Cluster, ClusterError
from ops.stack import StackError, outputs
from ops.verify import Check
from ops.verify import verify as checks_of

LOG_WIDTH = 120  # columns where no terminal says how many it has, as in CI

app = typer.Typer(no_args_is_help=True, add_completion=False)


class Output(StrEnum):
    """How results are printed."""

    TABLE = "table"
    JSON = "json"


@app.callback()
def commands() -> None:
    """Operate an llm-d environment: each command reads the stack's outputs and the live cluster."""


@app.command()
def verify(
    stack: Annotated[str, typer.Option(help="the Pulumi stack")],
    timeout_seconds: Annotated[float, typer.Option(help="how long scalers may take to become healthy")] = 180,
    output: Annotated[Output, typer.Option()] = Output.TABLE,
) -> None:
    """Prove that a stack does what it declares; exit 0 only if every check holds."""
    try:
        environment = outputs(stack)
        cluster = Cluster.connect()
    except (StackError, ClusterError) as unreadable:
        Console(stderr=True).print(f"[red]error:[/] {escape(str(unreadable))}")
        raise typer.Exit(2) from None
    checks = list(checks_of(cluster, environment, timeout_seconds))
    if output is Output.JSON:
        print(json.dumps([dataclasses.asdict(check) for check in checks], indent=2))
    else:
        Console(width=None if sys.stdout.isatty() else LOG_WIDTH).print(as_table(checks))
    raise typer.Exit(0 if all(check.holds for check in checks) else 1)


def as_table(checks: list[Check]) -> Table:
    """A row per check; one that does not hold says what to do."""
    table = Table("", "model", "check", "expected", "seen")
    for check in checks:
        # what a model or an API server says may contain brackets
        seen = escape(check.seen) if check.holds else f"{escape(check.seen)}\n[dim]{escape(check.remedy)}[/]"
        table.add_row("[green]✓[/]" if check.holds else "[red]✗[/]", check.model, check.name, check.expected, seen)
    return table


if __name__ == "__main__":
    app()
