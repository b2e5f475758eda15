"""How the physics runs on the event loop's clock, and who hears of which event."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from lab.stand_ins.model_server.metrics import Metrics, Times
from simulation.engine import Engine, Event, EventKind, Request

if TYPE_CHECKING:
    from collections.abc import Callable

LOG = logging.getLogger("vllm.stand_in.engine")
ABORT = "abort"


class Stream:
    """What one request gets from the engine: tokens, then a finish reason."""

    def __init__(self, request: Request, times: Times, *, finish_reason: str, max_tokens: int) -> None:
        self.request = request
        self.times = times
        self.finish_reason = finish_reason
        self.max_tokens = max_tokens
        self.generated = 0
        self.ended: str | None = None
        self._changed = asyncio.Event()
        self._finished = asyncio.Event()

    def token(self, time: float) -> None:
        """One more token, emitted at `time`."""
        if self.generated == 0:
            self.times.first_token = time
        self.times.last_token = time
        self.generated += 1
        self._changed.set()

    def end(self, reason: str) -> None:
        """No more tokens; `reason` is what the client hears."""
        self.ended = reason
        self._changed.set()
        self._finished.set()

    async def changed(self) -> None:
        """Wait until there are new tokens or the end."""
        await self._changed.wait()
        self._changed.clear()

    async def finished(self) -> str:
        """Wait for the end and return its reason."""
        await self._finished.wait()
        return self.ended or ABORT


class Runtime:
    """One engine, driven by a timer at the exact time of its next event.

    Each event carries its theoretical time, and the next deadline is computed from that, never from when the loop woke
    up: a busy CPU makes single tokens late but does not slow the engine down.
    """

    def __init__(self, engine: Engine, metrics: Metrics, on_transfer: Callable[[str], None]) -> None:
        self.engine = engine
        self._metrics = metrics
        self._on_transfer = on_transfer
        self._loop = asyncio.get_running_loop()
        self._streams: dict[str, Stream] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()
        self._idle.set()

    def submit(self, request: Request, arrival: float, *, finish_reason: str, max_tokens: int) -> Stream:
        """Queue `request` as of `arrival` (seconds of the loop's clock).

        Raises:
            ValueError: the engine can never serve it.
        """
        self.engine.submit(arrival, request)
        stream = Stream(request, Times(arrival), finish_reason=finish_reason, max_tokens=max_tokens)
        self._streams[request.id] = stream
        self._idle.clear()
        self._turn()
        return stream

    def abort(self, request_id: str, reason: str = ABORT) -> None:
        """End a request that has not finished; no effect on any other."""
        if request_id in self._streams and self.engine.abort(self._loop.time(), request_id):
            stream = self._pop(request_id)
            self._metrics.ended_early(reason)
            if stream.request.remote_prefill and stream.generated == 0:
                self._on_transfer(request_id)  # the other side need not hold what nobody will pull
            stream.end(reason)
            self._turn()

    def refuse(self) -> None:
        """Count a request that failed before the engine had it."""
        self._metrics.ended_early("error")

    def abort_all(self) -> None:
        """End every request, as SIGTERM does without a shutdown timeout."""
        for request_id in list(self._streams):
            self.abort(request_id)

    def pulled(self, request_id: str) -> bool:
        """Free the held blocks of a finished request; False if there are none."""
        freed = self.engine.pulled(self._loop.time(), request_id)
        self._turn()
        return freed

    def render_metrics(self) -> bytes:
        """The exposition text as of now."""
        self._turn()
        return self._metrics.render(self.engine.load())

    async def idle(self) -> None:
        """Wait until no request is unfinished (held blocks do not count)."""
        await self._idle.wait()

    @property
    def active(self) -> int:
        """Unfinished requests."""
        return len(self._streams)

    def _turn(self) -> None:
        for event in self.engine.advance(self._loop.time()):
            self._tell(event)
        if self._timer is not None:
            self._timer.cancel()
        due = self.engine.next_event()
        self._timer = None if due is None else self._loop.call_at(due, self._turn)

    def _tell(self, event: Event) -> None:
        if event.kind is EventKind.EXPIRED:
            LOG.warning("KV blocks of %s freed: no decode engine pulled them in time", event.request_id)
            return
        stream = self._streams.get(event.request_id)
        if stream is None:
            return  # told before its abort, of a request that has no reader any more
        if event.kind is EventKind.TOKEN:
            self._token(stream, event.time)
        elif event.kind is EventKind.SCHEDULED:
            stream.times.scheduled = event.time
        elif event.kind is EventKind.TRANSFERRED:
            self._on_transfer(event.request_id)
        elif event.kind is EventKind.PREEMPTED:
            self._metrics.preempted()
        elif event.kind is EventKind.FINISHED:
            self._finish(stream)

    def _token(self, stream: Stream, time: float) -> None:
        before = stream.times.last_token
        stream.token(time)
        if stream.generated == 1:
            self._metrics.first_token(
                stream.times, stream.request.prompt_tokens, external=stream.request.remote_prefill
            )
        else:
            self._metrics.next_token(time - before)

    def _finish(self, stream: Stream) -> None:
        self._pop(stream.request.id)
        self._metrics.finished(
            stream.times,
            stream.finish_reason,
            prompt_tokens=stream.request.prompt_tokens,
            generated=stream.generated,
            max_tokens=stream.max_tokens,
        )
        stream.end(stream.finish_reason)

    def _pop(self, request_id: str) -> Stream:
        stream = self._streams.pop(request_id)
        if not self._streams:
            self._idle.set()
        return stream
