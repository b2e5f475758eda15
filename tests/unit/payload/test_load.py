"""Open-loop load: when requests leave, and how each way of failing is counted."""

import http.server
import json
import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from payload.load import Load, arrival_times, percentiles, run

LOAD = Load(url="", model="m", rate=50.0, duration_seconds=0.1, input_tokens=8, output_tokens=2)


@contextmanager
def server(answer):
    """A loopback server whose POST handler is `answer(handler, body)`; yields (base URL, bodies received)."""
    bodies = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            answer(self)

        def log_message(self, format, *args):  # noqa: A002 - the name that http.server wants
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.server_port}", bodies
        finally:
            listening.shutdown()
            thread.join()


def stream(handler, *events):
    handler.send_response(200)
    handler.send_header("Content-Type", "text/event-stream")
    handler.end_headers()
    for event in events:
        handler.wfile.write(f"data: {event}\n\n".encode())


def whole(handler):
    stream(handler, '{"choices": [{"text": "a"}]}', "[DONE]")


def test_constant_arrivals_are_evenly_spaced_and_end_with_the_duration():
    times = list(arrival_times(replace(LOAD, rate=4.0, duration_seconds=1.0)))
    assert times == [0.0, 0.25, 0.5, 0.75]


def test_poisson_arrivals_keep_their_rate_and_repeat_with_their_seed():
    load = replace(LOAD, arrivals="poisson", rate=10.0, duration_seconds=1000.0)
    times = list(arrival_times(load))
    assert times == list(arrival_times(load))
    assert len(times) == pytest.approx(10_000, rel=0.05)


def test_every_request_is_answered_and_has_a_fresh_prompt_of_the_right_length():
    with server(whole) as (url, bodies):
        outcome = run(replace(LOAD, url=url))
    assert outcome.summary()["sent"] == outcome.summary()["answered"] == 5
    assert {len(body["prompt"]) for body in bodies} == {8}
    assert len({tuple(body["prompt"]) for body in bodies}) == 5
    assert {(body["max_tokens"], body["stream"], body["ignore_eos"]) for body in bodies} == {(2, True, True)}


def test_requests_leave_on_time_although_none_is_answered_yet():
    everyone = threading.Barrier(5, timeout=30)  # a closed loop would wait here for its first answer, and break it

    def together(handler):
        everyone.wait()
        whole(handler)

    with server(together) as (url, _):
        assert run(replace(LOAD, url=url)).failures == {}


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (lambda handler: handler.send_error(503), "HTTP 503"),
        (lambda handler: stream(handler, '{"choices": []}'), "truncated"),
    ],
)
def test_a_failed_request_is_counted_by_its_cause(answer, cause):
    with server(answer) as (url, _):
        outcome = run(replace(LOAD, url=url))
    assert outcome.summary()["failures"] == {cause: 5}
    assert outcome.summary()["answered"] == 0


def test_the_script_fails_when_a_request_failed():
    with server(lambda handler: handler.send_error(500)) as (url, _):
        script = Path(__file__).parents[3] / "payload" / "load.py"
        flags = ["--rate", "20", "--duration-seconds", "0.1", "--input-tokens", "4", "--output-tokens", "1"]
        ended = subprocess.run(
            [sys.executable, str(script), "--url", url, "--model", "m", *flags], capture_output=True, check=False
        )
    assert ended.returncode == 1
    assert json.loads(ended.stdout)["failures"] == {"HTTP 500": 2}


def test_percentiles_are_nearest_rank():
    assert percentiles([float(n) for n in range(1, 101)]) == {
        "mean": 50.5, "p50": 50.0, "p90": 90.0, "p99": 99.0, "max": 100.0,
    }  # fmt: skip
    assert percentiles([]) == {}
