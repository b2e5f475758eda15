import io
import re

import pytest
from rich.console import Console

from lab.progress import Progress


def _progress(*, terminal):
    return Progress(Console(file=io.StringIO(), force_terminal=terminal, width=200, highlight=False))


def _plain(progress):
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", progress.console.file.getvalue())


def test_a_log_gets_one_line_at_the_start_and_one_at_the_end():
    progress = _progress(terminal=False)
    with progress.step("build [etcd]"):
        pass
    start, end = _plain(progress).splitlines()
    assert start == "… build [etcd]"
    assert re.fullmatch(r"✓ build \[etcd\] \d+\.\d s", end)


def test_a_failed_step_is_marked_and_the_error_goes_on():
    progress = _progress(terminal=False)
    with pytest.raises(ValueError, match="broken"), progress.step("build etcd"):
        raise ValueError("broken")
    assert _plain(progress).splitlines()[-1].startswith("✗ build etcd ")


def test_a_terminal_keeps_only_the_result(monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    progress = _progress(terminal=True)
    assert progress.live
    with progress.step("build etcd"):
        pass
    assert "✓ build etcd" in _plain(progress)
    assert "… build etcd" not in _plain(progress)


def test_a_ci_job_is_no_terminal(monkeypatch):
    monkeypatch.setenv("CI", "true")
    assert not _progress(terminal=True).live
