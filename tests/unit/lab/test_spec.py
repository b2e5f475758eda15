"""What a lab is told, stored and compared."""

from dataclasses import replace
from pathlib import Path

import pytest

from lab.node.spec import LabSpec, NodeOptions, OptionError
from lab.paths import Instance


def test_a_spec_read_back_is_the_one_written(tmp_path, monkeypatch):
    monkeypatch.setattr("lab.paths.STATE_ROOT", tmp_path)
    (tmp_path / "t9").mkdir()
    spec = LabSpec(
        instance=Instance("t9"),
        options=NodeOptions(gpus=4, hpa_tolerance=0.2),
        tools={"etcd": Path("/x/etcd")},
        cni_plugins=Path("/cni"),
        sandbox_image="pause:1",
        node_only=True,
    )
    spec.write()
    assert LabSpec.read(Instance("t9")) == spec


def test_a_lab_that_was_never_started_has_no_spec(tmp_path, monkeypatch):
    monkeypatch.setattr("lab.paths.STATE_ROOT", tmp_path)
    with pytest.raises(FileNotFoundError):
        LabSpec.read(Instance("t9"))


def test_only_wishes_that_differ_are_named():
    options = NodeOptions(gpus=16)
    wishes = {"gpus": 8, "hpa_tolerance": 0.1, "hpa_sync_period_seconds": None}
    assert options.differences(wishes) == ("--gpus is 16, asked for 8",)


@pytest.mark.parametrize(("name", "value"), [("gpus", -1), ("hpa_sync_period_seconds", 0), ("hpa_tolerance", -0.1)])
def test_an_impossible_option_is_refused_by_its_name(name, value):
    with pytest.raises(OptionError, match="--" + name.replace("_", "-")):
        replace(NodeOptions(), **{name: value})


def test_a_node_without_gpus_is_possible():
    assert NodeOptions(gpus=0).gpus == 0
