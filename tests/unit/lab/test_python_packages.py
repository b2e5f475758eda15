import sys
from itertools import pairwise

import pytest

from lab.tools import python_packages


def _uv(monkeypatch, directory, script):
    """An environment whose `uv` is a script; it writes its arguments beside itself."""
    uv = directory / "uv"
    uv.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {directory}/arguments\n{script}\n')
    uv.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(directory / "python"))


def test_only_hashed_wheels_are_installed_and_they_share_nothing_with_the_cache(monkeypatch, tmp_path):
    _uv(monkeypatch, tmp_path, f'echo "$UV_LINK_MODE" > {tmp_path}/mode')
    python_packages.install(tmp_path / "lock.txt", tmp_path / "to", python="3.11", platform="x86_64-manylinux_2_36")
    arguments = (tmp_path / "arguments").read_text().split("\n")
    assert {"--require-hashes", "--no-deps"} <= set(arguments)
    given = dict(pairwise(arguments))
    assert given["--only-binary"] == ":all:"
    assert given["--target"] == str(tmp_path / "to")
    assert given["--requirements"] == str(tmp_path / "lock.txt")
    assert (given["--python-version"], given["--python-platform"]) == ("3.11", "x86_64-manylinux_2_36")
    assert (tmp_path / "mode").read_text() == "copy\n"


def test_a_failure_says_the_command_and_uvs_words(monkeypatch, tmp_path):
    _uv(monkeypatch, tmp_path, "echo no such version >&2; exit 2")
    with pytest.raises(python_packages.PackageInstallError, match=r"uv pip install .*` failed:\nno such version"):
        python_packages.install(tmp_path / "lock.txt", tmp_path / "to")


def test_a_missing_uv_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(python_packages.PackageInstallError, match=r"no `uv`.*requirements-dev.txt"):
        python_packages.install(tmp_path / "lock.txt", tmp_path / "to")
