"""Which questions we ask Prometheus.

Labels: `namespace`, `job` and `pod` are the scrape target's. The picker's own `namespace` label arrives as
`exported_namespace` and is left alone. Every query gives one series without labels while its sources are complete,
and none (never 0) while one is dead. Source: docs/scaling.md.
"""

from __future__ import annotations

import re

from llmd.dialects import EngineDialect, RouterDialect
from llmd.pool import Fleet, Pool

WINDOW = "1m"  # a gauge read at one instant is 0 in 60 % of samples under load (runs of Aug 2026)
# Longer than one engine scrape and one HPA sync, so that one long step of an engine does not scale
WAITERS_WINDOW = "2m:15s"
PHASE_WINDOW = "1m:10s"  # step = scrape interval of the picker
CAPACITY = "capacity"  # waits for batch or KV room; the other reason, deferred, waits for its KV to arrive

# What a ReplicaSet and a pod add to the Deployment's name, and what the picker adds to the pod's.
_POD_SUFFIX = "-[a-z0-9]{1,10}-[a-z0-9]{5}"
_RANK_SUFFIX = "(-rank-[0-9]+)?"
_POD_OF_ENDPOINT = f"(.+?){_RANK_SUFFIX}"


class UnavailableMetricError(ValueError):
    """The engine of this version does not export what the query needs."""


def pod_pattern(deployment: str) -> str:
    """RE2 pattern of the names of a Deployment's pods (anchored by Prometheus; not quoted)."""
    return _escape(deployment) + _POD_SUFFIX


def endpoint_pattern(deployment: str) -> str:
    """RE2 pattern of what the picker calls a Deployment's endpoints, `<pod>-rank-<n>` in pool mode (not quoted)."""
    return pod_pattern(deployment) + _RANK_SUFFIX


def live(fleet: Fleet, router: RouterDialect) -> str:
    """One series per endpoint of the fleet that the picker would choose: ready and not terminating.

    The picker rebuilds the metric from its endpoints at each scrape, so a departed pod leaves nothing behind; its
    value is not used.
    """
    return _picker(
        router.endpoint_queue,
        fleet.pool,
        f"name={_quote(fleet.pool.name)}",
        f"model_server_endpoint=~{_quote(endpoint_pattern(fleet.deployment))}",
    )


def live_pods(fleet: Fleet, router: RouterDialect) -> str:
    """`live` with one series per pod, its only label `pod`."""
    return f"count by(pod)({_pod_from(live(fleet, router), 'model_server_endpoint')})"


def prefill_by_path(fleet: Fleet, path_text: str, router: RouterDialect) -> str:
    """Seconds of prompt work in flight on a prefill or co-located fleet, by V_P (`path_text`, tokens/s).

    On P/D this holds a request until decode's first token, so it also contains the KV transfer. 0 while alive and
    idle, also before the first request ever; no sample while no endpoint of the fleet is live or the picker is not
    scraped. Unit: seconds, sum over the fleet.
    """
    tokens = _inflight(router.inflight_tokens, fleet, router)
    alive = live(fleet, router)
    endpoints = f'label_replace({alive},"endpoint_name","$1","model_server_endpoint","(.+)")'
    backlog = f"sum(avg_over_time({tokens}[{WINDOW}]) and on(endpoint_name) {endpoints}) / {path_text}"
    return f"(({backlog}) or vector(0)) and on() (count({alive}) > 0)"


def prefill_by_phase(prefill: Fleet, prefill_text: str, router: RouterDialect, engine: EngineDialect) -> str:
    """Seconds of prompt work that the prefill engines still have, by their own throughput (`prefill_text`, tokens/s).

    The picker's tokens of each pod, times the share of its requests that the engine still runs or queues. No sample
    while a live prefill pod's engine is not scraped, none is live, or the picker is not scraped. Unit: seconds, sum
    over the fleet.
    """
    in_prefill = _in_prefill(prefill, router, engine)
    return f"avg_over_time(({in_prefill})[{PHASE_WINDOW}]) / {prefill_text}{_engines_complete(prefill, router, engine)}"


def transfer_by_phase(prefill: Fleet, transfer_text: str, router: RouterDialect, engine: EngineDialect) -> str:
    """Seconds of KV that has left prefill and waits to enter decode, by one decode pod's throughput (tokens/s).

    A signal of decode, asked of the prefill fleet: what the picker counts there and the engines no longer have.
    Conditions as `prefill_by_phase`. Unit: seconds, sum over the decode fleet.
    """
    tokens = f"(sum({_tokens_by_pod(prefill, router)} and on(pod) {live_pods(prefill, router)}) or vector(0))"
    in_transfer = f"{tokens} - {_in_prefill(prefill, router, engine)}"
    return (
        f"avg_over_time(({in_transfer})[{PHASE_WINDOW}]) / {transfer_text}{_engines_complete(prefill, router, engine)}"
    )


