"""Correcting a node that has lost its GPUs."""

import pytest

from lab.node import gpus


class Server:
    """Answers like an API server with one node, and remembers patches."""

    def __init__(self, node, events):
        self.node, self.events, self.patches = node, events, []

    def get(self, path):
        assert "fieldSelector=metadata.name%3Dn" in path
        return {"metadata": {"resourceVersion": "7"}, "items": [self.node] if self.node else []}

    def watch(self, path):
        assert path.endswith("&resourceVersion=7")
        yield from self.events

    def json_patch(self, path, operations):
        self.patches.append((path, operations))


def node(**gpu_fields):
    status = {name: {"cpu": "2"} | ({gpus.RESOURCE: value} if value else {}) for name, value in gpu_fields.items()}
    return {"metadata": {"name": "n"}, "status": status}


PATCH = [
    {"op": "add", "path": "/status/capacity/nvidia.com~1gpu", "value": "16"},
    {"op": "add", "path": "/status/allocatable/nvidia.com~1gpu", "value": "16"},
]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (node(capacity=None, allocatable=None), PATCH),
        (node(capacity="0", allocatable="0"), PATCH),
        (node(capacity="16", allocatable="0"), PATCH[1:]),
        (node(capacity="16", allocatable="16"), []),
        ({"status": {}}, []),
    ],
)
def test_only_what_is_wrong_is_patched(given, expected):
    assert gpus.corrections(given, 16) == expected


def test_a_node_that_appears_later_and_one_that_is_reset_are_both_corrected():
    good = node(capacity="16", allocatable="16")
    events = [
        {"type": "ADDED", "object": node(capacity=None, allocatable=None)},
        {"type": "MODIFIED", "object": good},
        {"type": "MODIFIED", "object": node(capacity="0", allocatable="0")},
        {"type": "DELETED", "object": node(capacity="0", allocatable="0")},
    ]
    server = Server(None, events)
    gpus.keep(server, "n", 16)
    assert server.patches == [("/api/v1/nodes/n/status", PATCH)] * 2


def test_an_expired_watch_ends_so_that_the_node_is_listed_again():
    events = [{"type": "ERROR", "object": {"code": 410}}, {"type": "ADDED", "object": node(capacity="0")}]
    server = Server(node(capacity="16", allocatable="16"), events)
    gpus.keep(server, "n", 16)
    assert server.patches == []
