"""What is left when a command is interrupted (no process) or killed (a lock that `cancel` takes away)."""

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.engine.api_server import wait_for
from tests.engine.conftest import StackMaker
from tests.engine.stack import Stack, alive, descendants, end

PROVIDER = """
import time
from pathlib import Path

from pulumi.dynamic import CreateResult, Resource, ResourceProvider


class SlowProvider(ResourceProvider):
    def create(self, props):
        Path("creating").touch()
        deadline = time.monotonic() + 60
        while not Path("go").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        return CreateResult("slow-1", props)


class Slow(Resource):
    def __init__(self, name):
        super().__init__(SlowProvider(), name, {})
"""
PROGRAM = "import pulumi_random as random\nfrom slow import Slow\nrandom.RandomPet('pet')\nSlow('one')\n"
FILES = {"__main__.py": PROGRAM, "slow.py": PROVIDER}


@dataclass(frozen=True)
class Creating:
    """An `up` in the middle of a create."""

    stack: Stack
    pid: int
    below: dict[int, str]  # process id → command line of all that it started

    def proceed(self) -> None:
        """Let the create end."""
        (self.stack.project / "go").touch()


@pytest.fixture
def creating(make_stack: StackMaker) -> Iterator[Creating]:
    """An `up` whose create goes on until it is told to proceed; killed, with what it started, at the end."""
    stack = make_stack(FILES)
    process = stack.start("up", "--yes", "--skip-preview")
    below: dict[int, str] = {}
    try:
        wait_for((stack.project / "creating").exists, "the create to begin")
        below = descendants(process.pid)
        commands = " ".join(below.values())
        for part in ("language_host", "program.py", "random_provider", "pulumi.dynamic"):
            assert part in commands, below
        yield Creating(stack, process.pid, below)
    finally:
        (stack.project / "go").touch()
        end(process)
        process.communicate()
        for pid in alive(below):
            os.kill(pid, signal.SIGKILL)


def test_an_interrupted_up_finishes_what_is_under_way_and_leaves_no_process(creating: Creating):
    os.kill(creating.pid, signal.SIGINT)
    creating.proceed()
    wait_for(lambda: not alive({creating.pid, *creating.below}), "every process to end", 30)

    made = [one for one in creating.stack.resources() if one["type"] == "pulumi-python:dynamic:Resource"]
    assert [one["id"] for one in made] == ["slow-1"]
    assert creating.stack.up().diagnostics == []
    assert creating.stack.preview().changes == {}


def test_after_a_killed_up_our_hosts_end_and_cancel_frees_the_state(creating: Creating):
    os.kill(creating.pid, signal.SIGKILL)
    # The server of dynamic providers is the SDK's and does not watch its parent: it goes on with its create.
    ours = {pid for pid, command in creating.below.items() if "pulumi.dynamic" not in command}
    wait_for(lambda: not alive(ours), "our hosts to end", 30)
    creating.proceed()

    refused = creating.stack.up(status=1)
    assert "currently locked" in refused.output
    creating.stack.cancel()
    warned = creating.stack.up()
    assert [severity for severity, _ in warned.diagnostics] in ([], ["warning"])
    assert creating.stack.preview().changes == {}