def kv_occupancy(fleet: Fleet, router: RouterDialect, engine: EngineDialect) -> str:
    """Pods' worth of full KV cache over the fleet (0 to its number of live pods).

    No sample while a live pod's engine is not scraped, none is live, or the picker is not scraped.
    """
    usage = _kv_by_pod(fleet, router, engine)
    return f"sum({usage}) and on() (count({usage}) == count({live_pods(fleet, router)}))"


def capacity_waiters(fleet: Fleet, router: RouterDialect, engine: EngineDialect) -> str:
    """Requests that wait for room, over the fleet, while more than half of its live pods have one; else 0.

    Room is a place in the batch or in the KV cache. No sample under the same conditions as `kv_occupancy`.

    Raises:
        UnavailableMetricError: the engine does not say why requests wait.
    """
    if engine.waiting_by_reason is None:
        raise UnavailableMetricError(f"{engine.name} {engine.version} does not say why requests wait")
    pods = live_pods(fleet, router)
    usage = _kv_by_pod(fleet, router, engine)
    waiting = f"({_engine(engine.waiting_by_reason, fleet, f'reason={_quote(CAPACITY)}')} and on(pod) {pods})"
    mean = f"avg_over_time(sum({waiting})[{WAITERS_WINDOW}])"
    majority = f"(count({waiting} > 0) * 2 > count({pods}))"
    return f"(({mean} and on() {majority}) or vector(0)) and on() (count({usage}) == count({pods}))"


def disagg_decisions(pool: Pool, router: RouterDialect, decision: str = "prefill-decode") -> str:
    """Requests about which the picker decided `decision`, since it started; no sample before the first."""
    return f"sum({_picker(router.disagg_decisions, pool, f'decision_type={_quote(decision)}')})"


def _in_prefill(fleet: Fleet, router: RouterDialect, engine: EngineDialect) -> str:
    """Tokens that the fleet's engines still have to compute; 0 while the picker counts none."""
    requests = _by_pod(router.inflight_requests, fleet, router)
    working = f"{_engine_by_pod(engine.running, fleet)} + on(pod) {_engine_by_pod(engine.waiting, fleet)}"
    # between two scrapes the engine may have more requests than the picker knows of
    share = f"clamp_max(({working}) / on(pod) ({requests} > 0), 1)"
    tokens = _tokens_by_pod(fleet, router)
    return f"(sum(({tokens} * on(pod) {share}) and on(pod) {live_pods(fleet, router)}) or vector(0))"


def _engines_complete(fleet: Fleet, router: RouterDialect, engine: EngineDialect) -> str:
    pods = live_pods(fleet, router)
    return f" and on() (count({_engine_by_pod(engine.running, fleet)} and on(pod) {pods}) == count({pods}))"


def _kv_by_pod(fleet: Fleet, router: RouterDialect, engine: EngineDialect) -> str:
    usage = f"avg by(pod)(last_over_time({_engine(engine.kv_usage, fleet)}[{WINDOW}]))"
    return f"({usage} and on(pod) {live_pods(fleet, router)})"


def _engine_by_pod(metric: str, fleet: Fleet) -> str:
    return f"avg by(pod)({_engine(metric, fleet)})"


def _engine(metric: str, fleet: Fleet, *matchers: str) -> str:
    pods = f"pod=~{_quote(pod_pattern(fleet.deployment))}"
    return _selector(metric, fleet.pool.namespace, fleet.engine_job, pods, *matchers)


def _tokens_by_pod(fleet: Fleet, router: RouterDialect) -> str:
    return _by_pod(router.inflight_tokens, fleet, router)


def _by_pod(metric: str, fleet: Fleet, router: RouterDialect) -> str:
    return f"sum by(pod)({_pod_from(_inflight(metric, fleet, router), 'endpoint_name')})"


def _inflight(metric: str, fleet: Fleet, router: RouterDialect) -> str:
    producer = f"producer_name={_quote(router.inflight_producer)}"
    endpoints = f"endpoint_name=~{_quote(endpoint_pattern(fleet.deployment))}"
    return _picker(metric, fleet.pool, producer, endpoints)


def _picker(metric: str, pool: Pool, *matchers: str) -> str:
    return _selector(metric, pool.namespace, pool.router_job, *matchers)


def _selector(metric: str, namespace: str, job: str, *matchers: str) -> str:
    return f"{metric}{{{','.join((f'namespace={_quote(namespace)}', f'job={_quote(job)}', *matchers))}}}"


def _pod_from(series: str, label: str) -> str:
    # replaces the target's own `pod`, which is the picker's pod
    return f'label_replace({series},"pod","$1","{label}","{_POD_OF_ENDPOINT}")'


def _quote(value: str) -> str:
    """A PromQL string in double quotes."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _escape(literal: str) -> str:
    """A literal as an RE2 pattern; `-` needs no escape outside a class."""
    return re.sub(r"([\\.+*?()|\[\]{}^$])", r"\\\1", literal)
