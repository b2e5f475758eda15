"""Entering a lab, and counting what is in it."""

import os
import subprocess
import sys

import pytest

from lab.linux import namespaces


@pytest.fixture
def family():
    """A process with a child, and a stranger."""
    script = "import subprocess, sys; p = subprocess.Popen(['sleep', '600']); print(p.pid, flush=True); p.wait()"
    with (
        subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent,
        subprocess.Popen(["sleep", "600"]) as stranger,
    ):
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        yield parent.pid, child, stranger.pid
        os.kill(child, 9)
        stranger.kill()


def test_members_are_the_supervisor_and_all_its_descendants(family):
    parent, child, stranger = family
    members = namespaces.members(parent)
    assert set(members) == {parent, child}
    assert members[child] == "sleep"
    assert stranger not in members


def test_a_process_that_is_gone_has_no_members_and_no_memory():
    with subprocess.Popen(["true"]) as gone:
        gone.wait(10)
    assert namespaces.members(gone.pid) == {}
    assert namespaces.memory_bytes([gone.pid]) == 0


def test_memory_is_counted_in_bytes(family):
    parent, _, _ = family
    assert 2**20 < namespaces.memory_bytes([parent]) < 2**30


def test_a_command_enters_every_namespace_of_the_lab():
    line = namespaces.enter(42, ["ls", "-l"])
    assert line[:2] == ["nsenter", "--target=42"]
    assert set(line[2:-3]) == {"--mount", "--pid", "--net", "--ipc", "--uts", "--cgroup"}
    assert line[-3:] == ["--", "ls", "-l"]


def test_ending_a_process_waits_until_it_is_gone():
    with subprocess.Popen(["sleep", "600"]) as victim:
        assert namespaces.end(victim.pid, 10)
        assert victim.wait(10) == -9
    assert namespaces.end(victim.pid, 10)
