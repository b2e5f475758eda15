"""How a decode engine asks a prefill engine for held blocks, and tells it that it has pulled them.

A stand-in for NIXL's side channel on the same host and port (VLLM_NIXL_SIDE_CHANNEL_HOST, _PORT, 5600 by default).
One JSON object a line each way: `{"ask": "holds" | "pulled", "request_id": "…"}` and `{"ok": true | false}`.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

HOLDS = "holds"
PULLED = "pulled"
# A pod that is gone without a trace neither refuses nor answers; NIXL's own handshake gives up after seconds, too.
TIMEOUT_SECONDS = 5.0


async def listen(host: str, port: int, answers: Callable[[str, str], bool]) -> asyncio.Server:
    """Serve the side channel; `answers(ask, request_id)` decides each line."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                message = json.loads(line)
                ok = answers(str(message["ask"]), str(message["request_id"]))
                writer.write(json.dumps({"ok": ok}).encode() + b"\n")
                await writer.drain()
        except (OSError, ValueError, KeyError, TypeError):
            pass  # a broken line or peer ends its own connection and nothing else
        finally:
            writer.close()

    return await asyncio.start_server(serve, host, port)


async def ask(host: str, port: int, question: str, request_id: str) -> bool:
    """Put one question to the engine at `host`:`port`.

    Raises:
        OSError: it cannot be reached, or does not answer in time (TimeoutError) or at all (ConnectionError).
    """
    async with asyncio.timeout(TIMEOUT_SECONDS):
        reader, writer = await asyncio.open_connection(host, port)
        try:
            writer.write(json.dumps({"ask": question, "request_id": request_id}).encode() + b"\n")
            await writer.drain()
            line = await reader.readline()
        finally:
            writer.close()
    if not line:
        raise ConnectionError(f"{host}:{port} closed the side channel without an answer")
    return bool(json.loads(line)["ok"])
