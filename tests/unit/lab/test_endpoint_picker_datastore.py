"""Endpoints as the endpoint picker sees them, and the watches that feed it."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from lab.stand_ins.endpoint_picker.datastore import Datastore, Pool, read_pool
from lab.stand_ins.endpoint_picker.watch import feed

POOL = Pool("qwen", "ns", {"llm-d.ai/model": "qwen"}, (8000,))
READY = ({"type": "Initialized", "status": "True"}, {"type": "Ready", "status": "True"})
NOT_READY = ({"type": "Ready", "status": "False"},)


def pod(name: str, *, address: str = "10.0.0.1", conditions=READY, model: str = "qwen", **metadata) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "labels": {"llm-d.ai/model": model},
            "resourceVersion": "5",
            **metadata,
        },
        "status": {"podIP": address, "conditions": list(conditions)},
    }


def store(*pods: dict[str, Any], pool: Pool = POOL) -> tuple[Datastore, list[str]]:
    departed: list[str] = []
    datastore = Datastore(lambda endpoint: departed.append(endpoint.name))
    datastore.set_pool(pool)
    datastore.set_pods(pods)
    return datastore, departed


def names(datastore: Datastore) -> list[str]:
    return [endpoint.name for endpoint in datastore.endpoints()]


def test_an_endpoint_is_named_after_pod_and_rank_also_with_one_port():
    datastore, _ = store(pod("b"), pod("a"))
    assert names(datastore) == ["a-rank-0", "b-rank-0"]
    assert datastore.endpoints()[0].host_port == "10.0.0.1:8000"


def test_each_target_port_is_a_rank():
    datastore, _ = store(pod("a", address="fd00::1"), pool=Pool("qwen", "ns", POOL.selector, (8000, 8001)))
    assert {e.name: e.host_port for e in datastore.endpoints()} == {
        "a-rank-0": "[fd00::1]:8000",
        "a-rank-1": "[fd00::1]:8001",
    }


@pytest.mark.parametrize(
    "gone",
    [
        pod("a", deletionTimestamp="2026-01-01T00:00:00Z"),
        pod("a", conditions=NOT_READY),
        pod("a", conditions=()),
        pod("a", address=""),
        pod("a", model="other"),
    ],
    ids=["terminating", "not ready", "no condition", "no address", "relabelled"],
)
def test_a_pod_that_stops_serving_leaves_at_once(gone):
    datastore, departed = store(pod("a"), pod("b"))
    datastore.set_pod(gone)
    assert names(datastore) == ["b-rank-0"]
    assert departed == ["a-rank-0"]


def test_a_deleted_pod_leaves():
    datastore, departed = store(pod("a"), pod("b"))
    datastore.remove_pod(pod("a"))
    assert (names(datastore), departed) == (["b-rank-0"], ["a-rank-0"])


def test_a_pod_that_a_new_list_lacks_leaves():
    datastore, departed = store(pod("a"), pod("b"))
    datastore.set_pods([pod("b"), pod("c")])
    assert (names(datastore), departed) == (["b-rank-0", "c-rank-0"], ["a-rank-0"])


def test_a_change_that_does_not_matter_keeps_the_endpoint():
    datastore, departed = store(pod("a"))
    datastore.set_pod(pod("a", annotations={"x": "y"}))
    assert (names(datastore), departed) == (["a-rank-0"], [])


def test_a_pod_that_returns_with_another_address_is_another_endpoint():
    datastore, departed = store(pod("a"))
    datastore.set_pod(pod("a", address="10.0.0.2"))
    assert datastore.endpoints()[0].host_port == "10.0.0.2:8000"
    assert departed == ["a-rank-0"]


def test_it_has_synced_when_the_pool_exists_and_the_pods_were_listed():
    datastore = Datastore()
    datastore.set_pods([])
    assert not datastore.synced
    datastore.set_pool(POOL)
    assert datastore.synced
    only_pool = Datastore()
    only_pool.set_pool(POOL)
    assert not only_pool.synced


def test_a_pool_that_goes_takes_its_endpoints_along():
    datastore, departed = store(pod("a"))
    datastore.set_pool(None)
    assert (names(datastore), departed, datastore.synced) == ([], ["a-rank-0"], False)


def test_a_pool_that_changes_selects_anew_among_the_pods_that_are_known():
    datastore, departed = store(pod("a"), pod("b", model="other"))
    datastore.set_pool(Pool("qwen", "ns", {"llm-d.ai/model": "other"}, (9000,)))
    assert [(e.name, e.port) for e in datastore.endpoints()] == [("b-rank-0", 9000)]
    assert departed == ["a-rank-0"]


def test_a_pool_is_read_from_its_manifest():
    manifest = {
        "metadata": {"name": "qwen", "namespace": "ns"},
        "spec": {
            "selector": {"matchLabels": {"llm-d.ai/model": "qwen"}},
            "targetPorts": [{"number": 8000}],
            "endpointPickerRef": {"name": "qwen-epp"},
        },
    }
    assert read_pool(manifest) == POOL


def pool_manifest(name: str, port: int) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {"selector": {"matchLabels": {"llm-d.ai/model": "qwen"}}, "targetPorts": [{"number": port}]},
    }


class ScriptedApi:
    """One list and one watch for each collection; tells when both watches have been read to their end."""

    def __init__(self, collections: dict[str, tuple[list, list]]) -> None:
        self.collections = collections
        self.ended = threading.Barrier(len(collections) + 1)

    def request(self, method: str, path: str, body: object = None, content: str = "application/json") -> dict[str, Any]:
        assert (method, body, content) == ("GET", None, "application/json")
        return {"metadata": {"resourceVersion": "4"}, "items": self.collections[path.rpartition("/")[2]][0]}

    def watch(self, path: str, version: str) -> Iterator[dict[str, Any]]:
        assert version == "4"
        for kind, item in self.collections[path.rpartition("/")[2]][1]:
            yield {"type": kind, "object": item}
        with contextlib.suppress(threading.BrokenBarrierError):
            self.ended.wait(5)
        threading.Event().wait()


def fed(datastore: Datastore, pools: tuple[list, list], pods: tuple[list, list]) -> None:
    """Run the feed until everything has been told."""

    async def run() -> None:
        api = ScriptedApi({"inferencepools": pools, "pods": pods})
        feed(datastore, api, "qwen", "ns")
        await asyncio.to_thread(api.ended.wait, 5)

    asyncio.run(run())


def test_the_feed_tells_of_lists_and_changes():
    departed: list[str] = []
    datastore = Datastore(lambda endpoint: departed.append(endpoint.name))
    pools = ([pool_manifest("other", 1), pool_manifest("qwen", 8000)], [("MODIFIED", pool_manifest("other", 2))])
    changes = [("ADDED", pod("c")), ("MODIFIED", pod("b", conditions=NOT_READY)), ("DELETED", pod("a"))]
    fed(datastore, pools, ([pod("a"), pod("b")], changes))
    assert [(e.name, e.port) for e in datastore.endpoints()] == [("c-rank-0", 8000)]
    assert set(departed) <= {"a-rank-0", "b-rank-0"}  # none when the pool is heard of last


@pytest.mark.parametrize(
    ("change", "endpoints"),
    [(("MODIFIED", pool_manifest("qwen", 9000)), [9000]), (("DELETED", pool_manifest("qwen", 8000)), [])],
)
def test_the_feed_tells_of_the_pool_that_changes_or_goes(change, endpoints):
    datastore = Datastore()
    fed(datastore, ([pool_manifest("qwen", 8000)], [change]), ([pod("a")], []))
    assert [endpoint.port for endpoint in datastore.endpoints()] == endpoints


def test_the_feed_says_when_there_is_no_pool():
    datastore = Datastore()
    fed(datastore, ([pool_manifest("other", 8000)], []), ([pod("a")], []))
    assert not datastore.synced
