"""When an inference engine emits each token of the requests it was given."""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from simulation.kv_pool import KvPool
from simulation.shared_link import SharedLink

# How long a prefill engine keeps the blocks of a finished request that nobody pulls: vLLM's
# VLLM_NIXL_ABORT_REQUEST_TIMEOUT, 480 s by default (vLLM 0.27, 2026).
HOLD_TIMEOUT_SECONDS = 480.0


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """The numbers of one engine; rates in tokens/s, pool in tokens, times in seconds."""

    prefill_tokens_per_second: float
    transfer_tokens_per_second: float
    decode_base_seconds: float
    decode_seconds_per_sequence: float
    kv_tokens: int
    block_size: int = 16
    max_num_batched_tokens: int = 8192
    max_num_seqs: int = 1024
    hold_timeout_seconds: float = HOLD_TIMEOUT_SECONDS

    def __post_init__(self) -> None:
        for name in ("prefill_tokens_per_second", "transfer_tokens_per_second", "decode_base_seconds"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive, not {getattr(self, name)}")
        if self.decode_seconds_per_sequence < 0:
            raise ValueError(f"decode_seconds_per_sequence must not be negative: {self.decode_seconds_per_sequence}")
        for name in ("max_num_batched_tokens", "max_num_seqs"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")


@dataclass(frozen=True, kw_only=True)
class Request:
    """One prompt and how many tokens it wants back.

    `remote_prefill`: another engine computed the prompt, its KV comes over the link. `hold_for_pull`: once finished,
    the KV blocks stay until `Engine.pulled` or the hold timeout.
    """

    id: str
    prompt_tokens: int
    output_tokens: int
    remote_prefill: bool = False
    hold_for_pull: bool = False


class EventKind(enum.Enum):
    """What happened to a request."""

    SCHEDULED = "scheduled"  # entered the running batch for the first time
    TRANSFERRED = "transferred"  # its KV has arrived over the link
    TOKEN = "token"  # one token of output  # noqa: S105 - the unit of text, no credential
    FINISHED = "finished"  # its last token is out
    PREEMPTED = "preempted"  # lost its blocks to older requests, computes its context again
    EXPIRED = "expired"  # nobody pulled its held blocks in time


class Event(NamedTuple):
    """Something that happened to `request_id` at exactly `time` (theory, not when somebody looked)."""

    time: float
    kind: EventKind
    request_id: str


@dataclass(frozen=True)
class Load:
    """The engine's state as vLLM's gauges tell it.

    `waiting_capacity`: queued for a slot, for blocks or for the token budget. `waiting_deferred`: KV on its way.
    Requests whose finished blocks are held for a pull are in neither, but in `kv_usage` (0..1).
    """

    running: int
    waiting_capacity: int
    waiting_deferred: int
    kv_usage: float

    @property
    def waiting(self) -> int:
        """All waiting requests, as `vllm:num_requests_waiting` counts them."""
        return self.waiting_capacity + self.waiting_deferred


class _Sequence:
    """A request on its way through the engine."""

    __slots__ = ("generated", "remote", "request", "scheduled", "to_compute")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.generated = 0
        self.to_compute = 0
        self.remote = request.remote_prefill
        self.scheduled = False

    @property
    def id(self) -> str:
        return self.request.id

    @property
    def context(self) -> int:
        return self.request.prompt_tokens + self.generated


class Engine:
    """An event-driven engine: one serial prefill engine, one decode batch, one KV pool, one incoming link.

    - Prefill runs in steps of at most `max_num_batched_tokens` prompt tokens, first come first served; a step lasts
      tokens / speed and emits the first token of every prompt that it completes.
    - Decode runs in steps beside it: all sequences of a step get one token when it ends, base + slope x sequences
      later. Prefill and decode do not slow each other down (on a real co-located engine they share the steps), and
      decode tokens do not count against a prefill step's budget.
    - A prompt takes its blocks on admission, decode grows block by block; when the pool is empty the youngest decoding
      sequence is preempted and computes its whole context again. No prefix is ever found in a cache.
    - A request with `remote_prefill` takes its blocks, receives its prompt over the shared link and then joins decode;
      its first token is its first decode step's.

    A method's `now` may lie behind an earlier `advance`: what it changes then counts from `now` or from the last event
    before it, whichever is later, so that a caller some milliseconds late moves no deadline of an idle engine.
    """

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self._pool = KvPool(config.kv_tokens, config.block_size)
        self._link = SharedLink(config.transfer_tokens_per_second)
        self._sequences: dict[str, _Sequence] = {}
        self._waiting: deque[_Sequence] = deque()
        self._arrived: deque[_Sequence] = deque()  # transferred, but the batch was full
        self._prefilling: dict[str, _Sequence] = {}
        self._decoding: dict[str, _Sequence] = {}
        self._held: dict[str, float] = {}  # id -> time of expiry; same timeout for all, so the oldest is first
        self._prefill_end: float | None = None
        self._prefill_shares: list[tuple[_Sequence, int]] = []
        self._decode_end: float | None = None
        self._decode_batch: list[_Sequence] = []
        self._clock = float("-inf")
        self._events: list[Event] = []

    # What a caller does

    def submit(self, now: float, request: Request) -> None:
        """Queue `request` as of `now`.

        Raises:
            ValueError: the id is in use, a length is below 1, or the pool could never hold the request.
        """
        if request.id in self._sequences or request.id in self._held:
            raise ValueError(f"request {request.id} is already here")
        if request.prompt_tokens < 1 or request.output_tokens < 1:
            raise ValueError(f"request {request.id} needs at least one prompt token and one output token")
        blocks = self._pool.blocks_for(request.prompt_tokens + request.output_tokens - 1)
        if blocks > self._pool.total_blocks:
            raise ValueError(f"request {request.id} needs {blocks} KV blocks, the pool has {self._pool.total_blocks}")
        at = self._reach(now)
        sequence = _Sequence(request)
        self._sequences[request.id] = sequence
        self._waiting.append(sequence)
        self._schedule(at)

    def abort(self, now: float, request_id: str) -> bool:
        """Drop an unfinished request and free all that it has; False if there is none of this id.

        A step that is under way takes its time all the same, as on a GPU.
        """
        at = self._reach(now)
        sequence = self._sequences.pop(request_id, None)
        if sequence is None:
            return False
        if request_id in self._link:
            self._link.cancel(at, request_id)
        for queue in (self._waiting, self._arrived):
            if sequence in queue:
                queue.remove(sequence)
        self._prefilling.pop(request_id, None)
        self._decoding.pop(request_id, None)
        self._pool.release(request_id)
        self._schedule(at)
        return True

    def pulled(self, now: float, request_id: str) -> bool:
        """Free the held blocks of a finished request; False if none are held (pulled before, or expired)."""
        at = self._reach(now)
        if self._held.pop(request_id, None) is None:
            return False
        self._pool.release(request_id)
        self._schedule(at)
        return True

    def next_event(self) -> float | None:
        """Time of the next event if nobody calls in between; None when nothing is under way."""
        times = [self._prefill_end, self._decode_end, self._link.next_end(), next(iter(self._held.values()), None)]
        return min((time for time in times if time is not None), default=None)

    def advance(self, now: float) -> list[Event]:
        """All events up to and including `now` that no earlier call returned, in order of time."""
        self._run(now)
        events, self._events = self._events, []
        return events

    def load(self) -> Load:
        """The gauges as of the last event."""
        return Load(
            running=len(self._prefilling) + len(self._decoding),
            waiting_capacity=len(self._waiting),
            waiting_deferred=len(self._link) + len(self._arrived),
            kv_usage=self._pool.usage,
        )

    def holds(self, request_id: str) -> bool:
        """Whether finished blocks of this request wait to be pulled."""
        return request_id in self._held

    def blocks_of(self, request_id: str) -> int:
        """KV blocks that a request has, finished and held or not."""
        return self._pool.blocks_of(request_id)

    @property
    def total_blocks(self) -> int:
        """Size of the KV pool in blocks."""
        return self._pool.total_blocks

    # What time does

    def _reach(self, now: float) -> float:
        self._run(now)
        self._clock = max(now, self._clock)
        return self._clock

    def _run(self, now: float) -> None:
        while (time := self.next_event()) is not None and time <= now:
            self._clock = time
            self._fire(time)
            self._schedule(time)

    def _fire(self, time: float) -> None:
        """Let happen all that is due at `time`, in a fixed order, before anything new is scheduled."""
        if self._link.next_end() == time:
            for key in self._link.finish_due(time):
                self._emit(time, EventKind.TRANSFERRED, key)
                self._sequences[key].remote = False
                self._arrived.append(self._sequences[key])
        if self._decode_end == time:
            batch, self._decode_batch, self._decode_end = self._decode_batch, [], None
            for sequence in batch:
                if sequence.id in self._decoding:
                    self._token(time, sequence)
        if self._prefill_end == time:
            shares, self._prefill_shares, self._prefill_end = self._prefill_shares, [], None
            for sequence, tokens in shares:
                if sequence.id in self._prefilling:
                    self._computed(time, sequence, tokens)
        while self._held and next(iter(self._held.values())) <= time:
            key = next(iter(self._held))
            del self._held[key]
            self._pool.release(key)
            self._emit(time, EventKind.EXPIRED, key)

    def _computed(self, time: float, sequence: _Sequence, tokens: int) -> None:
        sequence.to_compute -= tokens
        if sequence.to_compute == 0:
            del self._prefilling[sequence.id]
            self._decoding[sequence.id] = sequence
            self._token(time, sequence)

    def _token(self, time: float, sequence: _Sequence) -> None:
        sequence.generated += 1
        self._emit(time, EventKind.TOKEN, sequence.id)
        if sequence.generated < sequence.request.output_tokens:
            return
        del self._decoding[sequence.id]
        del self._sequences[sequence.id]
        if sequence.request.hold_for_pull:
            self._held[sequence.id] = time + self.config.hold_timeout_seconds
        else:
            self._pool.release(sequence.id)
        self._emit(time, EventKind.FINISHED, sequence.id)

    def _schedule(self, time: float) -> None:
        self._seat_arrived(time)
        if self._decode_end is None and self._decoding:
            self._start_decode(time)
        self._admit(time)

    def _seat_arrived(self, time: float) -> None:
        while self._arrived and self._has_slot():
            sequence = self._arrived.popleft()
            self._enter(time, sequence)
            self._decoding[sequence.id] = sequence

    def _start_decode(self, time: float) -> None:
        for sequence in list(self._decoding.values()):
            while sequence.id in self._decoding and not self._pool.reserve(sequence.id, sequence.context):
                self._preempt(time, next(reversed(self._decoding.values())))
        if self._decoding:
            self._decode_batch = list(self._decoding.values())
            step = self.config.decode_base_seconds + self.config.decode_seconds_per_sequence * len(self._decode_batch)
            self._decode_end = time + step

    def _preempt(self, time: float, sequence: _Sequence) -> None:
        del self._decoding[sequence.id]
        self._pool.release(sequence.id)
        self._waiting.appendleft(sequence)
        self._emit(time, EventKind.PREEMPTED, sequence.id)

    def _admit(self, time: float) -> None:
        """Take from the head of the queue what fits, never past a head that does not; start a prefill step if idle."""
        idle = self._prefill_end is None
        budget = self.config.max_num_batched_tokens if idle else 0
        shares: list[tuple[_Sequence, int]] = []
        if idle:
            for sequence in self._prefilling.values():
                budget -= _take(shares, sequence, budget)
        while self._waiting and self._has_slot():
            head = self._waiting[0]
            if (not head.remote and budget == 0) or not self._pool.reserve(head.id, head.context):
                break
            self._waiting.popleft()
            if head.remote:
                self._link.start(time, head.id, head.request.prompt_tokens)
                continue
            self._enter(time, head)
            head.to_compute = head.context
            self._prefilling[head.id] = head
            budget -= _take(shares, head, budget)
        if shares:
            self._prefill_shares = shares
            self._prefill_end = time + sum(n for _, n in shares) / self.config.prefill_tokens_per_second

    def _enter(self, time: float, sequence: _Sequence) -> None:
        if not sequence.scheduled:
            sequence.scheduled = True
            self._emit(time, EventKind.SCHEDULED, sequence.id)

    def _has_slot(self) -> bool:
        return len(self._prefilling) + len(self._decoding) < self.config.max_num_seqs

    def _emit(self, time: float, kind: EventKind, request_id: str) -> None:
        self._events.append(Event(time, kind, request_id))


def _take(shares: list[tuple[_Sequence, int]], sequence: _Sequence, budget: int) -> int:
    tokens = min(sequence.to_compute, budget)
    if tokens:
        shares.append((sequence, tokens))
    return tokens
