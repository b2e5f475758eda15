"""Applying an addon: in the order in which objects need each other, again where refused, with an end."""

import io
import re
import time
from dataclasses import replace

import pytest
from rich.console import Console

from lab import addons
from lab.addons import applying
from lab.addons.addon import Addon, AddonsNotReadyError, Site, Workload
from lab.addons.diagnosis import last_events, waiting_reasons
from lab.addons.kubectl import Kubectl, KubectlError
from lab.api import ApiError
from lab.progress import Progress

NAMESPACE = {"kind": "Namespace", "metadata": {"name": "ns"}}
DEFINITION = {"kind": "CustomResourceDefinition", "metadata": {"name": "things"}}
THING = {"kind": "Thing", "metadata": {"name": "t"}}
SEED = {"kind": "Secret", "metadata": {"name": "s"}}
ADDON = Addon(
    name="thing",
    objects=lambda _: [THING, NAMESPACE, DEFINITION],
    seeds=lambda _: [SEED],
    served={"things.io/v1": ("things",)},
)


class FakeKubectl:
    """Notes what it is told; refuses as often as a test says."""

    def __init__(self, refusals=0):
        self.refusals = refusals
        self.done = []

    def apply(self, objects):
        if self.refusals and objects == [THING]:
            self.refusals -= 1
            raise KubectlError("no matches for kind Thing")
        self.done.append(("apply", objects))

    def create_missing(self, objects):
        self.done.append(("create", objects))

    def last_log_lines(self, namespace, pod):
        return f"[{namespace}/{pod}] last words"


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(applying, "_POLL_SECONDS", 0.0)
    monkeypatch.setattr(addons, "_POLL_SECONDS", 0.0)


@pytest.fixture
def where(tmp_path):
    return Site(tmp_path / "kubectl", tmp_path, lambda *_: tmp_path)


def served_after(looks, done=None):
    remaining = [looks]

    def get(path):
        assert path == "/apis/things.io/v1"
        remaining[0] -= 1
        if done is not None:
            done.append("look")
        if remaining[0] >= 0:
            raise ApiError("404")
        return {"resources": [{"name": "things"}]}

    return get


def test_what_others_build_on_comes_first_and_is_waited_for(where):
    kubectl = FakeKubectl()
    applying.apply_one(ADDON, where, kubectl, served_after(2, kubectl.done), time.monotonic() + 60)
    looks = ["look"] * 3
    assert kubectl.done == [("apply", [NAMESPACE, DEFINITION]), *looks, ("create", [SEED]), ("apply", [THING])]


def test_an_object_waits_for_the_images_that_it_names(where):
    kubectl = FakeKubectl()
    where = replace(where, await_images=lambda objects: kubectl.done.append(("images of", objects)))
    applying.apply_one(ADDON, where, kubectl, served_after(0), time.monotonic() + 60)
    assert kubectl.done[-2:] == [("images of", [THING]), ("apply", [THING])]


def test_a_refusal_is_tried_again(where):
    kubectl = FakeKubectl(refusals=2)
    applying.apply_one(ADDON, where, kubectl, served_after(0), time.monotonic() + 60)
    assert kubectl.done[-1] == ("apply", [THING])


def test_at_the_deadline_the_refusal_is_the_error(where):
    with pytest.raises(AddonsNotReadyError, match="thing: objects: no matches for kind Thing"):
        applying.apply_one(ADDON, where, FakeKubectl(refusals=10**9), served_after(0), time.monotonic())


def deployment(available):
    return {
        "metadata": {"name": "web", "namespace": "ns", "generation": 1},
        "spec": {"replicas": 1},
        "status": {"observedGeneration": 1, "updatedReplicas": 1, "availableReplicas": available},
    }


POD = {
    "metadata": {"name": "web-5d-x"},
    "status": {
        "containerStatuses": [{"name": "c", "state": {"waiting": {"reason": "ErrImageNeverPull", "message": "m"}}}]
    },
}
EVENT = {
    "involvedObject": {"kind": "Pod", "name": "web-5d-x"},
    "reason": "FailedMount",
    "message": "secret not found",
    "lastTimestamp": "2026-01-01T00:00:00Z",
}
WEB = Addon(name="web", objects=lambda _: [], workloads=(Workload("Deployment", "ns", "web"),))


