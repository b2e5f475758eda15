import os
import subprocess
import sys
from pathlib import Path

from lab import debian_packages


def _dpkg(monkeypatch, directory: Path, answer: str):
    script = directory / "dpkg-query"
    script.write_text(f"#!/bin/sh\nprintf '%s\\n' {answer}\nexit 1\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}{os.pathsep}{os.environ['PATH']}")


def test_removed_and_unknown_packages_are_missing(monkeypatch, tmp_path):
    installed = [f"'{name} installed'" for name in debian_packages.needed() if name not in {"runc", "socat"}]
    _dpkg(monkeypatch, tmp_path, " ".join([*installed, "'runc config-files'"]))
    assert debian_packages.missing() == ("runc", "socat")


def test_a_machine_with_everything_passes(monkeypatch, tmp_path):
    _dpkg(monkeypatch, tmp_path, " ".join(f"'{name} installed'" for name in debian_packages.needed()))
    assert debian_packages.missing() == ()


def test_a_machine_without_dpkg_lacks_them_all(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert debian_packages.missing() == debian_packages.needed() != ()


def test_the_command_needs_no_environment_and_fails_with_the_names(tmp_path):
    command = [sys.executable, "-I", "-S", debian_packages.LIST.with_name("debian_packages.py")]
    ran = subprocess.run(command, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (1, f"missing Debian packages: {' '.join(debian_packages.needed())}\n")
