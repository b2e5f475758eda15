"""What `kv_transfer_params` mean on either side of a transfer."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lab.stand_ins.model_server import side_channel

if TYPE_CHECKING:
    from collections.abc import Mapping

LOG = logging.getLogger("vllm.stand_in.kv_transfer")
_REMOTE_KEYS = ("remote_engine_id", "remote_block_ids", "remote_host", "remote_port", "remote_request_id")


@dataclass(frozen=True)
class Remote:
    """Where the KV of a prompt is held."""

    host: str
    port: int
    request_id: str


@dataclass(frozen=True)
class SideChannel:
    """Who this engine is to the engines that pull from it."""

    engine_id: str
    host: str
    port: int
    tensor_parallel_size: int


def wants_hold(params: Mapping[str, Any] | None) -> bool:
    """Whether the blocks of this request are to stay for another engine (`do_remote_decode`)."""
    return bool(params and params.get("do_remote_decode"))


def remote_of(params: Mapping[str, Any] | None) -> Remote | None:
    """Where the prompt's KV is, or None if this engine must compute it.

    Incomplete parameters only draw a warning and a local prefill, as NIXL's connector does it.
    """
    if not params or not params.get("do_remote_prefill"):
        return None
    missing = [key for key in _REMOTE_KEYS if not params.get(key)]
    if missing:
        LOG.warning("Got invalid KVTransferParams, %s missing: prefilling locally", ", ".join(missing))
        return None
    return Remote(str(params["remote_host"]), int(params["remote_port"]), str(params["remote_request_id"]))


def held(channel: SideChannel, request_id: str, blocks: int, prompt_tokens: int) -> dict[str, Any]:
    """The parameters that tell a decode engine where the finished prompt `request_id` is held."""
    return {
        "do_remote_prefill": True,
        "do_remote_decode": False,
        "remote_block_ids": [list(range(1, blocks + 1))],
        "remote_engine_id": channel.engine_id,
        "remote_request_id": request_id,
        "remote_host": channel.host,
        "remote_port": channel.port,
        "tp_size": channel.tensor_parallel_size,
        "remote_num_tokens": prompt_tokens,
    }


class Pulls:
    """The transfers into this engine: asks before one starts, tells when it has ended."""

    def __init__(self) -> None:
        self._remotes: dict[str, Remote] = {}
        self._notices: set[asyncio.Task[None]] = set()

    async def begin(self, request_id: str, remote: Remote) -> bool:
        """Whether `remote` answers and still holds the blocks; remembers it for `ended`."""
        self._remotes[request_id] = remote
        try:
            if await side_channel.ask(remote.host, remote.port, side_channel.HOLDS, remote.request_id):
                return True
            LOG.warning("%s:%s does not hold the blocks of %s", remote.host, remote.port, remote.request_id)
        except OSError as error:
            LOG.warning("NIXL handshake with %s:%s failed: %s", remote.host, remote.port, error)
        del self._remotes[request_id]
        return False

    def ended(self, request_id: str) -> None:
        """The transfer is through, or nobody wants it any more: the blocks over there may go."""
        remote = self._remotes.pop(request_id, None)
        if remote is not None:
            notice = asyncio.create_task(self._notify(remote))
            self._notices.add(notice)
            notice.add_done_callback(self._notices.discard)

    async def settled(self) -> None:
        """Wait until every notice is out."""
        await asyncio.gather(*self._notices)

    async def _notify(self, remote: Remote) -> None:
        try:
            await side_channel.ask(remote.host, remote.port, side_channel.PULLED, remote.request_id)
        except OSError as error:
            LOG.warning(
                "could not tell %s:%s that %s was pulled: %s", remote.host, remote.port, remote.request_id, error
            )
