"""How the datastore is kept current: it hears of every InferencePool and pod of the pool's namespace."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import ParamSpec

from lab.stand_ins.endpoint_picker.datastore import Datastore, read_pool
from lab.stand_ins.in_cluster import Collections, Object, follow, in_background

_LOG = logging.getLogger("epp.watch")
P = ParamSpec("P")


def feed(datastore: Datastore, api: Collections, name: str, namespace: str) -> None:
    """From now on keep `datastore` current with InferencePool `name` and the pods beside it.

    The API is read in threads; the datastore changes on the running loop, where everything else reads it.
    """
    on_loop = partial(_on_loop, asyncio.get_running_loop())

    def set_pool(manifest: Object | None) -> None:
        _LOG.info("InferencePool %s/%s: %s", namespace, name, manifest["spec"] if manifest else "there is none")
        datastore.set_pool(read_pool(manifest) if manifest else None)

    def pools_listed(pools: Iterable[Object]) -> None:
        set_pool(next((pool for pool in pools if pool["metadata"]["name"] == name), None))

    def pool_changed(kind: str, pool: Object) -> None:
        if pool["metadata"]["name"] == name:
            set_pool(None if kind == "DELETED" else pool)

    def pod_changed(kind: str, pod: Object) -> None:
        if kind == "DELETED":
            datastore.remove_pod(pod)
        else:
            datastore.set_pod(pod)

    pools = f"/apis/inference.networking.k8s.io/v1/namespaces/{namespace}/inferencepools"
    pods = f"/api/v1/namespaces/{namespace}/pods"
    in_background(partial(follow, api, pools, on_loop(pools_listed), on_loop(pool_changed)))
    in_background(partial(follow, api, pods, on_loop(datastore.set_pods), on_loop(pod_changed)))


def _on_loop(loop: asyncio.AbstractEventLoop, change: Callable[P, None]) -> Callable[P, None]:
    """`change`, made on `loop` and waited for; what it raises comes back to the thread that asked."""

    async def changed(*args: P.args, **kwargs: P.kwargs) -> None:
        change(*args, **kwargs)

    def ask(*args: P.args, **kwargs: P.kwargs) -> None:
        if not loop.is_closed():  # else the process is about to end
            asyncio.run_coroutine_threadsafe(changed(*args, **kwargs), loop).result()

    return ask
