"""How tests run a stand-in as a process of its own on a free loopback port, and talk to it."""

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

ROOT = Path(__file__).parents[3]
START_SECONDS = 20.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until(condition, what: str, seconds: float = 10.0):
    """Poll until `condition()` is truthy and return it; fails with the last value seen."""
    deadline = time.monotonic() + seconds
    while not (seen := condition()):
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s, last seen {seen!r}"
        time.sleep(0.01)
    return seen


class Running:
    """A stand-in that listens on `port`."""

    def __init__(self, process: subprocess.Popen, port: int, output: Path) -> None:
        self.process = process
        self.port = port
        self._output = output

    def output(self) -> str:
        return self._output.read_text()

    def open(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] = {}
    ) -> http.client.HTTPResponse:
        """The response, its body unread; closing it, or reading it to the end, closes the connection."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        connection.request(method, path, data, {"Connection": "close", **headers})
        return connection.getresponse()

    def get(self, path: str, headers: Mapping[str, str] = {}) -> tuple[int, bytes]:
        with self.open("GET", path, headers=headers) as response:
            return response.status, response.read()

    def post(self, path: str, body: object, headers: Mapping[str, str] = {}) -> tuple[int, dict]:
        with self.open("POST", path, body, headers) as response:
            return response.status, json.loads(response.read())

    def metrics(self) -> dict[str, float]:
        """Samples as `name{label=value,...}`, without the labels that all have."""
        status, text = self.get("/metrics")
        assert status == 200
        return samples(text.decode())

    def stop(self, seconds: float = 10.0) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(seconds)


def samples(text: str) -> dict[str, float]:
    out = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = {key: value for key, value in sample.labels.items() if key not in {"engine", "model_name"}}
            shown = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
            out[f"{sample.name}{{{shown}}}" if shown else sample.name] = sample.value
    return out


@contextlib.contextmanager
def running(
    module: str, *arguments: str, port: int, env: Mapping[str, str] = {}, ready: str | None = "/health"
) -> Generator[Running]:
    """Start `python -m module`; yields once `ready` answers (None: at once). Killed at the end if still there."""
    with tempfile.TemporaryDirectory() as directory:
        output = Path(directory, "output")
        with output.open("wb") as sink:
            process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                cwd=ROOT,
                env={**os.environ, **env},
                stdout=sink,
                stderr=subprocess.STDOUT,
            )
        stand_in = Running(process, port, output)
        try:
            if ready is not None:
                wait_until(lambda: answers(stand_in, ready), f"{module} on {port}", START_SECONDS)
            yield stand_in
        finally:
            process.kill()
            process.wait()


def answers(stand_in: Running, path: str) -> bool:
    assert stand_in.process.poll() is None, f"exited with {stand_in.process.returncode}: {stand_in.output()}"
    try:
        stand_in.get(path)
    except OSError:
        return False
    return True


def model_server(*arguments: str, env: Mapping[str, str] = {}, ready: str | None = "/health", model: str = "lab/tiny"):
    """A fast model server; `env` overrides its physics."""
    port = free_port()
    fast = {
        "SIM_PREFILL_TOKENS_PER_SECOND": "1000000",
        "SIM_TRANSFER_TOKENS_PER_SECOND": "1000000",
        "SIM_DECODE_BASE_SECONDS": "0.001",
        "SIM_DECODE_SECONDS_PER_SEQUENCE": "0",
    }
    listen = ("--host", "127.0.0.1", f"--port={port}")
    return running(
        "lab.stand_ins.model_server", "serve", model, *listen, *arguments, port=port, env={**fast, **env}, ready=ready
    )


def routing_sidecar(decoder_port: int, *arguments: str, version: str = "0.11", ready: str | None = "/health"):
    """A sidecar in front of the model server on `decoder_port`, without TLS."""
    port = free_port()
    plain = "--secure-proxy=false" if version.startswith("0.10") else "--secure-serving=false"
    flags = (f"--port={port}", f"--model-server-port={decoder_port}", plain)
    env = {"STAND_IN_ROUTER_VERSION": version}
    return running("lab.stand_ins.routing_sidecar", *flags, *arguments, port=port, env=env, ready=ready)


NIXL = '--kv-transfer-config={"kv_connector":"NixlConnector","kv_role":"kv_both"}'


def nixl(**more: str) -> dict[str, str]:
    """The environment of a server with a side channel of its own."""
    return {"VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1", "VLLM_NIXL_SIDE_CHANNEL_PORT": str(free_port()), **more}


def events(response: http.client.HTTPResponse) -> Iterator[dict]:
    """The server-sent events of a stream, without the closing `[DONE]` (which must be there)."""
    for line in response:
        if line.strip() == b"data: [DONE]":
            return
        if line.startswith(b"data: "):
            yield json.loads(line[6:])
    raise AssertionError("the stream ended without [DONE]")
