"""How the sidecar starts and ends."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from typing import TYPE_CHECKING

from lab.stand_ins import json_log
from lab.stand_ins.go_flags import FlagError, HelpRequestedError
from lab.stand_ins.routing_sidecar import flags
from lab.stand_ins.routing_sidecar.proxy import Proxy
from lab.stand_ins.serving import serving, stop_signal
from lab.stand_ins.signing import serving_pair

if TYPE_CHECKING:
    from lab.stand_ins.routing_sidecar.flags import Options

LOG = logging.getLogger("setup")
DEFAULT_VERSION = "0.11"


def main() -> None:
    """Run `pd-sidecar` with the process's arguments and environment."""
    try:
        options = flags.parse(sys.argv[1:], os.environ.get("STAND_IN_ROUTER_VERSION", DEFAULT_VERSION))
    except HelpRequestedError as usage:
        sys.stderr.write(f"{usage}\n")
        sys.exit(0)
    except FlagError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(error.status)
    for warning in options.warnings:
        sys.stderr.write(f"{warning}\n")
    json_log.set_up(json_lines=True, level=logging.DEBUG if options.debug_log else logging.INFO)
    asyncio.run(_serve(options))


async def _serve(options: Options) -> None:
    stop = stop_signal()
    pair = serving_pair(options.cert_path, "pd-sidecar") if options.secure_serving else None
    async with serving(Proxy(options).application(), options.port, pair=pair):
        fields = {"port": options.port, "secureServing": options.secure_serving, "decoder": options.model_server_port}
        LOG.info("starting", extra={"fields": fields})
        await stop.wait()
        LOG.info("shutting down")
