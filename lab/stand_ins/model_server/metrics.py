"""What `/metrics` says, under vLLM 0.27's names, types, labels and buckets."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from lab.stand_ins.exposition import Family, Histogram, Value, counter, gauge, histogram, render

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lab.stand_ins.model_server.arguments import ServeArguments
    from simulation.engine import Load

F = TypeVar("F", Family[Value], Family[Histogram])

ENGINE = "0"  # the label of the only engine of a server without data parallelism
REASONS = ("capacity", "deferred")
SOURCES = ("local_compute", "local_cache_hit", "external_kv_transfer")
FINISHED_REASONS = ("stop", "length", "abort", "error", "repetition")

_LABELS = ("engine", "model_name")
_FIRST_TOKEN = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160)
_FIRST_TOKEN_LONG = (640, 2560)
_PER_TOKEN = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
_LATENCY = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)


@dataclass(slots=True)
class Times:
    """When what happened to one request, in seconds of the engine's clock; NaN until it has."""

    arrival: float
    scheduled: float = field(default=float("nan"))
    first_token: float = field(default=float("nan"))
    last_token: float = field(default=float("nan"))


def buckets_1_2_5(longest: int) -> list[float]:
    """1, 2, 5, 10, 20, ... up to `longest`: the bounds of vLLM's token histograms."""
    bounds: list[float] = []
    power = 1
    while power <= longest:
        bounds += [factor * power for factor in (1, 2, 5) if factor * power <= longest]
        power *= 10
    return bounds


