"""How the API server answers each path."""

from __future__ import annotations

import asyncio
import json
import logging
import time
import uuid
from http import HTTPStatus
from typing import TYPE_CHECKING

from aiohttp import web

from lab.stand_ins.exposition import CONTENT_TYPE
from lab.stand_ins.model_server import kv_transfer, openai_api
from lab.stand_ins.model_server.arguments import VLLM_VERSION
from lab.stand_ins.model_server.openai_api import ApiError, Chunks, Completion
from lab.stand_ins.model_server.runtime import ABORT
from simulation.engine import Request

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lab.stand_ins.model_server.arguments import ServeArguments
    from lab.stand_ins.model_server.runtime import Runtime, Stream

LOG = logging.getLogger("vllm.stand_in.server")
ACCESS = logging.getLogger("vllm.stand_in.access")

# A 131,072-token prompt as JSON numbers is about 0.9 MB; vLLM itself sets no limit.
MAX_BODY_BYTES = 64 * 2**20


class Server:
    """The HTTP side of one engine."""

    def __init__(
        self,
        arguments: ServeArguments,
        runtime: Runtime,
        pulls: kv_transfer.Pulls,
        channel: kv_transfer.SideChannel | None,
    ) -> None:
        self._arguments = arguments
        self._runtime = runtime
        self._pulls = pulls
        self._channel = channel
        self._created = int(time.time())
        self.draining = False

    def application(self) -> web.Application:
        """The routes, with access log."""
        middlewares = [self._access_log] if self._arguments.access_log else []
        app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=middlewares)
        app.router.add_get("/health", self._health)
        app.router.add_get("/ping", self._health)
        app.router.add_get("/version", self._version)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/completions", self._completions)
        app.router.add_post("/v1/chat/completions", self._chat)
        return app

    async def _health(self, _request: web.Request) -> web.Response:
        return web.Response()

    async def _version(self, _request: web.Request) -> web.Response:
        return web.json_response({"version": VLLM_VERSION})

    async def _metrics(self, _request: web.Request) -> web.Response:
        return web.Response(body=self._runtime.render_metrics(), headers={"Content-Type": CONTENT_TYPE})

    async def _models(self, _request: web.Request) -> web.Response:
        cards = [
            {
                "id": name,
                "object": "model",
                "created": self._created,
                "owned_by": "vllm",
                "root": self._arguments.model,
                "parent": None,
                "max_model_len": self._arguments.max_model_len,
            }
            for name in self._arguments.served_model_names
        ]
        return web.json_response({"object": "list", "data": cards})

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, chat=False)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, chat=True)

    async def _answer(self, request: web.Request, *, chat: bool) -> web.StreamResponse:
        # Taken before the body is read, so that parsing a long prompt does not count against the engine.
        arrival = asyncio.get_running_loop().time()
        try:
            return await self._complete(request, arrival, chat=chat)
        except ApiError as error:
            return web.Response(status=int(error.status), text=error.body, content_type="application/json")

    async def _complete(self, request: web.Request, arrival: float, *, chat: bool) -> web.StreamResponse:
        if self.draining:
            raise ApiError(HTTPStatus.SERVICE_UNAVAILABLE, "the server is shutting down", "ServiceUnavailableError")
        completion = openai_api.parse(
            await request.read(),
            chat=chat,
            served=self._arguments.served_model_names,
            max_model_len=self._arguments.max_model_len,
        )
        kind = "chatcmpl" if chat else "cmpl"
        request_id = f"{kind}-{request.headers.get('X-Request-Id') or uuid.uuid4().hex}"
        # The engine's own id is unique whatever the client sends.
        engine_id = f"{request_id}-{uuid.uuid4().hex[:8]}"
        identity = {"id": request_id, "created": int(time.time()), "model": completion.model}
        try:
            stream = await self._submit(completion, engine_id, arrival)
            if completion.stream:
                return await self._stream(request, completion, stream, Chunks(completion, identity))
            reason = await stream.finished()
            held = self._held_params(completion, stream)
            body = openai_api.answer(completion, identity, stream.generated, reason, held)
            return web.Response(body=body, content_type="application/json")
        finally:
            # The client may have gone at any await above. Neither has an effect on what is through.
            self._runtime.abort(engine_id)
            self._pulls.ended(engine_id)

    async def _submit(self, completion: Completion, engine_id: str, arrival: float) -> Stream:
        params = completion.kv_transfer_params
        if params and self._channel is None:
            LOG.warning("Got kv_transfer_params, but no KVConnector found. Disabling KVTransfer for this request.")
            params = None
        remote = kv_transfer.remote_of(params)
        if remote is not None and not await self._pulls.begin(engine_id, remote):
            if self._arguments.kv_load_failure_policy == "fail":
                self._runtime.refuse()
                raise ApiError(HTTPStatus.INTERNAL_SERVER_ERROR, "KV load failed", "InternalServerError")
            remote = None
        request = Request(
            id=engine_id,
            prompt_tokens=completion.prompt_tokens,
            output_tokens=completion.output_tokens,
            remote_prefill=remote is not None,
            hold_for_pull=kv_transfer.wants_hold(params),
        )
        return self._runtime.submit(
            request, arrival, finish_reason=completion.finish_reason, max_tokens=completion.max_tokens
        )

    def _held_params(self, completion: Completion, stream: Stream) -> dict[str, object] | None:
        if self._channel is None or not self._runtime.engine.holds(stream.request.id):
            return None
        blocks = self._runtime.engine.blocks_of(stream.request.id)
        return kv_transfer.held(self._channel, stream.request.id, blocks, completion.prompt_tokens)

    async def _stream(
        self, request: web.Request, completion: Completion, stream: Stream, chunks: Chunks
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        sent = 0
        try:
            while stream.ended is None or sent < stream.generated:
                await stream.changed()
                # Whatever came since the last write goes out in one, each token as its own event.
                parts = [chunks.role()] if sent == 0 and stream.generated else []
                while sent < stream.generated:
                    last = stream.ended is not None and sent == stream.generated - 1 and stream.ended != ABORT
                    parts.append(chunks.token(sent, stream.ended if last else None))
                    sent += 1
                if parts:
                    await response.write(b"".join(parts))
            end = [chunks.end(ABORT)] if stream.ended == ABORT else []
            if completion.include_usage:
                end.append(chunks.usage(stream.generated))
            await response.write(b"".join([*end, Chunks.DONE]))
            await response.write_eof()
        except ConnectionError:
            pass  # the client has gone; the caller aborts what is left
        return response

    @web.middleware
    async def _access_log(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        status = int(HTTPStatus.INTERNAL_SERVER_ERROR)
        try:
            response = await handler(request)
            status = response.status
        except web.HTTPException as error:
            status = error.status
            if status == HTTPStatus.NOT_FOUND:
                return web.Response(
                    status=status, text=json.dumps({"detail": "Not Found"}), content_type="application/json"
                )
            raise
        else:
            return response
        finally:
            if request.path not in self._arguments.access_log_disabled_for:
                version = f"HTTP/{request.version.major}.{request.version.minor}"
                ACCESS.info('%s - "%s %s %s" %d', request.remote, request.method, request.path_qs, version, status)
