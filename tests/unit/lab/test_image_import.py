"""Which archives a node still needs."""

import json
import stat
from pathlib import Path

import pytest

from lab import image_import, namespaces
from lab.image_build import Archive
from lab.paths import Instance
from lab.spec import LabSpec, NodeOptions

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
    assert image_import.import_all(spec, 1, [BASE, APP]) == ("base", "app")
    assert image_import.import_all(spec, 1, [BASE, APP]) == ()
    changed = Archive("app", Path("/cache/app2.tar"), "3333", APP.references)
    assert image_import.import_all(spec, 1, [BASE, changed]) == ("app",)
    asked = (tmp_path / "asked").read_text().splitlines()
    assert [line.split()[-1] for line in asked] == ["/cache/base.tar", "/cache/app.tar", "/cache/app2.tar"]
    assert asked[0].startswith("--address /run/llm-d-lab/t9/containerd.sock --namespace=k8s.io images import")


def test_an_archive_that_is_refused_is_named_and_tried_again_next_time(spec):
    bad = Archive("bad", Path("/cache/bad.tar"), "4444", ())
    with pytest.raises(image_import.ImportFailedError, match=r"bad \(/cache/bad.tar\): no space left"):
        image_import.import_all(spec, 1, [BASE, bad, APP])
    assert image_import.missing(spec.instance, [BASE, bad, APP]) == (bad, APP)
    assert json.loads((spec.instance.state / "images.json").read_text()) == {"base": "1111"}
