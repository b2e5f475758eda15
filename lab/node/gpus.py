"""How the node comes to have GPUs that do not exist: its status says so, again whenever the kubelet forgets."""

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from lab.api import Api, ApiError

RESOURCE = "nvidia.com/gpu"
_QUIET_SECONDS = 60.0  # no event for this long: list again, in case the watch died without a word
_RETRY_SECONDS = 1.0


class Server(Protocol):
    """The three calls that keeping a node needs; `lab.api.Api` has them."""

    def get(self, path: str) -> dict[str, Any]:
        """Decoded body of `path`."""
        ...

    def json_patch(self, path: str, operations: list[dict[str, Any]]) -> None:
        """Apply a JSON patch."""
        ...

    def watch(self, path: str) -> Iterator[dict[str, Any]]:
        """Events of a watch."""
        ...


def corrections(node: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """JSON patch of the node's status that makes `count` GPUs of it; empty when it already has them.

    Allocatable is patched too: the kubelet derives it from capacity only at its next status update, seconds later.
    """
    wanted = str(count)
    status = node.get("status", {})
    escaped = RESOURCE.replace("/", "~1")
    return [
        {"op": "add", "path": f"/status/{field}/{escaped}", "value": wanted}
        for field in ("capacity", "allocatable")
        if field in status and status[field].get(RESOURCE) != wanted
    ]


def keep(api: Server, node: str, count: int) -> None:
    """Watch one node and correct it; returns when the watch ends."""
    selector = f"fieldSelector=metadata.name%3D{node}"
    listed = api.get(f"/api/v1/nodes?{selector}")
    for item in listed["items"]:
        _correct(api, node, item, count)
    version = listed["metadata"]["resourceVersion"]
    for event in api.watch(f"/api/v1/nodes?{selector}&watch=1&resourceVersion={version}"):
        if event["type"] == "ERROR":
            return
        if event["type"] in {"ADDED", "MODIFIED"}:
            _correct(api, node, event["object"], count)


def _correct(api: Server, name: str, node: dict[str, Any], count: int) -> None:
    patch = corrections(node, count)
    if patch:
        api.json_patch(f"/api/v1/nodes/{name}/status", patch)
        print(f"told node {name} that it has {count} {RESOURCE}", flush=True)


def main() -> None:
    """Run until ended; an API server that is away is waited for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--node", required=True)
    parser.add_argument("--count", type=int, required=True)
    arguments = parser.parse_args()
    api = Api.from_kubeconfig(arguments.kubeconfig, _QUIET_SECONDS)
    while True:
        try:
            keep(api, arguments.node, arguments.count)
        except ApiError as error:
            print(error, file=sys.stderr, flush=True)
            time.sleep(_RETRY_SECONDS)


if __name__ == "__main__":
    main()
