"""What a Pulumi stack says about itself: its outputs, read through the `pulumi` command."""

import json
import subprocess
from pathlib import Path

from llmd.outputs import EnvironmentOutputs, OutputsError

OUTPUT = "environment"  # the one export of __main__.py that this project's commands read
PROJECT = Path(__file__).parents[1]


class StackError(RuntimeError):
    """The outputs of a stack cannot be read; the message says why and what to do."""


def outputs(stack: str) -> EnvironmentOutputs:
    """The outputs contract of `stack`, from the backend that the `pulumi` command is logged into.

    Raises:
        StackError: no `pulumi` on PATH, no such stack, or a stack that was never deployed.
    """
    command = ["pulumi", "stack", "output", "--json", "--stack", stack, "--cwd", str(PROJECT)]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=True)
    except FileNotFoundError:
        raise StackError("`pulumi` is not on PATH; on the lab run `make verify`") from None
    except subprocess.CalledProcessError as failed:
        raise StackError(f"stack {stack}: {failed.stderr.strip()}") from None
    exported = json.loads(answer.stdout)
    if OUTPUT not in exported:
        raise StackError(f"stack {stack} has no output {OUTPUT!r}: run `pulumi up --stack {stack}` first")
    try:
        return EnvironmentOutputs.from_dict(exported[OUTPUT])
    except OutputsError as unreadable:
        raise StackError(f"stack {stack}: {unreadable}") from None
