"""The routing sidecar stand-in as a process, between a client and real model server stand-ins."""

import contextlib
import http.client
import http.server
import json
import signal
import ssl
import threading
import urllib.request

import pytest

from lab.stand_ins.routing_sidecar.proxy import prefill_request
from tests.engine.lab.stand_in_processes import (
    NIXL,
    events,
    free_port,
    model_server,
    nixl,
    routing_sidecar,
    running,
    wait_until,
)

PROMPT = [7] * 2048
LOCAL = "vllm:prompt_tokens_by_source_total{source=local_compute}"
EXTERNAL = "vllm:prompt_tokens_by_source_total{source=external_kv_transfer}"


def ask(max_tokens=4, **more):
    return {"model": "lab/tiny", "prompt": PROMPT, "max_tokens": max_tokens, **more}


def to(server) -> dict[str, str]:
    return {"x-prefiller-host-port": f"127.0.0.1:{server.port}"}


@pytest.fixture(scope="module")
def prefiller():
    with model_server(NIXL, "--max-model-len=8192", env=nixl()) as server:
        yield server


@pytest.fixture(scope="module")
def decoder():
    with model_server(NIXL, "--max-model-len=8192", env=nixl(SIM_DECODE_BASE_SECONDS="0.005")) as server:
        yield server


@pytest.fixture(scope="module")
def sidecar(decoder):
    with routing_sidecar(decoder.port) as started:
        yield started


@pytest.mark.parametrize("path", ["/v1/models", "/health", "/version", "/v1/nothing"])
def test_every_path_passes_through(sidecar, decoder, path):
    assert sidecar.get(path) == decoder.get(path)


def test_metrics_of_the_model_server_pass_through(sidecar):
    assert sidecar.metrics()["vllm:num_requests_running"] == 0


def test_without_the_header_decode_does_it_all(sidecar, decoder, prefiller):
    before, untouched = decoder.metrics(), prefiller.metrics()["vllm:prompt_tokens_total"]
    status, body = sidecar.post("/v1/completions", ask())
    after = decoder.metrics()
    assert (status, body["usage"]["completion_tokens"]) == (200, 4)
    assert after[LOCAL] - before[LOCAL] == 2048
    assert prefiller.metrics()["vllm:prompt_tokens_total"] == untouched


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_with_the_header_prefill_and_decode_split(sidecar, decoder, prefiller, path, stream):
    request = ask(stream=stream)
    if "chat" in path:
        request |= {"messages": [{"role": "user", "content": "x" * 8000}], "max_completion_tokens": 4}
    if stream:
        request["stream_options"] = {"include_usage": True}
    before, prefilled = decoder.metrics(), prefiller.metrics()
    with sidecar.open("POST", path, request, to(prefiller)) as response:
        body = list(events(response))[-1] if stream else json.loads(response.read())
    usage, after = body["usage"], decoder.metrics()
    assert usage["completion_tokens"] == 4
    assert after[EXTERNAL] - before[EXTERNAL] == usage["prompt_tokens"]
    assert after[LOCAL] == before[LOCAL]
    now = prefiller.metrics()
    assert now[LOCAL] - prefilled[LOCAL] == usage["prompt_tokens"]
    assert now["vllm:generation_tokens_total"] - prefilled["vllm:generation_tokens_total"] == 1
    wait_until(lambda: prefiller.metrics()["vllm:kv_cache_usage_perc"] == 0, "the prefilled blocks pulled")


def test_the_first_of_several_prefillers_is_taken(sidecar, prefiller):
    before = prefiller.metrics()[LOCAL]
    hosts = f" 127.0.0.1:{prefiller.port} , 127.0.0.1:1"
    assert sidecar.post("/v1/completions", ask(), {"x-prefiller-host-port": hosts})[0] == 200
    assert prefiller.metrics()[LOCAL] - before == 2048


def test_a_stream_passes_through_token_by_token():
    with (
        model_server(NIXL, env=nixl(SIM_DECODE_BASE_SECONDS="600")) as stuck,
        routing_sidecar(stuck.port) as sidecar,
        sidecar.open("POST", "/v1/completions", ask(stream=True)) as response,
    ):
        # The second token is ten minutes away: the first must not wait for it in a buffer.
        assert next(events(response))["choices"][0]["text"]


def test_a_prefiller_without_transfer_parameters_means_a_silent_local_prefill(sidecar, decoder):
    before = decoder.metrics()
    with model_server() as plain:
        status, body = sidecar.post("/v1/completions", ask(), to(plain))
        assert plain.metrics()[LOCAL] == 2048
    after = decoder.metrics()
    assert (status, body["usage"]["completion_tokens"]) == (200, 4)
    assert after[LOCAL] - before[LOCAL] == 2048
    assert after[EXTERNAL] == before[EXTERNAL]
    lines = [json.loads(line) for line in sidecar.output().splitlines() if line.startswith("{")]
    assert any("missing 'kv_transfer_params'" in line["msg"] and line["level"] == "info" for line in lines)


def test_a_refusal_of_the_prefiller_is_returned_to_the_client(sidecar, decoder, prefiller):
    before = decoder.metrics()["vllm:prompt_tokens_total"]
    status, body = sidecar.post("/v1/completions", ask(model="nobody/nothing"), to(prefiller))
    assert (status, body["error"]["type"]) == (404, "NotFoundError")
    assert decoder.metrics()["vllm:prompt_tokens_total"] == before


