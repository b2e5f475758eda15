"""The end of a lab, wanted or not: nothing of it stays on the machine, and the next one starts."""

import json
import os
import signal
import socket
import time
from pathlib import Path

import pytest

from lab.linux import namespaces
from lab.node import ports
from lab.node.control import Control
from lab.paths import Instance
from tests.system.lab import machine
from tests.system.lab.lab_under_test import LabUnderTest
from tests.system.lab.machine import Process
from tests.system.lab.test_node import SERVICE, WEB, fetch

DEADLINE_SECONDS = 30

# What a container engine or another network of this machine has is not the lab's.
BEFORE = {"links": machine.links(), "rules": machine.rules(), "namespaces": machine.named_namespaces()}


@pytest.fixture
def lab():
    under_test = LabUnderTest(Instance("tend"))
    under_test.run("down")
    yield under_test
    under_test.run("down", status=None)


def with_pods(lab: LabUnderTest) -> list[Process]:
    """Start the lab with pods and connections; returns all of its processes."""
    lab.up()
    for document in (WEB, SERVICE):
        lab.kubectl("apply", "-f", "-", stdin=json.dumps(document))
    lab.kubectl("rollout", "status", "deployment/web", "--timeout=100s")
    fetch(lab)
    members = namespaces.members(Control(lab.instance).pid())
    assert {"containerd-shim", "kubelet", "httpd"} <= set(members.values()), members
    return [process for pid in members if (process := Process.of(pid))]


def remains(lab: LabUnderTest, processes: list[Process]) -> dict[str, object]:
    """Everything of the lab that is still there, by kind; empty = nothing."""
    found = {
        "processes": [process for process in processes if process.alive],
        "mentions": machine.mentions(lab.instance),
        "mounts": machine.mounts(lab.instance),
        "links": machine.links() - BEFORE["links"],
        "rules": machine.rules() - BEFORE["rules"],
        "ports": machine.taken_ports(lab.instance),
        "namespaces": machine.named_namespaces() - BEFORE["namespaces"],
    }
    return {kind: things for kind, things in found.items() if things}


def assert_nothing_remains(lab: LabUnderTest, processes: list[Process]) -> None:
    """The kernel takes a moment after the kill."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while (seen := remains(lab, processes)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert seen == {}


def test_down_leaves_nothing(lab):
    settings = machine.kernel_settings()
    processes = with_pods(lab)
    assert machine.kernel_settings() == settings
    lab.run("down")
    assert remains(lab, processes) == {}
    assert machine.directories(lab.instance) == []
    assert machine.kernel_settings() == settings
    assert "was not running" in lab.run("down").stdout


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])


@pytest.mark.parametrize("victim", ["the supervisor", "its parent outside"])
def test_a_killed_supervisor_leaves_nothing_and_the_lab_starts_again(lab, victim):
    processes = with_pods(lab)
    supervisor = Control(lab.instance).pid()
    os.kill(supervisor if victim == "the supervisor" else parent(supervisor), signal.SIGKILL)
    assert_nothing_remains(lab, processes)
    told = lab.run("status", status=3)
    assert "ended without `lab down`" in told.stdout
    lab.up()
    assert lab.status()["problems"] == []
    lab.run("down")
    assert machine.directories(lab.instance) == []


def test_a_taken_port_is_named_and_nothing_is_started(lab):
    taken = ports.wanted(lab.instance)[3]
    with socket.create_server(("127.0.0.1", taken)):
        refused = lab.run("up", "--node-only", status=1)
    assert f"port {taken} on 127.0.0.1 is taken" in refused.stderr
    assert machine.directories(lab.instance) == []
    assert machine.mentions(lab.instance) == []
