"""What the lab says when it cannot run, and when there is nothing to do."""

import platform

import pytest
from typer.testing import CliRunner

from lab import host, lifecycle
from lab.__main__ import app


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setattr("lab.paths.STATE_ROOT", tmp_path / "state")
    monkeypatch.setattr("lab.paths.RUN_ROOT", tmp_path / "run")
    return lambda *words: CliRunner().invoke(app, words)


@pytest.mark.parametrize(
    "machine",
    [("Darwin", 0, "needs Linux namespaces and this is Darwin"), ("Linux", 1000, "needs root")],
)
@pytest.mark.parametrize("command", ["up", "down", "status", "shell"])
def test_a_machine_that_cannot_run_a_lab_says_so_in_one_sentence(run, monkeypatch, command, machine):
    system, user, said = machine
    monkeypatch.setattr(platform, "system", lambda: system)
    monkeypatch.setattr("os.geteuid", lambda: user)
    result = run(command)
    assert result.exit_code == 1
    assert said in result.output
    assert "docs/bring-your-own-cluster.md" in result.output
    assert "Traceback" not in result.output


def test_a_machine_that_lacks_programs_names_them_and_the_packages(run, monkeypatch):
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("shutil.which", lambda name: None if name in {"runc", "conntrack"} else f"/bin/{name}")
    monkeypatch.setattr(host, "CNI_PLUGINS", ("ptp-that-nobody-has",))
    result = run("up")
    assert result.exit_code == 1
    assert "the lab needs conntrack, runc, the CNI plugins ptp-that-nobody-has" in result.output
    assert "apt-get install" in result.output
    assert "containernetworking-plugins" in result.output


def test_a_bad_instance_id_is_refused_before_anything_happens(run, monkeypatch):
    monkeypatch.setattr(lifecycle, "up", lambda *_, **__: pytest.fail("went on"))
    result = run("up", "--instance", "Not-An-Id")
    assert result.exit_code == 1
    assert "Not-An-Id" in result.output


def test_ending_a_lab_that_is_not_there_is_harmless(run, monkeypatch):
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("lab.linux.cgroups.hierarchies", lambda: ())
    result = run("down", "--instance", "t9")
    assert result.exit_code == 0
    assert result.stdout == "lab 't9' was not running; nothing to do\n"


def test_the_status_of_a_lab_that_is_down_has_its_own_exit_code(run, monkeypatch):
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    result = run("status", "--instance", "t9")
    assert result.exit_code == 3
    assert "lab 't9' is down" in result.stdout


def test_a_shell_into_a_lab_that_is_down_is_refused(run, monkeypatch):
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    result = run("shell", "--instance", "t9")
    assert result.exit_code == 1
    assert "lab 't9' is not running" in result.output
