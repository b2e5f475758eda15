"""Who is working on what: requests and uncached prompt tokens in flight at each endpoint.

A request is charged to the chosen endpoint of every profile: one request and its uncached tokens each. A streaming
response releases the tokens of all profiles, and the request count of the profile named `prefill`, at its first chunk;
everything else goes when the exchange ends, in whatever way it ends. The exported series outlive a departed endpoint in
router 0.10 and are deleted with it in 0.11.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

PREFILL = "prefill"  # the real picker compares the profile's name with this word


@dataclass(frozen=True)
class SeriesLabels:
    """Labels of one pair of in-flight series, without the producer's name."""

    endpoint_name: str
    namespace: str
    fairness_id: str
    priority: str


@dataclass
class Load:
    """Requests and tokens in flight, at an endpoint or in a series."""

    requests: int = 0
    tokens: int = 0


@dataclass(frozen=True)
class Charge:
    """What one profile's choice adds to an endpoint."""

    profile: str
    endpoint: str
    namespace: str
    tokens: int


@dataclass
class _Held:
    """One charge until it is released; holds on to its counters, so that a late release never touches a successor's."""

    profile: str
    counters: tuple[Load, Load]
    tokens: int
    requests: int = 1

    def release(self, *, tokens: bool, requests: bool) -> None:
        for counter in self.counters:
            counter.tokens -= self.tokens if tokens else 0
            counter.requests -= self.requests if requests else 0
        self.tokens = 0 if tokens else self.tokens
        self.requests = 0 if requests else self.requests


@dataclass
class Ticket:
    """What one request holds; give it back to `Accounting`."""

    held: list[_Held] = field(default_factory=list)


class Accounting:
    """In-flight load by endpoint, and the series that show it."""

    def __init__(self, *, prunes_departed_series: bool) -> None:
        self._prunes = prunes_departed_series
        self._loads: dict[str, Load] = {}
        self._series: dict[SeriesLabels, Load] = {}

    def load(self, endpoint: str) -> Load:
        """Current load of `endpoint`, a copy; zero for one that has never been chosen."""
        load = self._loads.get(endpoint)
        return Load(load.requests, load.tokens) if load else Load()

    def start(self, charges: Sequence[Charge], *, fairness_id: str, priority: int) -> Ticket:
        """Charge one request to the endpoints that were chosen for it."""
        ticket = Ticket()
        for charge in charges:
            labels = SeriesLabels(charge.endpoint, charge.namespace, fairness_id, str(priority))
            load = self._loads.setdefault(charge.endpoint, Load())
            series = self._series.setdefault(labels, Load())
            for counter in (load, series):
                counter.requests += 1
                counter.tokens += charge.tokens
            ticket.held.append(_Held(charge.profile, (load, series), charge.tokens))
        return ticket

    def first_chunk(self, ticket: Ticket) -> None:
        """The first chunk of a *streaming* response has come."""
        for held in ticket.held:
            held.release(tokens=True, requests=held.profile == PREFILL)

    def end(self, ticket: Ticket) -> None:
        """The exchange is over: finished, failed or abandoned. Calling it again changes nothing."""
        for held in ticket.held:
            held.release(tokens=True, requests=True)
        ticket.held.clear()

    def forget(self, endpoint: str) -> None:
        """`endpoint` left the pool."""
        self._loads.pop(endpoint, None)
        if self._prunes:
            for labels in [labels for labels in self._series if labels.endpoint_name == endpoint]:
                del self._series[labels]

    def series(self) -> Iterator[tuple[SeriesLabels, Load]]:
        """Every exported series pair, in the order of their labels' first use."""
        yield from self._series.items()
