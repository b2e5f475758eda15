#!/usr/bin/env python3
"""What happens to requests that arrive at a given rate, whatever the server does (open loop).

Closed loops hide overload: they send the next request when the last one ends, so the backlog never exceeds the
concurrency. Prompts are random token ids, so no prefix is ever cached and the picker counts their tokens exactly.
Standard library only: the file runs as it is in a pod, on a laptop, or from a ConfigMap.
"""

import argparse
import http.client
import json
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

LAST_TOKEN_ID = 10_000
MAX_IN_FLIGHT = 1_000  # a runaway test must not take the machine with it; more is reported as a failure


@dataclass(frozen=True, kw_only=True)
class Load:
    """What to send. Rate in requests/s, times in seconds, lengths in tokens."""

    url: str
    model: str
    rate: float
    duration_seconds: float
    input_tokens: int
    output_tokens: int
    arrivals: str = "constant"  # or "poisson"
    timeout_seconds: float = 300.0
    seed: int = 0


@dataclass
class Outcome:
    """What came back. `ttft_seconds` and `total_seconds` have one entry for each answered request."""

    sent: int = 0
    ttft_seconds: list[float] = field(default_factory=list)
    total_seconds: list[float] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)

    def summary(self) -> dict[str, object]:
        """The outcome as one JSON object; percentiles are of answered requests alone, so read `failures` first."""
        return {
            "sent": self.sent,
            "answered": len(self.total_seconds),
            "failures": dict(self.failures),
            "ttft_seconds": percentiles(self.ttft_seconds),
            "total_seconds": percentiles(self.total_seconds),
        }


def percentiles(samples: list[float]) -> dict[str, float]:
    """Mean, nearest-rank p50, p90, p99 and maximum; empty when there is no sample."""
    if not samples:
        return {}
    ranked = sorted(samples)
    rank = {f"p{p}": ranked[max(0, -(-p * len(ranked) // 100) - 1)] for p in (50, 90, 99)}
    return {"mean": sum(ranked) / len(ranked), **rank, "max": ranked[-1]}


def arrival_times(load: Load) -> Iterator[float]:
    """Seconds after the start at which each request leaves, all below the duration."""
    dice = random.Random(load.seed)  # noqa: S311 - a traffic pattern, not a secret
    at = 0.0
    while at < load.duration_seconds:
        yield at
        at += dice.expovariate(load.rate) if load.arrivals == "poisson" else 1 / load.rate


def send(load: Load, seed: int) -> tuple[float, float]:
    """One streamed completion: (time to first token, total time) in seconds.

    Raises:
        OSError, http.client.HTTPException: the connection failed or broke.
        RuntimeError: any status but 200, or an answer that ended before its last event.
    """
    dice = random.Random(seed)  # noqa: S311 - as above
    body = {
        "model": load.model,
        "prompt": [dice.randrange(100, LAST_TOKEN_ID) for _ in range(load.input_tokens)],
        "max_tokens": load.output_tokens,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
    }
    target = urlsplit(load.url)
    connection = http.client.HTTPConnection(target.hostname or "", target.port or 80, timeout=load.timeout_seconds)
    started = time.monotonic()
    try:
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        if answer.status != http.client.OK:
            msg = f"HTTP {answer.status}"
            raise RuntimeError(msg)
        first = None
        while line := answer.readline():
            if not line.startswith(b"data:"):
                continue
            first = first or time.monotonic()
            if line.strip() == b"data: [DONE]":
                return first - started, time.monotonic() - started
        msg = "truncated"
        raise RuntimeError(msg)
    finally:
        connection.close()


def run(load: Load) -> Outcome:
    """Send all of `load`, each request in its own thread at its own time, and wait for every answer."""
    outcome, lock, threads = Outcome(), threading.Lock(), []
    slots = threading.BoundedSemaphore(MAX_IN_FLIGHT)

    def one(seed: int) -> None:
        try:
            ttft, total = send(load, seed)
        except (OSError, http.client.HTTPException, RuntimeError) as failure:
            with lock:
                outcome.failures[str(failure) or type(failure).__name__] += 1
        else:
            with lock:
                outcome.ttft_seconds.append(ttft)
                outcome.total_seconds.append(total)
        finally:
            slots.release()

    started = time.monotonic()
    for number, at in enumerate(arrival_times(load)):
        time.sleep(max(0.0, started + at - time.monotonic()))
        outcome.sent += 1
        if not slots.acquire(blocking=False):
            with lock:
                outcome.failures[f"not sent: {MAX_IN_FLIGHT} in flight"] += 1
            continue
        thread = threading.Thread(target=one, args=(load.seed * 1_000_003 + number,))
        thread.start()
        threads.append(thread)
    for thread in threads:
        thread.join()
    return outcome


def main(arguments: list[str]) -> int:
    """Print the summary as JSON; exit 1 when any request failed."""
    parser = argparse.ArgumentParser(description="open-loop load of streamed completions")
    parser.add_argument("--url", required=True, help="base URL of the router, http only")
    parser.add_argument("--model", required=True)
    parser.add_argument("--rate", type=float, required=True, help="requests/s")
    parser.add_argument("--duration-seconds", type=float, required=True)
    parser.add_argument("--input-tokens", type=int, required=True)
    parser.add_argument("--output-tokens", type=int, required=True)
    parser.add_argument("--arrivals", choices=["constant", "poisson"], default="constant")
    parser.add_argument("--timeout-seconds", type=float, default=300.0)
    parser.add_argument("--seed", type=int, default=0)
    outcome = run(Load(**vars(parser.parse_args(arguments))))
    json.dump(outcome.summary(), sys.stdout, indent=2)
    print()
    return 1 if outcome.failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
