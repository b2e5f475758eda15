"""Judging a lab from what was gathered."""

import json

import pytest

from lab import lifecycle, status
from lab.addons import AddonStatus
from lab.errors import LabError
from lab.node.records import PartRecord, PartState, exit_words
from lab.status import LabStatus

READY = PartRecord(name="etcd", state=PartState.READY, pid=7, seconds_to_ready=0.5, starts=1)
DEAD = PartRecord(name="kubelet", state=PartState.DEAD, exit="killed by SIGKILL", last_lines=("a", "b"), starts=1)
SILENT = PartRecord(name="kube-apiserver", state=PartState.SILENT, pid=9, starts=1)
FINE = AddonStatus("dns", ready=True, detail="")
BROKEN = AddonStatus("keda", ready=False, detail="Deployment keda/keda-operator has 0 of 1")


def test_a_lab_in_which_all_is_ready_has_no_problems():
    assert status.problems([READY], None, [FINE]) == ()


def test_each_kind_of_trouble_is_named_and_causes_come_first():
    lines = status.problems([READY, DEAD, SILENT], "node lab-t9 is not Ready: x", [FINE, BROKEN])
    assert lines == (
        "kubelet is dead: killed by SIGKILL\n  a\n  b",
        "kube-apiserver runs (process 9 in the lab) and does not answer",
        "node lab-t9 is not Ready: x",
        "addon keda: Deployment keda/keda-operator has 0 of 1",
    )


@pytest.mark.parametrize(
    ("seen", "code"),
    [
        (LabStatus(instance="t9", running=True), 0),
        (LabStatus(instance="t9", running=True, problems=("x",)), 1),
        (LabStatus(instance="t9", running=False, problems=("x",)), 3),
    ],
)
def test_the_exit_code_tells_well_from_broken_from_down(seen, code):
    assert seen.exit_code == code


def test_a_status_can_be_read_by_programs():
    seen = LabStatus(instance="t9", running=True, parts=(DEAD,), addons=(BROKEN,), ports={30080: 26001})
    document = json.loads(json.dumps(seen.to_json()))
    assert document["parts"][0]["name"] == "kubelet"
    assert document["parts"][0]["state"] == "dead"
    assert document["ports"] == {"30080": 26001}


def test_waiting_names_the_parts_that_are_not_ready_yet():
    starting = PartRecord(name="kube-proxy", state=PartState.STARTING, pid=3)
    assert lifecycle.not_ready([READY, starting]) == "kube-proxy is starting"
    assert lifecycle.not_ready([READY, starting], only=("etcd",)) is None
    assert lifecycle.not_ready([READY]) is None


def test_waiting_ends_at_once_when_a_part_has_died():
    with pytest.raises(LabError, match="kubelet is dead: killed by SIGKILL"):
        lifecycle.not_ready([READY, DEAD])


def test_a_record_survives_json():
    for record in (READY, DEAD, SILENT):
        assert PartRecord.from_json(json.loads(json.dumps(record.to_json()))) == record


@pytest.mark.parametrize(
    ("code", "words"),
    [(0, "exit status 0"), (2, "exit status 2"), (-9, "killed by SIGKILL"), (-99, "killed by signal 99")],
)
def test_an_end_is_told_in_words(code, words):
    assert exit_words(code) == words
