"""How the sidecar starts and ends."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from typing import TYPE_CHECKING

from aiohttp import web

from lab.stand_ins.routing_sidecar import flags, json_log, tls
from lab.stand_ins.routing_sidecar.proxy import Proxy

if TYPE_CHECKING:
    from lab.stand_ins.routing_sidecar.flags import Options

LOG = logging.getLogger("setup")
DEFAULT_VERSION = "0.11"
# As a native sidecar it is stopped after the model server; what is left then has nothing to wait for for long.
SHUTDOWN_SECONDS = 30.0
USAGE_STATUS = 2


def main() -> None:
    """Run `pd-sidecar` with the process's arguments and environment."""
    version = os.environ.get("STAND_IN_ROUTER_VERSION", DEFAULT_VERSION)
    if sys.argv[1:2] in (["--help"], ["-h"]):
        sys.stderr.write(flags.usage(version) + "\n")
        sys.exit(0)
    try:
        options = flags.parse(sys.argv[1:], version)
    except flags.UsageError as error:
        sys.stderr.write(f"{error}\n{flags.usage(version)}\n{error}\n")
        sys.exit(USAGE_STATUS)
    except flags.InvalidOptionsError as error:
        sys.exit(f"invalid configuration: {error}")
    for warning in options.warnings:
        sys.stderr.write(f"{warning}\n")
    json_log.set_up(debug=options.debug_log)
    asyncio.run(_serve(options))


async def _serve(options: Options) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    runner = web.AppRunner(Proxy(options).application(), access_log=None, handle_signals=False)
    await runner.setup()
    context = tls.server_context(options.cert_path) if options.secure_serving else None
    # The timeout moved from the site to the runner in aiohttp 3.9; runner.cleanup bounds it either way.
    site = web.TCPSite(runner, "0.0.0.0", options.port, ssl_context=context, backlog=2048)  # noqa: S104 - a pod's port
    await site.start()
    fields = {"port": options.port, "secureServing": options.secure_serving, "decoder": options.model_server_port}
    LOG.info("starting", extra={"fields": fields})
    await stop.wait()
    LOG.info("shutting down")
    try:
        await asyncio.wait_for(runner.cleanup(), SHUTDOWN_SECONDS)
    except TimeoutError:
        LOG.warning("requests cut off by shutdown")
