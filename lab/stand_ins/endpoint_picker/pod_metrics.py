"""What the picker reads from a model server's /metrics, and how it keeps it fresh."""

import asyncio
import logging
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import aiohttp

from lab.stand_ins.endpoint_picker.datastore import Endpoint

# The real picker asks every 50 ms. Here two cores carry a whole lab, and of the guides' configurations only the chart's
# default decides by these numbers.
LEAST_INTERVAL_SECONDS = 1.0
_STALE_AFTER_INTERVALS = 3
_REQUEST_TIMEOUT_SECONDS = 2.0

_LOG = logging.getLogger("epp.pod-metrics")
_SAMPLE = re.compile(
    r"^vllm:(num_requests_waiting|num_requests_running|kv_cache_usage_perc|cache_config_info)(\{[^}]*\})? (\S+)$",
    re.MULTILINE,
)
_LABEL = re.compile(r'(block_size|num_gpu_blocks)="([0-9]+)"')


@dataclass(frozen=True, kw_only=True)
class PodMetrics:
    """One scrape of an engine; block figures are 0 when it does not say.

    Attributes:
        block_size: Tokens in one KV block.
        blocks: KV blocks on the GPU.
    """

    waiting: float = 0.0
    running: float = 0.0
    kv_usage: float = 0.0
    block_size: int = 0
    blocks: int = 0


def parse(text: str) -> PodMetrics:
    """Read vLLM's exposition; a metric that is not there counts as 0.

    Raises:
        ValueError: A value is no number.
    """
    values: dict[str, float] = {}
    config: dict[str, int] = {}
    for name, labels, value in _SAMPLE.findall(text):
        if name == "cache_config_info":
            config = {key: int(number) for key, number in _LABEL.findall(labels)}
        else:
            values[name] = values.get(name, 0.0) + float(value)  # several engines of one server add up
    return PodMetrics(
        waiting=values.get("num_requests_waiting", 0.0),
        running=values.get("num_requests_running", 0.0),
        kv_usage=values.get("kv_cache_usage_perc", 0.0),
        block_size=config.get("block_size", 0),
        blocks=config.get("num_gpu_blocks", 0),
    )


class PodMetricsPoller:
    """Asks every endpoint in turn and remembers the last answer."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        endpoints: Callable[[], Iterable[Endpoint]],
        *,
        interval: float,
        staleness: float,
        clock: Callable[[], float],
    ) -> None:
        """Prepare; intervals in seconds, both raised to what this stand-in can keep."""
        self._session, self._endpoints, self._clock = session, endpoints, clock
        self._interval = max(interval, LEAST_INTERVAL_SECONDS)
        self._staleness = max(staleness, _STALE_AFTER_INTERVALS * self._interval)
        self._last: dict[str, tuple[float, PodMetrics]] = {}

    def latest(self, endpoint: str) -> PodMetrics:
        """Last known metrics, however old; zeros for an endpoint that never answered."""
        return self._last[endpoint][1] if endpoint in self._last else PodMetrics()

    def fresh(self) -> list[PodMetrics]:
        """Of every current endpoint that answered lately."""
        oldest = self._clock() - self._staleness
        names = {endpoint.name for endpoint in self._endpoints()}
        return [metrics for name, (seen, metrics) in self._last.items() if name in names and seen >= oldest]

    def forget(self, endpoint: str) -> None:
        """Drop an endpoint that left."""
        self._last.pop(endpoint, None)

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            endpoints = tuple(self._endpoints())
            await asyncio.gather(*(self._ask(endpoint) for endpoint in endpoints))
            await asyncio.sleep(self._interval)

    async def _ask(self, endpoint: Endpoint) -> None:
        timeout = aiohttp.ClientTimeout(total=_REQUEST_TIMEOUT_SECONDS)
        try:
            async with self._session.get(f"http://{endpoint.host_port}/metrics", timeout=timeout) as response:
                response.raise_for_status()
                metrics = parse(await response.text())
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            _LOG.debug("no metrics of %s: %r", endpoint.name, error)
            return
        if any(current.name == endpoint.name for current in self._endpoints()):
            self._last[endpoint.name] = (self._clock(), metrics)
