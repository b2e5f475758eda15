"""How the datastore is kept current: list and watch of the InferencePool, and of the pods that it selects."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp

from lab.stand_ins.endpoint_picker.datastore import Datastore, Pool, read_pool
from lab.stand_ins.endpoint_picker.kube import ApiClient, ApiStatusError

_LOG = logging.getLogger("epp.watch")
_GONE = 410
_FIRST_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 5.0

Object = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Reflector:
    """Lists a collection, then follows its watch.

    A watch that ends is taken up where it ended. One whose version has expired (410), or that fails otherwise, starts
    over with a list, which also finds what was deleted meanwhile.

    Attributes:
        params: Selectors.
        replace: Gets every object of a list.
        apply: Gets the type (ADDED, MODIFIED, DELETED) and object of each event.
        pause: Waits between attempts.
    """

    client: ApiClient
    path: str
    params: Mapping[str, str]
    replace: Callable[[Iterable[Object]], None]
    apply: Callable[[str, Object], None]
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def run(self) -> None:
        """Work until cancelled."""
        wait = _FIRST_PAUSE_SECONDS
        while True:
            try:
                listed = await self.client.get(self.path, self.params)
                self.replace(listed.get("items") or ())
                wait = _FIRST_PAUSE_SECONDS
                await self._follow(listed["metadata"]["resourceVersion"])
            except ApiStatusError as error:
                if error.status == _GONE:
                    _LOG.info("%s: version expired, listing again", self.path)
                else:
                    _LOG.warning("%s: %s", self.path, error)
            except (aiohttp.ClientError, TimeoutError, ValueError, KeyError, OSError) as error:
                _LOG.warning("%s: %r", self.path, error)
            await self.pause(wait)
            wait = min(_LONGEST_PAUSE_SECONDS, 2 * wait)

    async def _follow(self, version: str) -> None:
        """Watch from `version` on until something fails."""
        while True:
            async for event in self.client.watch(self.path, {**self.params, "resourceVersion": version}):
                version = event["object"]["metadata"]["resourceVersion"]
                if event["type"] != "BOOKMARK":
                    self.apply(event["type"], event["object"])
            await self.pause(_FIRST_PAUSE_SECONDS)  # a server that ends every watch at once must not be hammered


class PoolWatcher:
    """Feeds a datastore with one InferencePool and its pods."""

    def __init__(self, client: ApiClient, datastore: Datastore, name: str, namespace: str) -> None:
        self._client, self._datastore, self._name, self._namespace = client, datastore, name, namespace
        self._tasks = asyncio.TaskGroup()  # so that a mistake in the pods' watch ends `run` too
        self._pods: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Watch until cancelled."""
        pools = Reflector(
            client=self._client,
            path=f"/apis/inference.networking.k8s.io/v1/namespaces/{self._namespace}/inferencepools",
            params={"fieldSelector": f"metadata.name={self._name}"},
            replace=self._pools_listed,
            apply=self._pool_changed,
        )
        async with self._tasks:
            await pools.run()

    def _pools_listed(self, pools: Iterable[Object]) -> None:
        found = next((pool for pool in pools if pool["metadata"]["name"] == self._name), None)
        self._set_pool(read_pool(found) if found else None)

    def _pool_changed(self, kind: str, manifest: Object) -> None:
        self._set_pool(None if kind == "DELETED" else read_pool(manifest))

    def _set_pool(self, pool: Pool | None) -> None:
        if not self._datastore.set_pool(pool):
            return
        self._stop_pods()
        if pool is None:
            _LOG.info("InferencePool %s/%s is gone", self._namespace, self._name)
            return
        _LOG.info(
            "InferencePool %s/%s: ports %s, selector %s", pool.namespace, pool.name, pool.target_ports, pool.selector
        )
        selector = ",".join(f"{key}={value}" for key, value in sorted(pool.selector.items()))
        pods = Reflector(
            client=self._client,
            path=f"/api/v1/namespaces/{self._namespace}/pods",
            params={"labelSelector": selector},
            replace=self._datastore.set_pods,
            apply=self._pod_changed,
        )
        self._pods = self._tasks.create_task(pods.run())

    def _pod_changed(self, kind: str, manifest: Object) -> None:
        if kind == "DELETED":
            self._datastore.remove_pod(manifest)
        else:
            self._datastore.set_pod(manifest)

    def _stop_pods(self) -> None:
        if self._pods:
            self._pods.cancel()
            self._pods = None
