"""Who plays the node: binds pods, says that they run, lets them go, and grants claims, all at once and all untrue.

So that an `up` that waits for Deployments, Jobs and claims ends, in seconds and without a container.
"""

import contextlib
import threading
import urllib.error
from collections.abc import Generator, Mapping
from datetime import UTC, datetime
from typing import Any

from tests.engine.api_server import ApiServer

NAME = "nowhere"
GPUS = "64"
_POLL_SECONDS = 0.1


@contextlib.contextmanager
def playing(api: ApiServer) -> Generator[None]:
    """Play the node of `api` until the block ends."""
    node = {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {"name": NAME, "labels": {"kubernetes.io/hostname": NAME, "nvidia.com/gpu.product": "none"}},
    }
    api.request("POST", "/api/v1/nodes", node)
    resources = {"cpu": "64", "memory": "512Gi", "pods": "500", "ephemeral-storage": "1Ti", "nvidia.com/gpu": GPUS}
    status = {"capacity": resources, "allocatable": resources, "conditions": [_condition("Ready")]}
    api.patch(f"/api/v1/nodes/{NAME}/status", {"status": status})
    stop = threading.Event()
    failures: list[Exception] = []

    def play() -> None:
        while not stop.wait(_POLL_SECONDS):
            try:
                _turn(api)
            except (OSError, ValueError) as error:
                failures.append(error)
                return

    thread = threading.Thread(target=play, name="node", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        assert not failures, f"the node stopped playing: {failures[0]!r}"


def _turn(api: ApiServer) -> None:
    """Move every pod and every claim one step on."""
    for pod in api.request("GET", "/api/v1/pods")["items"]:
        with _unless_gone():
            _advance(api, pod)
    for claim in api.request("GET", "/api/v1/persistentvolumeclaims")["items"]:
        if claim["status"].get("phase") != "Bound":
            metadata, spec = claim["metadata"], claim["spec"]
            status = {
                "phase": "Bound",
                "accessModes": spec["accessModes"],
                "capacity": {"storage": spec["resources"]["requests"]["storage"]},
            }
            path = f"/api/v1/namespaces/{metadata['namespace']}/persistentvolumeclaims/{metadata['name']}/status"
            with _unless_gone():
                api.patch(path, {"status": status})


def _advance(api: ApiServer, pod: Mapping[str, Any]) -> None:
    metadata = pod["metadata"]
    path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
    if "deletionTimestamp" in metadata:
        api.request("DELETE", path, {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0})
    elif "nodeName" not in pod["spec"]:
        binding = {
            "kind": "Binding",
            "apiVersion": "v1",
            "metadata": {"name": metadata["name"]},
            "target": {"kind": "Node", "name": NAME},
        }
        api.request("POST", f"{path}/binding", binding)
    elif pod["status"].get("phase") == "Pending":
        api.patch(f"{path}/status", {"status": _pod_status(pod)})


def _pod_status(pod: Mapping[str, Any]) -> dict[str, Any]:
    """That of a pod whose containers all started; a Job's have ended well."""
    owners = pod["metadata"].get("ownerReferences", [])
    finished = any(owner["kind"] == "Job" for owner in owners)
    now = _now()
    ended = {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now}}
    started = {"running": {"startedAt": now}}

    def containers(key: str, *, init: bool) -> list[dict[str, Any]]:
        return [
            {
                "name": one["name"],
                "image": one["image"],
                "imageID": "",
                "restartCount": 0,
                "ready": not finished,
                "started": not finished,
                "state": ended if finished or (init and one.get("restartPolicy") != "Always") else started,
            }
            for one in pod["spec"].get(key, [])
        ]

    kinds = ("Initialized", "PodScheduled") if finished else ("Initialized", "PodScheduled", "ContainersReady", "Ready")
    return {
        "phase": "Succeeded" if finished else "Running",
        "startTime": now,
        "podIP": "192.0.2.1",
        "podIPs": [{"ip": "192.0.2.1"}],
        "conditions": [_condition(kind) for kind in kinds],
        "containerStatuses": containers("containers", init=False),
        "initContainerStatuses": containers("initContainers", init=True),
    }


def _condition(kind: str) -> dict[str, str]:
    return {"type": kind, "status": "True", "lastTransitionTime": _now(), "reason": "Played"}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@contextlib.contextmanager
def _unless_gone() -> Generator[None]:
    """Forgive what happens when an object goes or moves between list and write; the next turn sees it anew."""
    try:
        yield
    except urllib.error.HTTPError as error:
        if error.code not in {404, 409, 422}:
            raise
