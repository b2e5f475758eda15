"""Where each request goes: prefill elsewhere and decode here, or straight through."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import uuid
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp import web

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from lab.stand_ins.routing_sidecar.flags import Options

LOG = logging.getLogger("proxy server")

PREFILL_HEADER = "x-prefiller-host-port"
REQUEST_ID_HEADER = "x-request-id"
DISAGGREGATED_PATHS = frozenset({"/v1/completions", "/v1/chat/completions"})
_RETRYABLE = {HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT}
# These belong to one connection, not to the message (RFC 9110, 7.6.1); the length is set anew by whoever sends.
_HOP_BY_HOP = frozenset(
    {
        "connection",
        "content-length",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)


class Proxy:
    """The sidecar of one decode server."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._decoder = f"http://localhost:{options.model_server_port}"
        self._session: aiohttp.ClientSession | None = None

    def application(self) -> web.Application:
        """One handler for every path and method."""
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_route("*", "/{path:.*}", self._route)
        app.cleanup_ctx.append(self._client)
        return app

    async def _client(self, _app: web.Application):  # noqa: ANN202 - an async generator for aiohttp
        # No total timeout: a generation may take as long as it takes. Bodies pass through as they are, packed or not.
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10)
        connector = aiohttp.TCPConnector(limit=0)
        self._session = aiohttp.ClientSession(timeout=timeout, connector=connector, auto_decompress=False)
        yield
        await self._session.close()

    async def _route(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        prefiller = self._prefiller(request)
        if request.method != "POST" or request.path not in DISAGGREGATED_PATHS or prefiller is None:
            return await self._decode(request, _headers(request), body)
        if self._options.ssrf_protection:
            # The real one asks an InferencePool; without one to ask, no target is on the list.
            LOG.error("SSRF protection: prefill target not in allowlist", extra={"fields": {"target": prefiller}})
            return web.Response(
                status=HTTPStatus.FORBIDDEN, text="Forbidden: prefill target not allowed by SSRF protection\n"
            )
        return await self._disaggregate(request, body, prefiller)

    def _prefiller(self, request: web.Request) -> str | None:
        values = request.headers.getall(PREFILL_HEADER, [])
        hosts = values[0].split(",") if len(values) == 1 else values
        if not hosts:
            return None
        chosen = random.choice(hosts) if self._options.prefiller_sampling else hosts[0]  # noqa: S311 - spreads load
        return chosen.strip() or None

    async def _disaggregate(self, request: web.Request, body: bytes, prefiller: str) -> web.StreamResponse:
        """NIXL protocol, version 2: one token from the prefiller, then the client's request to the decoder."""
        try:
            asked = json.loads(body)
        except ValueError as error:
            return _error(HTTPStatus.BAD_REQUEST, "BadRequestError", str(error))
        if not isinstance(asked, dict):
            return _error(HTTPStatus.BAD_REQUEST, "BadRequestError", "the body is not a JSON object")
        headers = _headers(request)
        headers.setdefault(REQUEST_ID_HEADER, str(uuid.uuid4()))
        status, answer_headers, answer = await self._prefill(request, headers, prefill_request(asked), prefiller)
        if status >= HTTPStatus.BAD_REQUEST:
            LOG.error("prefill request failed", extra={"fields": {"code": status, "target": prefiller}})
            return web.Response(status=status, body=answer, headers=answer_headers)
        try:
            finished = json.loads(answer)
        except ValueError as error:
            return _error(HTTPStatus.BAD_REQUEST, "BadRequestError", str(error))
        params = finished.get("kv_transfer_params") if isinstance(finished, dict) else None
        if params is None:
            # Nothing fails: the decoder will compute the prompt itself, and only this line tells.
            LOG.info("warning: missing 'kv_transfer_params' field in prefiller response")
        return await self._decode(request, headers, json.dumps({**asked, "kv_transfer_params": params}).encode())

    async def _prefill(
        self, request: web.Request, headers: dict[str, str], asked: dict[str, Any], prefiller: str
    ) -> tuple[int, dict[str, str], bytes]:
        body = json.dumps(asked).encode()
        for attempt in range(self._options.prefill_max_retries + 1):
            if attempt:
                await asyncio.sleep(self._options.prefill_retry_backoff_seconds)
                LOG.info("retrying prefill request", extra={"fields": {"attempt": attempt, "target": prefiller}})
            status, answer_headers, answer = await self._post(f"http://{prefiller}{request.path_qs}", headers, body)
            if status not in _RETRYABLE:
                break
        return status, answer_headers, answer

    async def _post(self, url: str, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        try:
            async with self._open("POST", url, headers, body) as response:
                return response.status, _end_to_end(response.headers), await response.read()
        except (aiohttp.ClientError, OSError, ValueError) as error:
            LOG.error("http: proxy error", extra={"fields": {"error": str(error)}})  # noqa: TRY400 - JSON line, no traceback
            return int(HTTPStatus.BAD_GATEWAY), {}, b""

    async def _decode(self, request: web.Request, headers: dict[str, str], body: bytes) -> web.StreamResponse:
        """Pass a request to the model server of this pod, and its answer back chunk by chunk as it comes."""
        response: web.StreamResponse | None = None
        try:
            async with self._open(request.method, self._decoder + request.path_qs, headers, body) as upstream:
                response = web.StreamResponse(status=upstream.status, headers=_end_to_end(upstream.headers))
                if upstream.content_length is not None:
                    response.content_length = upstream.content_length
                await response.prepare(request)
                async for chunk in upstream.content.iter_any():
                    await response.write(chunk)
                await response.write_eof()
                return response
        except (aiohttp.ClientError, OSError) as error:
            LOG.error("http: proxy error", extra={"fields": {"error": str(error)}})  # noqa: TRY400 - JSON line, no traceback
            if response is not None and response.prepared:
                if request.transport is not None:
                    request.transport.abort()  # half an answer must not look whole
                return response
        return _error(
            HTTPStatus.SERVICE_UNAVAILABLE, "ServiceUnavailable", "the decode server of this pod cannot be reached"
        )

    def _open(
        self, method: str, url: str, headers: dict[str, str], body: bytes
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        if self._session is None:
            raise RuntimeError("the proxy has not been started")
        return self._session.request(method, url, headers=headers, data=body or None, allow_redirects=False)


def prefill_request(asked: dict[str, Any]) -> dict[str, Any]:
    """What the prefiller is asked: the same prompt, one token, no stream, and to keep its KV for someone else."""
    dropped = {"stream_options", "min_tokens"}
    kept = {key: value for key, value in asked.items() if key not in dropped}
    params = {
        "do_remote_decode": True,
        "do_remote_prefill": False,
        "remote_engine_id": None,
        "remote_block_ids": None,
        "remote_host": None,
        "remote_port": None,
    }
    return {**kept, "stream": False, "max_tokens": 1, "max_completion_tokens": 1, "kv_transfer_params": params}


def _headers(request: web.Request) -> dict[str, str]:
    dropped = _HOP_BY_HOP | {PREFILL_HEADER, "host"}
    return {name: value for name, value in request.headers.items() if name.lower() not in dropped}


def _end_to_end(headers: Any) -> dict[str, str]:  # noqa: ANN401 - a multidict, of a package that is not ours to name
    return {name: value for name, value in headers.items() if name.lower() not in _HOP_BY_HOP}


def _error(status: HTTPStatus, kind: str, message: str) -> web.Response:
    body = {"object": "error", "message": message, "type": kind, "param": "", "code": int(status)}
    return web.json_response(body, status=int(status))