def test_a_prefiller_that_is_gone_is_a_bad_gateway_and_no_fallback(sidecar, decoder):
    before = decoder.metrics()["vllm:prompt_tokens_total"]
    with sidecar.open(
        "POST", "/v1/completions", ask(), {"x-prefiller-host-port": f"127.0.0.1:{free_port()}"}
    ) as answer:
        assert answer.status == 502
    assert decoder.metrics()["vllm:prompt_tokens_total"] == before


def test_a_body_that_is_not_json_is_400_when_prefill_is_elsewhere(sidecar, prefiller):
    status, body = sidecar.post("/v1/completions", b"{", to(prefiller))
    assert (status, body["type"]) == (400, "BadRequestError")


def test_a_decoder_that_does_not_listen_is_503():
    with routing_sidecar(free_port()) as sidecar:
        status, body = sidecar.post("/v1/completions", ask())
    assert (status, body["type"], body["code"]) == (503, "ServiceUnavailable", 503)


def test_a_client_that_goes_away_cancels_decode(sidecar, decoder):
    response = sidecar.open("POST", "/v1/completions", ask(6000, stream=True))
    next(events(response))
    assert decoder.metrics()["vllm:num_requests_running"] == 1
    response.close()
    wait_until(lambda: decoder.metrics()["vllm:num_requests_running"] == 0, "decode aborted")


def test_a_client_that_goes_away_cancels_prefill(sidecar, decoder):
    before = decoder.metrics()["vllm:prompt_tokens_total"]
    with model_server(NIXL, env=nixl(SIM_PREFILL_TOKENS_PER_SECOND="1")) as slow:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", sidecar.port)) as connection:
            connection.request("POST", "/v1/completions", json.dumps(ask()), to(slow))
            wait_until(lambda: slow.metrics()["vllm:num_requests_running"] == 1, "prefill running")
        wait_until(lambda: slow.metrics()["vllm:num_requests_running"] == 0, "prefill aborted")
    assert decoder.metrics()["vllm:prompt_tokens_total"] == before


class Prefiller(http.server.BaseHTTPRequestHandler):
    """Answers 503 as often as asked, then as a prefill server; keeps what it was sent."""

    seen: list[dict]
    failures: int

    def do_POST(self):
        self.seen.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        failed = len(self.seen) <= self.failures
        self.send_response(503 if failed else 200)
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format, *args):  # noqa: A002 - the name is http.server's
        """Say nothing."""


@contextlib.contextmanager
def prefiller_that_fails(times: int):
    handler = type("Handler", (Prefiller,), {"seen": [], "failures": times})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield handler, {"x-prefiller-host-port": f"127.0.0.1:{server.server_port}"}
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(("retries", "status"), [(1, 503), (2, 200)])
def test_a_prefill_is_tried_again_as_often_as_the_flag_says(decoder, retries, status):
    flags = (f"--prefill-max-retries={retries}", "--prefill-retry-backoff=10ms")
    with routing_sidecar(decoder.port, *flags) as sidecar, prefiller_that_fails(2) as (handler, header):
        with sidecar.open("POST", "/v1/completions", ask(), header) as response:
            assert response.status == status
        assert len(handler.seen) == retries + 1


def test_the_prefiller_is_asked_for_one_token_and_to_keep_the_blocks():
    asked = ask(50, stream=True, stream_options={"include_usage": True}, min_tokens=5, temperature=0)
    assert prefill_request(asked) == {
        "model": "lab/tiny",
        "prompt": PROMPT,
        "temperature": 0,
        "stream": False,
        "max_tokens": 1,
        "max_completion_tokens": 1,
        "kv_transfer_params": {
            "do_remote_decode": True,
            "do_remote_prefill": False,
            "remote_engine_id": None,
            "remote_block_ids": None,
            "remote_host": None,
            "remote_port": None,
        },
    }


def test_ssrf_protection_without_a_pool_that_lists_the_pod_is_403(decoder, prefiller):
    flags = ("--enable-ssrf-protection", "--inference-pool=ns/pool")
    with routing_sidecar(decoder.port, *flags) as sidecar:
        with sidecar.open("POST", "/v1/completions", ask(), to(prefiller)) as response:
            assert response.status == 403
        assert sidecar.post("/v1/completions", ask())[0] == 200


def test_it_serves_with_a_self_signed_certificate_by_default(decoder):
    port = free_port()
    flags = (f"--port={port}", f"--vllm-port={decoder.port}")
    trusting = ssl._create_unverified_context()

    def answered():
        try:
            with urllib.request.urlopen(f"https://127.0.0.1:{port}/health", context=trusting) as response:
                return response.status
        except OSError:
            return None

    env = {"STAND_IN_ROUTER_VERSION": "0.10.0"}
    with running("lab.stand_ins.routing_sidecar", *flags, port=port, env=env, ready=None) as sidecar:
        assert wait_until(answered, "TLS", 20) == 200
        assert "Flag --vllm-port has been deprecated" in sidecar.output()


@pytest.mark.parametrize(
    ("flag", "version", "status"), [("--connector=nixlv2", "0.10.0", 2), ("--kv-connector=x", "0.11.0", 1)]
)
def test_a_wrong_command_line_ends_the_process(flag, version, status):
    with routing_sidecar(8200, flag, version=version, ready=None) as sidecar:
        assert sidecar.process.wait(20) == status


def test_sigterm_lets_a_running_answer_finish(decoder):
    with routing_sidecar(decoder.port) as sidecar:
        stream = events(sidecar.open("POST", "/v1/completions", ask(40, stream=True)))
        next(stream)
        sidecar.process.send_signal(signal.SIGTERM)
        assert len(list(stream)) == 39
        assert sidecar.process.wait(10) == 0
