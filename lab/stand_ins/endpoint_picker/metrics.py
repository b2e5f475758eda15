"""Which metrics the endpoint picker exports, with the real one's names, labels and buckets (captured from it)."""

from collections.abc import Callable, Iterable, Mapping
from statistics import fmean, stdev

from lab.stand_ins.endpoint_picker.dialect import Dialect
from lab.stand_ins.endpoint_picker.exposition import Family, Histogram, Rebuilt, Values, render
from lab.stand_ins.endpoint_picker.inflight import Accounting, SeriesLabels
from lab.stand_ins.endpoint_picker.pod_metrics import PodMetrics

REQUEST_LABELS = ("fairness_id", "model_name", "priority", "target_model_name")
_TTFT_BOUNDS = (
    *(0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0),
    *(15.0, 20.0, 30.0, 45.0, 60.0, 120.0),
)
_DURATION_BOUNDS = (
    *_TTFT_BOUNDS,
    *(180.0, 240.0, 300.0, 360.0, 480.0, 600.0, 900.0, 1200.0, 1800.0, 2700.0, 3600.0),
)
_SCHEDULER_BOUNDS = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)

_POOL_AVERAGES: tuple[tuple[str, str, Callable[[PodMetrics], float]], ...] = (
    ("kv_cache_utilization", "KV cache utilization", lambda pod: pod.kv_usage),
    ("queue_size", "number of waiting requests", lambda pod: pod.waiting),
    ("running_requests", "number of running requests", lambda pod: pod.running),
)


class Metrics:
    """All families, and the few events that are more than one line."""

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
        self._pool_name = pool_name
        self.requests = Values("counter", "llm_d_epp_request_total", "Requests routed.", REQUEST_LABELS)
        self.errors = Values(
            "counter", "llm_d_epp_request_error_total", "Requests failed, by code.", ("error_code", *REQUEST_LABELS)
        )
        self.running = Values("gauge", "llm_d_epp_request_running", "Requests being served.", REQUEST_LABELS)
        self.durations = Histogram(
            "llm_d_epp_request_duration_seconds",
            "Time from a request's arrival to the end of its response.",
            _DURATION_BOUNDS,
            REQUEST_LABELS,
        )
        self.ttft = Histogram(
            "llm_d_epp_request_ttft_seconds",
            "Time from a request's arrival to the first chunk of its response.",
            _TTFT_BOUNDS,
            ("fairness_id", "model_name", "priority", "streaming", "target_model_name"),
        )
        self.scheduler_seconds = Histogram(
            "llm_d_epp_scheduler_e2e_duration_seconds", "Time to choose endpoints for a request.", _SCHEDULER_BOUNDS
        )
        self.attempts = Values(
            "counter",
            "llm_d_epp_scheduler_attempts_total",
            "Scheduling attempts and the endpoint that got the request.",
            ("endpoint_name", "namespace", "port", "status", "target_model_name"),
        )
        decision_labels = ("decision_type", "model_name", "plugin_name", "plugin_type")
        decision_help = "Decisions on disaggregation, by type."
        self._decisions = [Values("counter", "llm_d_epp_disagg_decision_total", decision_help, decision_labels)]
        info = Values("gauge", "llm_d_epp_info", "Build of the endpoint picker.", ("build_ref", "commit"))
        info.set(1, "", "")
        prefixes = ["llm_d_epp_", "inference_pool_"] if dialect.legacy_metric_names else ["llm_d_epp_"]
        self._pool: list[dict[str, Values]] = [_pool_gauges(prefix) for prefix in prefixes]
        families: list[Family] = [self.requests, self.errors, self.running, self.durations, self.ttft, info]
        families += [self.scheduler_seconds, self.attempts]
        families += [gauge for gauges in self._pool for gauge in gauges.values()]
        queue_help = "Waiting requests of each endpoint."
        families.append(
            _per_endpoint("llm_d_epp_per_endpoint_queue_size", queue_help, "endpoint", queue_sizes, pool_name)
        )
        if dialect.legacy_metric_names:
            families.append(
                _per_endpoint("inference_pool_per_pod_queue_size", queue_help, "pod", queue_sizes, pool_name)
            )
            legacy = "llm_d_inference_scheduler_disagg_decision_total"
            self._decisions.append(Values("counter", legacy, decision_help, decision_labels))
        families += self._decisions
        if producer_name is not None:
            families += _inflight(accounting, producer_name)
        self._families = families

    def decided(self, decision_type: str, model: str, plugin_name: str, plugin_type: str) -> None:
        """Count one decision on disaggregation."""
        for counter in self._decisions:
            counter.add(1, decision_type, model or "unknown", plugin_name, plugin_type)

    def refresh_pool(self, fresh: Iterable[PodMetrics]) -> None:
        """Set the pool's gauges from the endpoints whose metrics are fresh.

        With none, the count is 0 and the averages keep their last values, as the real picker leaves them.
        """
        pods = list(fresh)
        for gauges in self._pool:
            gauges["ready"].set(len(pods), self._pool_name)
            if not pods:
                continue
            for name, _, read in _POOL_AVERAGES:
                values = [read(pod) for pod in pods]
                gauges[f"average_{name}"].set(round(fmean(values), 2), self._pool_name)
                if f"std_dev_{name}" in gauges:
                    spread = round(stdev(values), 2) if len(values) > 1 else 0.0
                    gauges[f"std_dev_{name}"].set(spread, self._pool_name)

    def render(self) -> str:
        """The exposition of this moment."""
        return render(self._families)


def _pool_gauges(prefix: str) -> dict[str, Values]:
    """Gauges of the pool; the earlier names lack the deviations, and call endpoints pods."""
    legacy = prefix != "llm_d_epp_"
    ready = "ready_pods" if legacy else "ready_endpoints"
    gauges = {"ready": Values("gauge", f"{prefix}{ready}", "Endpoints whose metrics are fresh.", ("name",))}
    for name, words, _ in _POOL_AVERAGES:
        average = f"average_{name}"
        gauges[average] = Values(
            "gauge", f"{prefix}{average}", f"Average {words} over the pool's endpoints.", ("name",)
        )
        if not legacy:
            spread = f"std_dev_{name}"
            help_text = f"Standard deviation of the {words} over the pool's endpoints."
            gauges[spread] = Values("gauge", f"{prefix}{spread}", help_text, ("name",))
    return gauges


def _per_endpoint(
    name: str, help_text: str, noun: str, queue_sizes: Callable[[], Iterable[tuple[str, float]]], pool_name: str
) -> Rebuilt:
    def collect() -> Iterable[tuple[Mapping[str, str], float]]:
        for endpoint, waiting in queue_sizes():
            yield {f"model_server_{noun}": endpoint, "name": pool_name}, waiting

    return Rebuilt(name, help_text, collect)


def _inflight(accounting: Accounting, producer_name: str) -> list[Family]:
    def labels(of: SeriesLabels) -> Mapping[str, str]:
        return {
            "endpoint_name": of.endpoint_name,
            "fairness_id": of.fairness_id,
            "namespace": of.namespace,
            "priority": of.priority,
            "producer_name": producer_name,
        }

    return [
        Rebuilt(
            "llm_d_epp_inflight_requests",
            "Requests in flight at each endpoint.",
            lambda: ((labels(of), load.requests) for of, load in accounting.series()),
        ),
        Rebuilt(
            "llm_d_epp_inflight_tokens",
            "Uncached prompt tokens in flight at each endpoint.",
            lambda: ((labels(of), load.tokens) for of, load in accounting.series()),
        ),
    ]
