"""Endpoints as the endpoint picker sees them, and the watches that feed it."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest

from lab.stand_ins.endpoint_picker.datastore import Datastore, KubernetesObject, Pool, read_pool
from lab.stand_ins.endpoint_picker.kube import ApiStatusError
from lab.stand_ins.endpoint_picker.watch import PoolWatcher, Reflector

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


def test_it_has_synced_when_the_pool_exists_and_its_pods_were_listed():
    datastore = Datastore()
    datastore.set_pods([])
    assert not datastore.synced
    assert datastore.set_pool(POOL)
    assert not datastore.synced
    datastore.set_pods([])
    assert datastore.synced
    assert not datastore.set_pool(POOL)  # unchanged: no new list is needed
    assert datastore.synced


def test_a_pool_that_changes_or_goes_asks_for_its_pods_again():
    datastore, departed = store(pod("a"))
    assert datastore.set_pool(None)
    assert (names(datastore), departed, datastore.synced) == ([], ["a-rank-0"], False)


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


class ScriptedApi:
    """Lists and watches that a test writes down; waits for ever after the last."""

    path = "/pods"

    def __init__(self, *steps: object) -> None:
        self.steps = list(steps)
        self.asked: list[tuple[str, str]] = []
        self.done = asyncio.Event()

    async def get(self, path: str, params: dict[str, str]) -> dict[str, Any]:
        assert path == self.path
        self.asked.append(("list", params.get("resourceVersion", "")))
        step = await self._next()
        assert isinstance(step, dict)
        return step

    async def watch(self, path: str, params: dict[str, str]) -> AsyncIterator[dict[str, Any]]:
        assert path == self.path
        self.asked.append(("watch", params["resourceVersion"]))
        for event in await self._next():
            if isinstance(event, Exception):
                raise event
            yield event

    async def _next(self) -> Any:
        if not self.steps:
            self.done.set()
            await asyncio.Event().wait()
        step = self.steps.pop(0)
        if isinstance(step, Exception):
            raise step
        return step


def listing(version: str, *items: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"resourceVersion": version}, "items": list(items)}


def event(kind: str, version: str, name: str = "a") -> dict[str, Any]:
    return {"type": kind, "object": pod(name, resourceVersion=version)}


async def reflected(api: ScriptedApi) -> tuple[list[tuple[str, ...]], list[float]]:
    seen: list[tuple[str, ...]] = []
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        await asyncio.sleep(0)

    reflector = Reflector(
        client=api,  # ty: ignore[invalid-argument-type] - plays the client
        path="/pods",
        params={},
        replace=lambda items: seen.append(("list", *(item["metadata"]["name"] for item in items))),
        apply=lambda kind, item: seen.append((kind, item["metadata"]["name"])),
        pause=pause,
    )
    running = asyncio.create_task(reflector.run())
    async with asyncio.timeout(5):
        await api.done.wait()
    running.cancel()
    return seen, pauses


async def _watch_goes_on() -> None:
    bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}}
    api = ScriptedApi(listing("4", pod("a")), [event("MODIFIED", "6")], [bookmark], [event("DELETED", "11")])
    seen, _ = await reflected(api)
    assert seen == [("list", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    assert api.asked == [("list", ""), ("watch", "4"), ("watch", "6"), ("watch", "9"), ("watch", "11")]


def test_a_watch_that_ends_goes_on_from_the_last_version():
    asyncio.run(_watch_goes_on())


async def _failures_list_again() -> None:
    api = ScriptedApi(
        ApiStatusError(500, "starting"),
        ConnectionRefusedError(),
        listing("4"),
        [event("ADDED", "5"), ApiStatusError(410, "expired")],
        listing("20", pod("b")),
        ApiStatusError(410, "expired"),
        listing("30"),
    )
    seen, pauses = await reflected(api)
    assert seen == [("list",), ("ADDED", "a"), ("list", "b"), ("list",)]
    assert pauses[:2] == [0.2, 0.4]  # waits longer while the API fails, and not after it works again
    assert pauses[2] == 0.2


def test_expiry_and_failures_start_over_with_a_list():
    asyncio.run(_failures_list_again())


class PoolApi(ScriptedApi):
    """Answers for the pool by script and for pods with one list each; remembers the selectors."""

    path = "/apis/inference.networking.k8s.io/v1/namespaces/ns/inferencepools"

    def __init__(self, *steps: object) -> None:
        super().__init__(*steps)
        self.selectors: list[str] = []

    async def get(self, path: str, params: dict[str, str]) -> dict[str, Any]:
        if path.endswith("/pods"):
            self.selectors.append(params["labelSelector"])
            return listing("1", pod("a"))
        return await super().get(path, params)

    async def watch(self, path: str, params: dict[str, str]) -> AsyncIterator[dict[str, Any]]:
        if path.endswith("/pods"):
            await asyncio.Event().wait()
        async for item in super().watch(path, params):
            yield item


def pool_manifest(port: int) -> dict[str, Any]:
    return {
        "metadata": {"name": "qwen", "namespace": "ns", "resourceVersion": "3"},
        "spec": {"selector": {"matchLabels": {"llm-d.ai/model": "qwen"}}, "targetPorts": [{"number": port}]},
    }


class DatastoreThatTells(Datastore):
    """Sets an event when its pods were listed for the changed pool."""

    def __init__(self) -> None:
        super().__init__()
        self.on_port_9000 = asyncio.Event()

    def set_pods(self, pods: Iterable[KubernetesObject]) -> None:
        super().set_pods(pods)
        if [endpoint.port for endpoint in self.endpoints()] == [9000]:
            self.on_port_9000.set()


async def _pool_changes() -> None:
    changed = {"type": "MODIFIED", "object": pool_manifest(9000)}
    api = PoolApi(listing("1", pool_manifest(8000)), [changed])
    datastore = DatastoreThatTells()
    watcher = PoolWatcher(api, datastore, "qwen", "ns")  # ty: ignore[invalid-argument-type] - plays the client
    running = asyncio.create_task(watcher.run())
    async with asyncio.timeout(5):
        await datastore.on_port_9000.wait()
    running.cancel()
    assert set(api.selectors) == {"llm-d.ai/model=qwen"}


def test_pods_are_watched_by_the_pools_selector_and_anew_when_it_changes():
    asyncio.run(_pool_changes())
