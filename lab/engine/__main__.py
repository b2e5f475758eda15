"""`python -m lab.engine -- ARGS`: run `pulumi ARGS` with the lab's engine, backend and cluster.

Backend and cluster are always the lab's, whatever the user's own settings name: an environment meant for the lab must
never reach another cluster. A machine's own Pulumi is used where it is recent enough. `python -m lab.engine --run --
COMMAND` runs another command, which calls `pulumi`, likewise.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from lab import host, locks
from lab.engine.environment import backend_environment, pulumi_environment
from lab.engine.install import install
from lab.errors import LabError
from lab.paths import DEFAULT_ID, Instance, cache_root
from lab.tools import toolchain
from lab.tools.families import ENGINE_TOOLS

if TYPE_CHECKING:
    from pathlib import Path


def main(argv: list[str]) -> None:
    """Become `pulumi`, or the command that calls it.

    Raises:
        SystemExit: There is no such instance or no engine; the message says what to do.
    """
    parser = argparse.ArgumentParser(prog="python -m lab.engine", description=__doc__)
    parser.add_argument(
        "--instance", default=DEFAULT_ID, help="the lab whose cluster and state are used (default: %(default)s)"
    )
    parser.add_argument("--run", action="store_true", help="ARGS are a whole command; `pulumi` is on its PATH")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="-- ARGS", help="what to hand to `pulumi`")
    options = parser.parse_args(argv)
    arguments = options.arguments[1:] if options.arguments[:1] == ["--"] else options.arguments
    try:
        host.require_root()
        instance = Instance(options.instance)
        if not locks.is_alive(instance):
            sys.exit(f"lab.engine: lab {instance.id!r} is not running; `make lab-up LAB={instance.id}` starts it")
        pulumi, settings = engine_for(instance)
    except LabError as error:
        sys.exit(f"lab.engine: {error}")
    command = arguments if options.run else [str(pulumi), *arguments]
    if not command:
        parser.error("--run wants a command")
    path = os.pathsep.join(filter(None, (str(pulumi.parent), os.environ.get("PATH"))))
    environment = {**os.environ, **settings, "PATH": path}
    os.execvpe(command[0], command, environment)  # noqa: S606 - a shell is the last thing wanted here


def engine_for(instance: Instance) -> tuple[Path, dict[str, str]]:
    """The CLI to use for an instance's cluster, and the variables to lay over the user's for it.

    An engine that is not there is built first, which takes ten minutes on two cores and is shown.

    Raises:
        EngineError: The installed SDK and the lab's provider do not fit.
        ToolError: The engine cannot be built.
    """
    state = instance.state / "pulumi"  # a stack's state lives as long as the cluster that it describes
    backend = state / "backend"
    backend.mkdir(parents=True, exist_ok=True)
    pulumi = toolchain.official_pulumi()
    if pulumi is None:
        programs = toolchain.build_all(only=ENGINE_TOOLS)
        engine = install(*(programs[name] for name in ENGINE_TOOLS), cache_root() / "engines")
        engine.make_home(state / "home")
        pulumi = engine.pulumi
        settings = pulumi_environment(state / "home", backend.as_uri())
    else:
        settings = backend_environment(backend.as_uri())
    return pulumi, {**settings, "KUBECONFIG": str(instance.kubeconfig)}


if __name__ == "__main__":
    main(sys.argv[1:])