def test_every_addon_is_noted_once_when_it_is_ready(where, tmp_path, monkeypatch):
    monkeypatch.setattr(addons, "Kubectl", lambda *_: FakeKubectl())
    looks = iter([0, 0, 1])
    shown = io.StringIO()
    kubeconfig = tmp_path / "kubeconfig"
    addons.apply(
        kubeconfig,
        Progress(Console(file=shown)),
        addons=[WEB],
        where=replace(where, read=lambda _: lambda _: {"items": [deployment(next(looks))]}),
        timeout_seconds=60,
    )
    assert re.fullmatch(r"  web ready after \d+ s\n", shown.getvalue())


def test_at_the_deadline_the_error_shows_what_is_missing_with_events_and_last_words(where, tmp_path, monkeypatch):
    monkeypatch.setattr(addons, "Kubectl", lambda *_: FakeKubectl())
    answers = {
        "/apis/apps/v1/deployments": {"items": [deployment(0)]},
        "/api/v1/namespaces/ns/pods": {"items": [POD]},
        "/api/v1/namespaces/ns/events": {"items": [EVENT]},
    }
    where = replace(where, read=lambda _: answers.__getitem__)
    with pytest.raises(AddonsNotReadyError) as caught:
        addons.apply(tmp_path / "kubeconfig", Progress(), addons=[WEB], where=where, timeout_seconds=0)
    assert str(caught.value).splitlines() == [
        "not ready after 0 s:",
        "web: Deployment ns/web: 0 of 1 pods available",
        "    Pod web-5d-x: FailedMount: secret not found",
        "    pod web-5d-x: c waits: ErrImageNeverPull m",
        "    [ns/web-5d-x] last words",
    ]


def test_events_are_the_newest_of_the_workload_and_its_own_things_only():
    def event(name, second):
        return {
            "involvedObject": {"name": name},
            "reason": str(second),
            "lastTimestamp": f"2026-01-01T00:00:0{second}Z",
        }

    events = [event("web", 6), event("website", 9), *(event("web-1", second) for second in (5, 1, 3, 2))]
    assert [line.split(": ")[1] for line in last_events(events, "web")] == ["2", "3", "5", "6"]


def test_a_pod_that_no_node_takes_says_why():
    condition = {"type": "PodScheduled", "status": "False", "message": "insufficient memory"}
    assert waiting_reasons({"status": {"conditions": [condition]}}) == ["not scheduled: insufficient memory"]


def fake_program(tmp_path, script):
    program = tmp_path / "kubectl"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return Kubectl(program, tmp_path / "kubeconfig")


def test_objects_go_to_kubectl_as_one_list_and_win_over_other_writers(tmp_path):
    kubectl = fake_program(tmp_path, f'echo "$@" > {tmp_path}/arguments; cat > {tmp_path}/stdin')
    kubectl.apply([THING])
    arguments = (tmp_path / "arguments").read_text()
    assert "apply --server-side --force-conflicts --field-manager=llm-d-lab -f -" in arguments
    assert f"--kubeconfig={tmp_path / 'kubeconfig'}" in arguments
    assert (
        (tmp_path / "stdin").read_text().startswith('{"apiVersion": "v1", "kind": "List", "items": [{"kind": "Thing"')
    )


def test_nothing_to_apply_runs_nothing(tmp_path):
    fake_program(tmp_path, "exit 1").apply([])


def test_what_kubectl_says_is_the_error(tmp_path):
    with pytest.raises(KubectlError, match=r"^forbidden$"):
        fake_program(tmp_path, "echo forbidden >&2; exit 1").apply([THING])


def test_a_seed_that_exists_is_left_alone_and_another_failure_is_not_hidden(tmp_path):
    fake_program(tmp_path, "echo 'Error from server (AlreadyExists)' >&2; exit 1").create_missing([SEED])
    with pytest.raises(KubectlError, match="forbidden"):
        fake_program(tmp_path, "echo forbidden >&2; exit 1").create_missing([SEED])
