"""The day-2 command line: `python -m ops`."""

import dataclasses
import json
from enum import StrEnum
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from cluster import Cluster
from ops import stack as stacks
from ops.verify import Check
from ops.verify import verify as checks_of

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
        environment = stacks.outputs(stack)
    except stacks.StackError as unreadable:
        Console(stderr=True).print(f"[red]error:[/] {unreadable}")
        raise typer.Exit(2) from None
    checks = list(checks_of(Cluster.connect(), environment, timeout_seconds))
    if output is Output.JSON:
        print(json.dumps([dataclasses.asdict(check) for check in checks], indent=2))
    else:
        Console().print(_table(checks))
    raise typer.Exit(0 if all(check.holds for check in checks) else 1)


def _table(checks: list[Check]) -> Table:
    table = Table("", "model", "check", "expected", "seen")
    for check in checks:
        seen = check.seen if check.holds else f"{check.seen}\n[dim]{check.remedy}[/]"
        table.add_row("[green]✓[/]" if check.holds else "[red]✗[/]", check.model, check.name, check.expected, seen)
    return table


if __name__ == "__main__":
    app()
