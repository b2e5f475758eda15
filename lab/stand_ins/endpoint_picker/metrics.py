"""Which metrics the endpoint picker exports, with the real one's names, labels and buckets (captured from it)."""

from collections.abc import Callable, Iterable
from statistics import fmean, stdev

from lab.stand_ins.endpoint_picker.dialect import Dialect
from lab.stand_ins.endpoint_picker.inflight import Accounting
from lab.stand_ins.endpoint_picker.pod_metrics import PodMetrics
from lab.stand_ins.exposition import Family, Histogram, Value, counter, gauge, histogram, render

REQUEST_LABELS = ("fairness_id", "model_name", "priority", "target_model_name")
_TTFT_BOUNDS = (
    *(0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10),
    *(15, 20, 30, 45, 60, 120),
)
_DURATION_BOUNDS = (
    *_TTFT_BOUNDS,
    *(180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600),
)
_SCHEDULER_BOUNDS = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)

_DECISION_LABELS = ("decision_type", "model_name", "plugin_name", "plugin_type")
_POOL_AVERAGES: tuple[tuple[str, str, Callable[[PodMetrics], float]], ...] = (
    ("kv_cache_utilization", "KV cache utilization", lambda pod: pod.kv_usage),
    ("queue_size", "number of waiting requests", lambda pod: pod.waiting),
    ("running_requests", "number of running requests", lambda pod: pod.running),
)


class Metrics:
    """All families, and the few events that are more than one line. Labels are in alphabetical order."""

    def __init__(
        self,
        dialect: Dialect,
        accounting: Accounting,
        producer_name: str | None,
        queue_sizes: Callable[[], Iterable[tuple[str, float]]],
        pool_name: str,
    ) -> None:
        """Set up the families.

        Args:
            dialect: Decides on the earlier names.
            accounting: Source of the in-flight series.
            producer_name: Name of the in-flight load producer; None when there is none, and then no such series either.
            queue_sizes: Name and waiting requests of each endpoint of this moment.
            pool_name: Name of the InferencePool.
        """
        self._accounting, self._producer_name = accounting, producer_name
        self._queue_sizes, self._pool_name = queue_sizes, pool_name
        self.requests = counter("llm_d_epp_request_total", "Requests routed.", *REQUEST_LABELS)
        self.errors = counter(
            "llm_d_epp_request_error_total", "Requests failed, by code.", "error_code", *REQUEST_LABELS
        )
        self.running = gauge("llm_d_epp_request_running", "Requests being served.", *REQUEST_LABELS)
        self.durations = histogram(
            "llm_d_epp_request_duration_seconds",
            "Time from a request's arrival to the end of its response.",
            _DURATION_BOUNDS,
            *REQUEST_LABELS,
        )
        self.ttft = histogram(
            "llm_d_epp_request_ttft_seconds",
            "Time from a request's arrival to the first chunk of its response.",
            _TTFT_BOUNDS,
            *("fairness_id", "model_name", "priority", "streaming", "target_model_name"),
        )
        self.scheduler_seconds = histogram(
            "llm_d_epp_scheduler_e2e_duration_seconds", "Time to choose endpoints for a request.", _SCHEDULER_BOUNDS
        )
        self.attempts = counter(
            "llm_d_epp_scheduler_attempts_total",
            "Scheduling attempts and the endpoint that got the request.",
            *("endpoint_name", "namespace", "port", "status", "target_model_name"),
        )
        info = gauge("llm_d_epp_info", "Build of the endpoint picker.", "build_ref", "commit")
        info.of("", "").set(1)
        charged = ("endpoint_name", "fairness_id", "namespace", "priority", "producer_name")
        self._inflight = (
            gauge("llm_d_epp_inflight_requests", "Requests in flight at each endpoint.", *charged),
            gauge("llm_d_epp_inflight_tokens", "Uncached prompt tokens in flight at each endpoint.", *charged),
        )
        decisions, queues = ["llm_d_epp_disagg_decision_total"], [("llm_d_epp_per_endpoint_queue_size", "endpoint")]
        self._pool = [_pool_gauges("llm_d_epp_")]
        if dialect.legacy_metric_names:
            decisions.append("llm_d_inference_scheduler_disagg_decision_total")
            queues.append(("inference_pool_per_pod_queue_size", "pod"))
            self._pool.append(_pool_gauges("inference_pool_"))
        self._decisions = [
            counter(name, "Decisions on disaggregation, by type.", *_DECISION_LABELS) for name in decisions
        ]
        self._queues = [
            gauge(name, "Waiting requests of each endpoint.", f"model_server_{noun}", "name") for name, noun in queues
        ]
        self._families: list[Family[Value] | Family[Histogram]] = [
            *(self.requests, self.errors, self.running, self.durations, self.ttft, info),
            *(self.scheduler_seconds, self.attempts, *self._decisions, *self._inflight, *self._queues),
            *(family for gauges in self._pool for family in gauges.values()),
        ]

    def decided(self, decision_type: str, model: str, plugin_name: str, plugin_type: str) -> None:
        """Count one decision on disaggregation."""
        for family in self._decisions:
            family.of(decision_type, model or "unknown", plugin_name, plugin_type).inc()

    def refresh_pool(self, fresh: Iterable[PodMetrics]) -> None:
        """Set the pool's gauges from the endpoints whose metrics are fresh.

        With none, the count is 0 and the averages keep their last values, as the real picker leaves them.
        """
        pods = list(fresh)
        for gauges in self._pool:
            gauges["ready"].of(self._pool_name).set(len(pods))
            if not pods:
                continue
            for name, _, read in _POOL_AVERAGES:
                values = [read(pod) for pod in pods]
                gauges[f"average_{name}"].of(self._pool_name).set(round(fmean(values), 2))
                if f"std_dev_{name}" in gauges:
                    spread = round(stdev(values), 2) if len(values) > 1 else 0.0
                    gauges[f"std_dev_{name}"].of(self._pool_name).set(spread)

    def render(self) -> bytes:
        """The exposition of this moment; queue sizes and in-flight load are as their sources have them now."""
        for family in (*self._queues, *self._inflight):
            family.clear()
        for family in self._queues:
            for endpoint, waiting in self._queue_sizes():
                family.of(endpoint, self._pool_name).set(waiting)
        if self._producer_name is not None:
            requests, tokens = self._inflight
            for of, load in self._accounting.series():
                labels = (of.endpoint_name, of.fairness_id, of.namespace, of.priority, self._producer_name)
                requests.of(*labels).set(load.requests)
                tokens.of(*labels).set(load.tokens)
        return render(self._families)


def _pool_gauges(prefix: str) -> dict[str, Family[Value]]:
    """Gauges of the pool; the earlier names lack the deviations, and call endpoints pods."""
    legacy = prefix != "llm_d_epp_"
    ready = "ready_pods" if legacy else "ready_endpoints"
    gauges = {"ready": gauge(f"{prefix}{ready}", "Endpoints whose metrics are fresh.", "name")}
    for name, words, _ in _POOL_AVERAGES:
        average, spread = f"average_{name}", f"std_dev_{name}"
        gauges[average] = gauge(f"{prefix}{average}", f"Average {words} over the pool's endpoints.", "name")
        if not legacy:
            help_text = f"Standard deviation of the {words} over the pool's endpoints."
            gauges[spread] = gauge(f"{prefix}{spread}", help_text, "name")
    return gauges
