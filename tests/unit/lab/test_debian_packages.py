import os
from pathlib import Path

import pytest

from lab import debian_packages


def _dpkg(monkeypatch, directory: Path, answer: str):
    script = directory / "dpkg-query"
    script.write_text(f"#!/bin/sh\nprintf '%s\\n' {answer}\nexit 1\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}{os.pathsep}{os.environ['PATH']}")


def test_removed_and_unknown_packages_are_named_with_the_line_that_installs_them(monkeypatch, tmp_path):
    installed = [f"'{name} installed'" for name in debian_packages.needed() if name not in {"runc", "socat"}]
    _dpkg(monkeypatch, tmp_path, " ".join([*installed, "'runc config-files'"]))
    assert debian_packages.missing() == ("runc", "socat")
    with pytest.raises(debian_packages.DebianPackageError, match=r"apt-get install --yes .* runc socat$"):
        debian_packages.check()


def test_a_machine_with_everything_passes(monkeypatch, tmp_path):
    _dpkg(monkeypatch, tmp_path, " ".join(f"'{name} installed'" for name in debian_packages.needed()))
    debian_packages.check()
    assert debian_packages.missing() == ()


def test_a_machine_without_dpkg_lacks_them_all(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert debian_packages.missing() == debian_packages.needed() != ()
