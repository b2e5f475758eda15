"""Who may read the metrics: anyone, or with authentication on, whoever Kubernetes says may GET /metrics.

No bearer token or a token that a TokenReview does not know: 401. Known, but a SubjectAccessReview for the URL says no:
403. The picker itself may not make these reviews: 500, as with the real one whose service account lacks the role.
"""

import hashlib
import logging
from collections.abc import Callable
from typing import Any

import aiohttp
from aiohttp import web

from lab.stand_ins.endpoint_picker.exposition import CONTENT_TYPE
from lab.stand_ins.endpoint_picker.kube import ApiClient, ApiStatusError

_LOG = logging.getLogger("epp.metrics")
_CACHE_SECONDS = 5.0
_CACHE_ENTRIES = 1000
_OK, _UNAUTHORIZED, _FORBIDDEN, _ERROR = 200, 401, 403, 500


class Gate:
    """Answers with the status for one Authorization header; remembers an answer for a few seconds."""

    def __init__(self, client: ApiClient, clock: Callable[[], float]) -> None:
        self._client, self._clock = client, clock
        self._cache: dict[str, tuple[float, int]] = {}

    async def status(self, authorization: str) -> int:
        """200, 401, 403 or 500; see the module's first lines."""
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return _UNAUTHORIZED
        key = hashlib.sha256(token.encode()).hexdigest()
        now = self._clock()
        if key in self._cache and self._cache[key][0] > now:
            return self._cache[key][1]
        try:
            status = await self._review(token.strip())
        except (ApiStatusError, aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            _LOG.error("cannot review a token: %s", error)
            return _ERROR
        if len(self._cache) >= _CACHE_ENTRIES:
            self._cache.clear()
        self._cache[key] = (now + _CACHE_SECONDS, status)
        return status

    async def _review(self, token: str) -> int:
        review = await self._client.create(
            "/apis/authentication.k8s.io/v1/tokenreviews",
            {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}},
        )
        status: dict[str, Any] = review.get("status", {})
        if not status.get("authenticated"):
            return _UNAUTHORIZED
        user = status.get("user", {})
        access = await self._client.create(
            "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SubjectAccessReview",
                "spec": {
                    "user": user.get("username", ""),
                    "groups": user.get("groups", []),
                    "uid": user.get("uid", ""),
                    "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
                },
            },
        )
        return _OK if access.get("status", {}).get("allowed") else _FORBIDDEN


async def serve(port: int, render: Callable[[], str], gate: Gate | None) -> web.AppRunner:
    """Serve /metrics over plain HTTP; without a gate to anyone. Call `cleanup()` on what it returns."""

    async def metrics(request: web.Request) -> web.Response:
        status = await gate.status(request.headers.get("Authorization", "")) if gate else _OK
        if status != _OK:
            return web.Response(status=status, text=f"{status}\n")
        return web.Response(text=render(), headers={"Content-Type": CONTENT_TYPE})

    application = web.Application()
    application.router.add_get("/metrics", metrics)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, None, port).start()
    return runner
