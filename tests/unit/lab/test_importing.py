"""Which archives a node still needs."""

import json
import stat
from pathlib import Path

import pytest

from lab.images import importing
from lab.images.archives import Archive
from lab.linux import namespaces
from lab.node.spec import LabSpec, NodeOptions
from lab.paths import Instance

BASE = Archive("base", Path("/cache/base.tar"), "1111", ("x/base:1",))
APP = Archive("app", Path("/cache/app.tar"), "2222", ("x/app:1",))


@pytest.fixture
def spec(tmp_path, monkeypatch) -> LabSpec:
    """A lab whose `ctr` writes down what it is asked, and refuses archives called `bad.tar`."""
    monkeypatch.setattr("lab.paths.STATE_ROOT", tmp_path)
    monkeypatch.setattr(namespaces, "enter", lambda _, command: list(command))
    (tmp_path / "t9").mkdir()
    ctr = tmp_path / "ctr"
    ctr.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\ncase "$*" in *bad.tar) echo "no space left" >&2; exit 1;; esac\n'
    )
    ctr.chmod(ctr.stat().st_mode | stat.S_IXUSR)
    return LabSpec(
        instance=Instance("t9"),
        options=NodeOptions(),
        tools={"ctr": ctr},
        cni_plugins=Path("/cni"),
        sandbox_image="x/base:1",
    )


def test_each_archive_is_imported_once_for_each_content(spec, tmp_path):
    assert [importing.bring_in(spec, 1, archive) for archive in (BASE, APP)] == [True, True]
    assert [importing.bring_in(spec, 1, archive) for archive in (BASE, APP)] == [False, False]
    changed = Archive("app", Path("/cache/app2.tar"), "3333", APP.references)
    assert [importing.bring_in(spec, 1, archive) for archive in (BASE, changed)] == [False, True]
    asked = (tmp_path / "asked").read_text().splitlines()
    assert [line.split()[-1] for line in asked] == ["/cache/base.tar", "/cache/app.tar", "/cache/app2.tar"]
    assert asked[0].startswith("--address /run/llm-d-lab/t9/containerd.sock --namespace=k8s.io images import")


def test_an_archive_that_is_refused_is_named_and_tried_again_next_time(spec):
    bad = Archive("bad", Path("/cache/bad.tar"), "4444", ())
    for _ in range(2):
        with pytest.raises(importing.ImportFailedError, match=r"bad \(/cache/bad.tar\): no space left"):
            importing.bring_in(spec, 1, bad)
    importing.bring_in(spec, 1, BASE)
    assert json.loads((spec.instance.state / "images.json").read_text()) == {"base": "1111"}
