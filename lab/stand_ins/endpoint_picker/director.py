"""What happens to one request from its headers to the end of its response, apart from the wire.

Headers and body in, routing headers or a refusal out; then the response's start, first chunk and end, which move the
books. Everything here is synchronous: a decision and its charge are one step, so that two requests never see the same
idle endpoint.
"""

import logging
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random

from lab.stand_ins.endpoint_picker import prompt as prompts
from lab.stand_ins.endpoint_picker.config import PickerConfig, Plugin
from lab.stand_ins.endpoint_picker.datastore import Datastore, Endpoint
from lab.stand_ins.endpoint_picker.inflight import Accounting, Charge, Ticket
from lab.stand_ins.endpoint_picker.metrics import Metrics
from lab.stand_ins.endpoint_picker.pod_metrics import PodMetrics
from lab.stand_ins.endpoint_picker.prefix_index import PrefixIndex
from lab.stand_ins.endpoint_picker.scheduler import Candidate, Scheduler

DESTINATION_HEADER = "x-gateway-destination-endpoint"
PREFILLER_HEADER = "x-prefiller-host-port"
REQUEST_ID_HEADER = "x-request-id"
FAIRNESS_HEADER = "x-gateway-inference-fairness-id"
DEFAULT_FAIRNESS_ID = "default-flow"
PRIORITY = 0  # other priorities come from InferenceObjectives, which the stand-in does not read

_LOG = logging.getLogger("epp.director")
_FIRST_ERROR_STATUS = 400
_BAD_REQUEST = 400
_UNAVAILABLE = 503


