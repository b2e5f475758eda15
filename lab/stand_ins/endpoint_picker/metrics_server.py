"""How the picker's metrics are served: to anyone, or with authentication on, to whoever may GET /metrics.

No bearer token or one that a TokenReview does not know: 401. Known, but a SubjectAccessReview for the URL says no: 403.
The picker itself may not make these reviews: 500, as with the real one whose service account lacks the role.
"""

import asyncio
import http.client
import logging
from collections.abc import Callable
from http import HTTPStatus

from aiohttp import web

from lab.stand_ins.access_review import RecentVerdicts, Verdict
from lab.stand_ins.exposition import CONTENT_TYPE
from lab.stand_ins.in_cluster import ApiError

ACCESS = {"nonResourceAttributes": {"verb": "get", "path": "/metrics"}}

_LOG = logging.getLogger("epp.metrics")


def application(render: Callable[[], bytes], verdicts: RecentVerdicts | None) -> web.Application:
    """Answers /metrics; without `verdicts` to anyone."""

    async def metrics(request: web.Request) -> web.Response:
        verdict = Verdict(HTTPStatus.OK, "no authentication")
        if verdicts:
            try:
                verdict = await asyncio.to_thread(verdicts.of, request.headers.get("Authorization"))
            except (ApiError, OSError, http.client.HTTPException, ValueError) as error:
                _LOG.error("cannot review a token: %s", error)
                verdict = Verdict(HTTPStatus.INTERNAL_SERVER_ERROR, "the token cannot be reviewed")
        if verdict.status != HTTPStatus.OK:
            return web.Response(status=verdict.status, text=f"{verdict.reason}\n")
        return web.Response(body=render(), headers={"Content-Type": CONTENT_TYPE})

    served = web.Application()
    served.router.add_get("/metrics", metrics)
    return served