class Metrics:
    """The registry of one server; every series exists from start, as on the real one."""

    def __init__(self, arguments: ServeArguments, total_blocks: int) -> None:
        self._families: list[Family[Value] | Family[Histogram]] = []
        self._model = arguments.served_model_names[0]
        self._prefix_caching = arguments.prefix_caching
        self._cpu = self._add(counter("process_cpu_seconds_total", "User and system CPU time.")).of()
        self._memory = self._add(gauge("process_resident_memory_bytes", "Resident memory.")).of()
        self._add(gauge("process_start_time_seconds", "Start time since the epoch.")).of().set(time.time())
        self._running = self._gauge("num_requests_running", "Number of requests in model execution batches.")
        self._waiting = self._gauge("num_requests_waiting", "Number of requests waiting to be processed.")
        self._waiting_by = self._gauges("num_requests_waiting_by_reason", "Waiting requests.", "reason", REASONS)
        self._kv_usage = self._gauge("kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.")
        self._prompt_tokens = self._counter("prompt_tokens", "Number of prefill tokens processed.")
        self._prompt_by = self._counters("prompt_tokens_by_source", "Prompt tokens by source.", "source", SOURCES)
        self._prompt_cached = self._counter(
            "prompt_tokens_cached", "Number of cached prompt tokens (local + external)."
        )
        self._generation_tokens = self._counter("generation_tokens", "Number of generation tokens processed.")
        self._success = self._counters("request_success", "Requests by end.", "finished_reason", FINISHED_REASONS)
        self._preemptions = self._counter("num_preemptions", "Cumulative number of preemption from the engine.")
        self._queries = self._counter("prefix_cache_queries", "Prefix cache queries, in queried tokens.")
        self._hits = self._counter("prefix_cache_hits", "Prefix cache hits, in cached tokens.")
        self._external_queries = self._counter(
            "external_prefix_cache_queries", "Queries to the KV connector, in tokens."
        )
        self._external_hits = self._counter("external_prefix_cache_hits", "Hits of the KV connector, in tokens.")
        self._first_token = self._histogram(
            "time_to_first_token_seconds", "Time to first token.", _FIRST_TOKEN + _FIRST_TOKEN_LONG
        )
        self._inter_token = self._histogram("inter_token_latency_seconds", "Inter-token latency.", _PER_TOKEN)
        self._per_output = self._histogram(
            "request_time_per_output_token_seconds", "Time per output token of a request.", _PER_TOKEN
        )
        self._e2e = self._histogram("e2e_request_latency_seconds", "End-to-end latency.", _LATENCY)
        self._queue_time = self._histogram("request_queue_time_seconds", "Time in WAITING phase.", _LATENCY)
        self._prefill_time = self._histogram("request_prefill_time_seconds", "Time in PREFILL phase.", _LATENCY)
        self._decode_time = self._histogram("request_decode_time_seconds", "Time in DECODE phase.", _LATENCY)
        self._inference_time = self._histogram("request_inference_time_seconds", "Time in RUNNING phase.", _LATENCY)
        lengths = buckets_1_2_5(arguments.max_model_len)
        self._request_prompt = self._histogram("request_prompt_tokens", "Prefill tokens of a request.", lengths)
        self._request_generation = self._histogram("request_generation_tokens", "Tokens generated.", lengths)
        self._request_max_tokens = self._histogram("request_params_max_tokens", "max_tokens of a request.", lengths)
        self._cache_config(arguments, total_blocks)

    def first_token(self, times: Times, prompt_tokens: int, *, external: bool) -> None:
        """A prompt is in: computed here, or (`external`) received over the link."""
        self._first_token.observe(times.first_token - times.arrival)
        self._generation_tokens.inc()
        self._prompt_tokens.inc(prompt_tokens)
        self._prompt_by["external_kv_transfer" if external else "local_compute"].inc(prompt_tokens)
        if external:
            self._prompt_cached.inc(prompt_tokens)
            self._external_hits.inc(prompt_tokens)
            self._external_queries.inc(prompt_tokens)
        if self._prefix_caching:
            self._queries.inc(prompt_tokens)

    def next_token(self, latency: float) -> None:
        """A further token, `latency` seconds after the one before."""
        self._inter_token.observe(latency)
        self._generation_tokens.inc()

    def preempted(self) -> None:
        """A sequence lost its blocks."""
        self._preemptions.inc()

    def finished(self, times: Times, reason: str, *, prompt_tokens: int, generated: int, max_tokens: int) -> None:
        """A request ended after it had at least one token."""
        self._success[reason].inc()
        self._e2e.observe(times.last_token - times.arrival)
        self._queue_time.observe(times.scheduled - times.arrival)
        self._prefill_time.observe(times.first_token - times.scheduled)
        self._decode_time.observe(times.last_token - times.first_token)
        self._inference_time.observe(times.last_token - times.scheduled)
        self._request_prompt.observe(prompt_tokens)
        self._request_generation.observe(generated)
        self._request_max_tokens.observe(max_tokens)
        between = (times.last_token - times.first_token) / (generated - 1) if generated > 1 else 0.0
        self._per_output.observe(between)

    def ended_early(self, reason: str) -> None:
        """A request ended (`abort` or `error`) before it was through; only its end is counted."""
        self._success[reason].inc()

    def render(self, load: Load) -> bytes:
        """The exposition text, with the gauges as of `load`."""
        self._running.set(load.running)
        self._waiting.set(load.waiting)
        self._waiting_by["capacity"].set(load.waiting_capacity)
        self._waiting_by["deferred"].set(load.waiting_deferred)
        self._kv_usage.set(load.kv_usage)
        self._cpu.set(time.process_time())
        self._memory.set(_resident_bytes())
        return render(self._families)

    def _cache_config(self, arguments: ServeArguments, total_blocks: int) -> None:
        labels = {
            "block_size": str(arguments.block_size),
            "cache_dtype": "auto",
            "enable_prefix_caching": str(arguments.prefix_caching),
            "engine": ENGINE,
            "gpu_memory_utilization": str(arguments.gpu_memory_utilization),
            "num_gpu_blocks": str(total_blocks),
        }
        info = gauge("vllm:cache_config_info", "LLMEngine CacheConfig.", *labels)
        self._add(info).of(*labels.values()).set(1)

    def _add(self, family: F) -> F:
        self._families.append(family)
        return family

    def _gauge(self, name: str, text: str) -> Value:
        return self._add(gauge(f"vllm:{name}", text, *_LABELS)).of(ENGINE, self._model)

    def _gauges(self, name: str, text: str, label: str, values: Sequence[str]) -> dict[str, Value]:
        family = self._add(gauge(f"vllm:{name}", text, *_LABELS, label))
        return {value: family.of(ENGINE, self._model, value) for value in values}

    def _counter(self, name: str, text: str) -> Value:
        return self._add(counter(f"vllm:{name}_total", text, *_LABELS)).of(ENGINE, self._model)

    def _counters(self, name: str, text: str, label: str, values: Sequence[str]) -> dict[str, Value]:
        family = self._add(counter(f"vllm:{name}_total", text, *_LABELS, label))
        return {value: family.of(ENGINE, self._model, value) for value in values}

    def _histogram(self, name: str, text: str, buckets: Sequence[float]) -> Histogram:
        bounds = [float(bound) for bound in buckets]  # the real one's client writes `1.0`
        return self._add(histogram(f"vllm:{name}", text, bounds, *_LABELS)).of(ENGINE, self._model)


def _resident_bytes() -> int:
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