class RefusalError(Exception):
    """The request is answered here instead of being routed.

    Attributes:
        status: HTTP status.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass
class Exchange:
    """A routed request until its response ends.

    Attributes:
        set_headers: To set on the request, replacing what the client sent.
        remove_headers: To take off the request.
        destination: `ip:port` of the chosen endpoint.
    """

    destination: str
    set_headers: Mapping[str, str]
    remove_headers: tuple[str, ...] = ()
    arrived: float = 0.0
    labels: tuple[str, str, str, str] | None = None  # values of metrics.REQUEST_LABELS; None: not counted
    ticket: Ticket = field(default_factory=Ticket)
    streaming: bool = False
    status: int = 0
    answered: bool = False
    ended: bool = False


@dataclass(frozen=True, kw_only=True)
class Director:
    """Decides on requests and keeps the books; `clock` counts seconds."""

    config: PickerConfig
    scheduler: Scheduler
    datastore: Datastore
    accounting: Accounting
    index: PrefixIndex
    metrics: Metrics
    pod_metrics: Callable[[str], PodMetrics]
    clock: Callable[[], float]
    random: Random

    def admit_without_body(self) -> Exchange:
        """Route a request that has no body (a GET) to any endpoint; it is not counted.

        Raises:
            RefusalError: No endpoint.
        """
        endpoints = self.datastore.endpoints()
        if not endpoints:
            raise RefusalError(_UNAVAILABLE, "no endpoint of the pool is ready")
        destination = self.random.choice(endpoints).host_port
        return Exchange(destination, {DESTINATION_HEADER: destination}, (PREFILLER_HEADER,))

    def admit(self, headers: Mapping[str, str], body: bytes, arrived: float) -> Exchange:
        """Route a request with its complete body.

        Args:
            headers: Lower-case names.
            body: Complete.
            arrived: When its headers came, by the clock.

        Raises:
            RefusalError: The body cannot be read, or no endpoint can take it.
        """
        fairness_id = headers.get(FAIRNESS_HEADER) or DEFAULT_FAIRNESS_ID
        try:
            prompt = prompts.read(body)
        except prompts.BadRequestError as error:
            self.metrics.errors.of("BadRequest", fairness_id, "", str(PRIORITY), "").inc()
            raise RefusalError(_BAD_REQUEST, str(error)) from None
        labels = (fairness_id, prompt.model, str(PRIORITY), prompt.model)
        started = self.clock()
        endpoints = self.datastore.endpoints()
        block_tokens, capacity = self._blocks(endpoints)
        hashes = self._hashes(prompt, block_tokens)
        candidates = [self._candidate(endpoint, prompt.tokens, hashes, block_tokens) for endpoint in endpoints]
        decision = self.scheduler.schedule(candidates, prompt.tokens)
        self.metrics.scheduler_seconds.of().observe(self.clock() - started)
        if decision is None:
            self.metrics.attempts.of("", "", "", "failure", prompt.model).inc()
            self.metrics.errors.of("ServiceUnavailable", *labels).inc()
            raise RefusalError(_UNAVAILABLE, "no endpoint of the pool can take the request")
        primary = decision.primary.endpoint
        self.metrics.attempts.of(primary.name, primary.namespace, str(primary.port), "success", prompt.model).inc()
        if decision.decision_type is not None:
            handler = self.config.handler
            self.metrics.decided(decision.decision_type, prompt.model, handler.name, handler.type)
        charges = []
        for profile, candidate in decision.chosen.items():
            endpoint = candidate.endpoint
            charges.append(Charge(profile, endpoint.name, endpoint.namespace, candidate.uncached_tokens))
            if hashes:
                self.index.record(endpoint.name, hashes, capacity)
        self.metrics.requests.of(*labels).inc()
        self.metrics.running.of(*labels).inc()
        set_headers = {
            DESTINATION_HEADER: primary.host_port,
            REQUEST_ID_HEADER: headers.get(REQUEST_ID_HEADER) or str(uuid.uuid4()),
        }
        if decision.prefill:
            set_headers[PREFILLER_HEADER] = decision.prefill.endpoint.host_port
        _LOG.debug("routed %s by %s", prompt.model, set_headers)
        return Exchange(
            primary.host_port,
            set_headers,
            () if decision.prefill else (PREFILLER_HEADER,),  # a client must not choose the prefill pod
            arrived,
            labels,
            self.accounting.start(charges, fairness_id=fairness_id, priority=PRIORITY),
        )

    def response_headers(self, exchange: Exchange, status: int, content_type: str) -> None:
        """The response began."""
        exchange.status = status
        exchange.streaming = content_type.startswith("text/event-stream")

    def response_chunk(self, exchange: Exchange) -> None:
        """A piece of the response's body came; only the first one matters."""
        if exchange.answered:
            return
        exchange.answered = True
        if exchange.labels:
            fairness_id, model, priority, target = exchange.labels
            streaming = "true" if exchange.streaming else "false"
            seconds = self.clock() - exchange.arrived
            self.metrics.ttft.of(fairness_id, model, priority, streaming, target).observe(seconds)
        if exchange.streaming:
            self.accounting.first_chunk(exchange.ticket)

    def end(self, exchange: Exchange) -> None:
        """The response ended, or the client or the model server went away. Calling it again changes nothing."""
        if exchange.ended:
            return
        exchange.ended = True
        self.accounting.end(exchange.ticket)
        if not exchange.labels:
            return
        self.metrics.running.of(*exchange.labels).inc(-1)
        self.metrics.durations.of(*exchange.labels).observe(self.clock() - exchange.arrived)
        if exchange.status >= _FIRST_ERROR_STATUS:
            self.metrics.errors.of("ModelServerError", *exchange.labels).inc()
        elif not exchange.status:
            self.metrics.errors.of("ClientClosedRequest", *exchange.labels).inc()

    def forget(self, endpoint: Endpoint) -> None:
        """`endpoint` left the pool."""
        self.accounting.forget(endpoint.name)
        self.index.forget(endpoint.name)

    def _blocks(self, endpoints: tuple[Endpoint, ...]) -> tuple[int, int]:
        """Block size in tokens and blocks an endpoint holds: the first endpoint's engine says, or the parameters."""
        producer = self.config.prefix_producer
        if producer is None:
            return prompts.LEAST_BLOCK_TOKENS, 0
        size, capacity = int(producer.number("blockSizeTokens")), int(producer.number("lruCapacityPerServer"))
        if producer.parameters["autoTune"]:
            engine = next((m for e in endpoints if (m := self.pod_metrics(e.name)).block_size), None)
            if engine:
                size = max(engine.block_size, prompts.LEAST_BLOCK_TOKENS)
                return size, max(1, engine.block_size * engine.blocks // size) if engine.blocks else capacity
        return max(size, prompts.LEAST_BLOCK_TOKENS), capacity

    def _hashes(self, prompt: prompts.Prompt, block_tokens: int) -> tuple[int, ...]:
        producer = self.config.prefix_producer
        if producer is None:
            return ()
        return prompt.block_hashes(block_tokens, _most_blocks(producer, block_tokens))

    def _candidate(self, endpoint: Endpoint, tokens: int, hashes: tuple[int, ...], block_tokens: int) -> Candidate:
        matched = self.index.match(endpoint.name, hashes)
        engine = self.pod_metrics(endpoint.name)
        return Candidate(
            endpoint=endpoint,
            load=self.accounting.load(endpoint.name),
            prefix_match=matched / len(hashes) if hashes else 0.0,
            uncached_tokens=prompts.uncached_tokens(tokens, len(hashes), matched, block_tokens),
            waiting=engine.waiting,
            kv_usage=engine.kv_usage,
        )


def _most_blocks(producer: Plugin, block_tokens: int) -> int:
    """Bound on matched blocks; 0 = none. The bound in tokens wins over the one in blocks."""
    tokens = int(producer.number("maxPrefixTokensToMatch"))
    return max(1, tokens // block_tokens) if tokens else int(producer.number("maxPrefixBlocksToMatch"))
