"""How an HTTP stand-in listens, and until when."""

from __future__ import annotations

import asyncio
import signal
import ssl
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from lab.stand_ins.signing import KeyPair

SHUTDOWN_SECONDS = 30.0  # what still runs then has nothing to wait for for long: it is cut off


def stop_signal() -> asyncio.Event:
    """Set once SIGTERM or SIGINT comes; from now on neither ends the process by itself."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


@asynccontextmanager
async def serving(
    application: web.Application, port: int, *, host: str | None = None, pair: KeyPair | None = None
) -> AsyncGenerator[None]:
    """Listen (on every address unless `host` says one, with TLS if there is a `pair`) until the block ends.

    A handler whose client goes away is cancelled, as a Go or an ASGI server does it.
    """
    runner = web.AppRunner(
        application,
        access_log=None,
        handle_signals=False,
        handler_cancellation=True,
        shutdown_timeout=SHUTDOWN_SECONDS,
    )
    await runner.setup()
    try:
        context = _server_context(pair) if pair else None
        await web.TCPSite(runner, host, port, ssl_context=context, backlog=2048).start()
        yield
    finally:
        await runner.cleanup()


def _server_context(pair: KeyPair) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    with tempfile.TemporaryDirectory() as directory:  # the ssl module takes files only
        both = Path(directory, "pair.pem")
        both.write_text(pair.key + pair.certificate)
        context.load_cert_chain(both)
    return context
