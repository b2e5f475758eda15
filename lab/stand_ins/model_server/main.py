"""How the server starts, loads, drains and ends."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import uuid
from typing import TYPE_CHECKING

from lab.stand_ins.model_server import arguments, physics, side_channel
from lab.stand_ins.model_server.kv_transfer import Pulls, SideChannel
from lab.stand_ins.model_server.metrics import Metrics
from lab.stand_ins.model_server.runtime import Runtime
from lab.stand_ins.model_server.server import Server
from lab.stand_ins.serving import serving, stop_signal
from simulation.engine import Engine

if TYPE_CHECKING:
    from lab.stand_ins.model_server.arguments import ServeArguments
    from lab.stand_ins.model_server.physics import Physics

LOG = logging.getLogger("vllm.stand_in")
DEFAULT_SIDE_CHANNEL_PORT = 5600  # vLLM's default for VLLM_NIXL_SIDE_CHANNEL_PORT


def main() -> None:
    """Run `vllm` with the process's arguments and environment."""
    logging.basicConfig(
        level=logging.INFO, format="%(levelname)s %(asctime)s [%(name)s] %(message)s", stream=sys.stdout
    )
    try:
        asked = arguments.parse(sys.argv[1:])
        numbers = physics.read(os.environ, asked)
        _check_pool(asked, numbers)
    except (arguments.ConfigurationError, physics.PhysicsError) as error:
        sys.exit(f"ValueError: {error}")
    asyncio.run(_serve(asked, numbers))


def _check_pool(asked: ServeArguments, numbers: Physics) -> None:
    """Refuse a pool that cannot hold one request of full length, as vLLM does at start."""
    tokens = numbers.engine.kv_tokens // asked.block_size * asked.block_size
    if tokens < asked.max_model_len:
        raise arguments.ConfigurationError(
            f"The model's max seq len ({asked.max_model_len}) is larger than the maximum number of tokens that can be "
            f"stored in KV cache ({tokens}). Try increasing `gpu_memory_utilization` or decreasing `max_model_len`."
        )


async def _serve(asked: ServeArguments, numbers: Physics) -> None:
    stop = stop_signal()
    LOG.info("loading %s, %s s", asked.model, numbers.load_seconds)
    if await _set_within(stop, numbers.load_seconds):
        return  # nothing listens before the weights are in, so nothing has to be drained
    engine = Engine(numbers.engine)
    pulls = Pulls()
    runtime = Runtime(engine, Metrics(asked, engine.total_blocks), pulls.ended)
    channel = _side_channel(asked)
    listener = await _listen(channel, runtime)
    server = Server(asked, runtime, pulls, channel)
    async with serving(server.application(), asked.port, host=asked.host):
        LOG.info("serving %s on %s:%d", ", ".join(asked.served_model_names), asked.host, asked.port)
        await stop.wait()
        await _drain(server, runtime, asked.shutdown_timeout)
        await pulls.settled()
    if listener is not None:
        listener.close()


async def _drain(server: Server, runtime: Runtime, shutdown_timeout: float) -> None:
    """Refuse what is new; let run what runs for the timeout (default 0: not at all), then abort it."""
    server.draining = True
    mode = "drain" if shutdown_timeout else "abort"
    LOG.info("shutdown requested with %d unfinished requests, mode %s", runtime.active, mode)
    try:
        await asyncio.wait_for(runtime.idle(), shutdown_timeout or 0.001)
    except TimeoutError:
        runtime.abort_all()


def _side_channel(asked: ServeArguments) -> SideChannel | None:
    if asked.kv_connector is None:
        return None
    return SideChannel(
        engine_id=asked.kv_engine_id or str(uuid.uuid4()),
        host=os.environ.get("VLLM_NIXL_SIDE_CHANNEL_HOST", "localhost"),
        port=int(os.environ.get("VLLM_NIXL_SIDE_CHANNEL_PORT", str(DEFAULT_SIDE_CHANNEL_PORT))),
        tensor_parallel_size=asked.tensor_parallel_size,
    )


async def _listen(channel: SideChannel | None, runtime: Runtime) -> asyncio.Server | None:
    if channel is None:
        return None

    def answer(question: str, request_id: str) -> bool:
        if question == side_channel.PULLED:
            return runtime.pulled(request_id)
        return runtime.engine.holds(request_id)

    return await side_channel.listen(channel.host, channel.port, answer)


async def _set_within(event: asyncio.Event, seconds: float) -> bool:
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return False
    return True
