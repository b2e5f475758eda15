"""The lab's command line: up, down, status, shell, tools, images."""

import json
import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from lab import host, lifecycle, status
from lab.errors import LabError
from lab.images import archives, importing
from lab.linux import namespaces
from lab.node import supervisor as lab_supervisor
from lab.node.certificates import Pki
from lab.node.control import Control, NotRunningError
from lab.node.records import PartState
from lab.node.spec import LabSpec
from lab.paths import DEFAULT_ID, Instance
from lab.progress import Progress
from lab.tools import toolchain

app = typer.Typer(
    help="A real one-node Kubernetes with GPU-less stand-ins.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

InstanceOption = Annotated[str, typer.Option("--instance", "-i", help="Which lab; each has its own paths and ports.")]


@contextmanager
def _refusals() -> Generator[None]:
    """Show what was refused as words instead of a traceback."""
    try:
        yield
    except LabError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        typer.echo("interrupted; what was started goes on: `lab up` completes it, `lab down` ends it", err=True)
        raise typer.Exit(130) from None


@app.command()
def up(  # noqa: PLR0913  one parameter per option
    *,
    instance: InstanceOption = DEFAULT_ID,
    gpus: Annotated[int | None, typer.Option(help="Fake nvidia.com/gpu on the node.", show_default="16")] = None,
    hpa_sync_period_seconds: Annotated[
        float | None, typer.Option(help="How often an HPA looks.", show_default="15")
    ] = None,
    hpa_downscale_stabilization_seconds: Annotated[
        float | None, typer.Option(help="An HPA's memory of higher wishes.", show_default="300")
    ] = None,
    hpa_initial_readiness_delay_seconds: Annotated[float | None, typer.Option(show_default="30")] = None,
    hpa_cpu_initialization_period_seconds: Annotated[float | None, typer.Option(show_default="300")] = None,
    hpa_tolerance: Annotated[float | None, typer.Option(show_default="0.1")] = None,
    node_only: Annotated[
        bool, typer.Option("--node-only", help="Only the node: no addons, no stand-in images.")
    ] = False,
) -> None:
    """Start the lab, or complete a running one: dead parts are started again, changed images and addons brought in."""
    wishes: dict[str, float | None] = {
        "gpus": gpus,
        "hpa_sync_period_seconds": hpa_sync_period_seconds,
        "hpa_downscale_stabilization_seconds": hpa_downscale_stabilization_seconds,
        "hpa_initial_readiness_delay_seconds": hpa_initial_readiness_delay_seconds,
        "hpa_cpu_initialization_period_seconds": hpa_cpu_initialization_period_seconds,
        "hpa_tolerance": hpa_tolerance,
    }
    with _refusals():
        lab = Instance(instance)
        report = lifecycle.up(lab, wishes, Progress(), node_only=node_only)
    if report.restarted:
        typer.echo(f"lab {lab.id!r} was running; started again: {', '.join(report.restarted)}")
    elif report.already:
        typer.echo(f"lab {lab.id!r} was running already; nothing to start")
    else:
        typer.echo(f"lab {lab.id!r} is up")
    typer.echo(f"export KUBECONFIG={lab.kubeconfig}")


@app.command()
def down(instance: InstanceOption = DEFAULT_ID) -> None:
    """End the lab and remove everything it kept."""
    with _refusals():
        lab = Instance(instance)
        there = lifecycle.down(lab, Progress())
    typer.echo(f"lab {lab.id!r} is down" if there else f"lab {lab.id!r} was not running; nothing to do")


@app.command("status")
def show_status(
    instance: InstanceOption = DEFAULT_ID,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of tables.")] = False,
) -> None:
    """Show parts, node, addons, memory and ports. Exit code: 0 all well, 1 something is wrong, 3 not running."""
    with _refusals():
        host.require_root()
        seen = status.look(Instance(instance))
    if as_json:
        typer.echo(json.dumps(seen.to_json(), indent=1))
    else:
        _print_status(seen)
    raise typer.Exit(seen.exit_code)


def _print_status(seen: status.LabStatus) -> None:
    console = Console(highlight=False, soft_wrap=True)
    if seen.running and seen.parts:
        table = Table(box=None, pad_edge=False)
        for column in ("part", "state", "pid", "ready in", "starts"):
            table.add_column(column)
        for part in seen.parts:
            state = f"[red]{part.state}[/red]" if part.state is not PartState.READY else str(part.state)
            ready = "" if part.seconds_to_ready is None else f"{part.seconds_to_ready:.1f} s"
            table.add_row(part.name, state, str(part.pid or ""), ready, str(part.starts))
        table.add_row("node", "ready" if seen.node_ready else "[red]not ready[/red]")
        for addon in seen.addons:
            table.add_row(f"addon {addon.name}", "ready" if addon.ready else "[red]not ready[/red]")
        console.print(table)
        console.print(f"memory {seen.memory_bytes / 2**20:.0f} MiB in {seen.processes} processes")
        first, last = min(seen.ports), max(seen.ports)
        console.print(f"API {seen.api}; NodePorts {first}-{last} on 127.0.0.1:{seen.ports[first]}-{seen.ports[last]}")
        console.print(f"export KUBECONFIG={seen.kubeconfig}")
    for problem in seen.problems:
        console.print(f"! {problem}", markup=False)


@app.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def shell(
    command: Annotated[list[str] | None, typer.Argument(help="Run this instead of an interactive shell.")] = None,
    instance: InstanceOption = DEFAULT_ID,
) -> None:
    """Enter the lab's namespaces, with KUBECONFIG and PATH set."""
    with _refusals():
        host.require_root()
        lab = Instance(instance)
        pid = Control(lab).pid()
        spec = LabSpec.read(lab)
    environment = {**os.environ, **lab_supervisor.environment(spec)}
    environment["TERM"] = os.environ.get("TERM", "dumb")
    environment["KUBECONFIG"] = str(Pki(lab.state / "pki").kubeconfig("admin"))
    environment["PS1"] = f"({lab.node}) \\w # "
    words = command or [os.environ.get("SHELL", "/bin/sh")]
    os.execvpe("nsenter", namespaces.enter(pid, words), environment)  # noqa: S606  no shell in between is the point


@app.command()
def tools() -> None:
    """Build the lab's programs and say where they are."""
    with _refusals():
        for name, path in toolchain.build_all(Progress()).items():
            typer.echo(f"{name} {path}")


@app.command()
def images(instance: InstanceOption = DEFAULT_ID) -> None:
    """Build the lab's images; a running lab gets those that changed."""
    with _refusals():
        lab = Instance(instance)
        progress = Progress()
        made = archives.ensure_images(progress)
        for archive in made:
            typer.echo(f"{archive.name} {archive.hash} {' '.join(archive.references)}")
        try:
            pid = Control(lab).pid()
        except NotRunningError:
            return
        with progress.step(f"import into lab {lab.id!r}"):
            new = [archive.name for archive in made if importing.bring_in(LabSpec.read(lab), pid, archive)]
        typer.echo(f"imported: {', '.join(new) or 'nothing new'}")


if __name__ == "__main__":
    app()
