"""The model server stand-in as a process: its API, its metrics, its end."""

import contextlib
import http.client
import json
import re
import signal
import statistics
import time

import pytest

from tests.engine.lab.stand_in_processes import events, model_server, samples, wait_until

SLOW_DECODE = {"SIM_DECODE_BASE_SECONDS": "0.05"}
PROMPT = [7] * 2048


def ask(max_tokens=4, prompt=PROMPT, **more):
    return {"model": "lab/tiny", "prompt": prompt, "max_tokens": max_tokens, **more}


@pytest.fixture(scope="module")
def server():
    with model_server("--max-model-len=16384", "--served-model-name", "lab/tiny", "other-name") as started:
        yield started


def test_models_carry_the_served_names_and_the_context_length(server):
    status, body = server.get("/v1/models")
    cards = json.loads(body)["data"]
    assert status == 200
    assert [(card["id"], card["max_model_len"]) for card in cards] == [("lab/tiny", 16384), ("other-name", 16384)]


def test_health_and_version_answer(server):
    assert server.get("/health") == (200, b"")
    assert server.get("/version") == (200, b'{"version": "0.27.1"}')


def test_an_unknown_path_is_404(server):
    assert server.get("/v1/nothing")[0] == 404


def test_a_completion_returns_text_and_counts(server):
    status, body = server.post("/v1/completions", ask(3))
    assert status == 200
    assert body["object"] == "text_completion"
    assert body["choices"][0]["finish_reason"] == "length"
    assert len(body["choices"][0]["text"].split()) == 3
    assert body["usage"]["prompt_tokens"] == 2048
    assert body["usage"]["completion_tokens"] == 3
    assert body["kv_transfer_params"] is None


def test_a_chat_returns_a_message(server):
    request = {"model": "other-name", "messages": [{"role": "user", "content": "Good morning"}]}
    status, body = server.post("/v1/chat/completions", request)
    assert status == 200
    assert body["model"] == "other-name"
    assert body["choices"][0]["message"]["role"] == "assistant"
    assert body["choices"][0]["finish_reason"] == "stop"
    assert body["usage"]["completion_tokens"] == 64


def test_the_request_id_of_the_client_comes_back(server):
    _, body = server.post("/v1/completions", ask(1), {"X-Request-Id": "abc"})
    assert body["id"] == "cmpl-abc"


def test_a_stream_has_one_event_per_token_and_ends_with_usage_and_done(server):
    request = ask(5, stream=True, stream_options={"include_usage": True})
    with server.open("POST", "/v1/completions", request) as response:
        assert response.headers["Content-Type"].startswith("text/event-stream")
        *chunks, last = events(response)
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * 4 + ["length"]
    assert all(chunk["choices"][0]["text"] for chunk in chunks)
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 5


def test_a_chat_stream_opens_with_the_role(server):
    request = {"messages": [{"role": "user", "content": "hi"}], "stream": True, "max_tokens": 2}
    with server.open("POST", "/v1/chat/completions", request) as response:
        deltas = [chunk["choices"][0]["delta"] for chunk in events(response)]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert [bool(delta["content"]) for delta in deltas] == [False, True, True]


@pytest.mark.parametrize(
    ("request_", "status", "kind"),
    [
        ({"model": "nobody/nothing", "prompt": "a"}, 404, "NotFoundError"),
        (ask(16384), 400, "BadRequestError"),
        ({"model": "lab/tiny"}, 400, "BadRequestError"),
    ],
)
def test_errors_come_in_openais_shape(server, request_, status, kind):
    code, body = server.post("/v1/completions", request_)
    assert (code, body["error"]["type"], body["error"]["code"]) == (status, kind, status)


def test_every_series_the_queries_read_exists_from_start_with_vllms_labels():
    with model_server("--block-size=128", env={"SIM_KV_TOKENS": "128000"}) as server:
        text = server.get("/metrics")[1].decode()
    assert 'vllm:kv_cache_usage_perc{engine="0",model_name="lab/tiny"} 0.0' in text
    types = dict(re.findall(r"^# TYPE (vllm:\S+) (\S+)$", text, re.MULTILINE))
    zero = samples(text)
    for name in (
        "num_requests_running",
        "num_requests_waiting",
        "num_requests_waiting_by_reason{reason=capacity}",
        "num_requests_waiting_by_reason{reason=deferred}",
        "kv_cache_usage_perc",
    ):
        assert types[f"vllm:{name.split('{')[0]}"] == "gauge"
        assert zero[f"vllm:{name}"] == 0
    for name in (
        "generation_tokens_total",
        "num_preemptions_total",
        "prefix_cache_hits_total",
        "prefix_cache_queries_total",
        "prompt_tokens_by_source_total{source=external_kv_transfer}",
        "prompt_tokens_by_source_total{source=local_cache_hit}",
        "prompt_tokens_by_source_total{source=local_compute}",
        "prompt_tokens_total",
        "request_success_total{finished_reason=abort}",
        "request_success_total{finished_reason=length}",
        "request_success_total{finished_reason=stop}",
    ):
        assert types[f"vllm:{name.split('{')[0]}"] == "counter"
        assert zero[f"vllm:{name}"] == 0
    for name in (
        "e2e_request_latency_seconds",
        "inter_token_latency_seconds",
        "request_decode_time_seconds",
        "request_generation_tokens",
        "request_inference_time_seconds",
        "request_prefill_time_seconds",
        "request_prompt_tokens",
        "request_queue_time_seconds",
        "time_to_first_token_seconds",
    ):
        assert types[f"vllm:{name}"] == "histogram"
        assert zero[f"vllm:{name}_count"] == 0
    assert re.search(r'vllm:cache_config_info\{block_size="128",.*engine="0",.*num_gpu_blocks="1000"\} 1', text)
    assert zero["process_start_time_seconds"] > 1.7e9


def test_counters_and_histograms_tell_what_was_served():
    with model_server() as server:
        server.post("/v1/completions", ask(4))
        server.post("/v1/completions", ask(1, prompt="x" * 400))
        seen = server.metrics()
    assert seen["vllm:prompt_tokens_total"] == 2148
    assert seen["vllm:prompt_tokens_by_source_total{source=local_compute}"] == 2148
    assert seen["vllm:generation_tokens_total"] == 5
    assert seen["vllm:request_success_total{finished_reason=length}"] == 2
    assert seen["vllm:time_to_first_token_seconds_count"] == 2
    assert seen["vllm:time_to_first_token_seconds_sum"] == pytest.approx(2148 / 1e6)
    assert seen["vllm:inter_token_latency_seconds_count"] == 3
    assert seen["vllm:inter_token_latency_seconds_sum"] == pytest.approx(0.003)
    assert seen["vllm:request_prompt_tokens_sum"] == 2148
    assert seen["vllm:request_generation_tokens_sum"] == 5
    assert seen["vllm:request_prefill_time_seconds_sum"] == pytest.approx(2148 / 1e6)
    assert seen["vllm:request_decode_time_seconds_sum"] == pytest.approx(0.003)
    assert seen["vllm:request_queue_time_seconds_sum"] == pytest.approx(0.0, abs=1e-6)
    assert seen["vllm:e2e_request_latency_seconds_sum"] == pytest.approx(2148 / 1e6 + 0.003)
    assert seen["vllm:kv_cache_usage_perc"] == 0


def test_gauges_tell_running_waiting_and_kv_use():
    physics = {"SIM_PREFILL_TOKENS_PER_SECOND": "1000", "SIM_KV_TOKENS": "40960"}
    with model_server("--max-model-len=8192", "--max-num-batched-tokens=2048", env=physics) as server:
        streams = [server.open("POST", "/v1/completions", ask(2, stream=True)) for _ in range(3)]
        seen = wait_until(lambda: (m := server.metrics())["vllm:num_requests_waiting"] == 2 and m, "two waiting")
        assert seen["vllm:num_requests_running"] == 1
        assert seen["vllm:num_requests_waiting_by_reason{reason=capacity}"] == 2
        assert seen["vllm:num_requests_waiting_by_reason{reason=deferred}"] == 0
        assert seen["vllm:kv_cache_usage_perc"] == pytest.approx(2048 / 40960)
        for stream in streams:
            stream.close()


def test_a_client_that_goes_away_frees_its_request():
    with model_server(env=SLOW_DECODE) as server:
        stream = server.open("POST", "/v1/completions", ask(10_000, stream=True))
        next(events(stream))
        assert server.metrics()["vllm:num_requests_running"] == 1
        stream.close()
        wait_until(lambda: server.metrics()["vllm:num_requests_running"] == 0, "the aborted request gone")
        seen = server.metrics()
    assert seen["vllm:kv_cache_usage_perc"] == 0
    assert seen["vllm:request_success_total{finished_reason=abort}"] == 1


def test_a_client_that_goes_away_while_it_waits_for_a_whole_answer_frees_its_request():
    with model_server(env=SLOW_DECODE) as server:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.port)) as connection:
            connection.request("POST", "/v1/completions", json.dumps(ask(10_000)))
            wait_until(lambda: server.metrics()["vllm:num_requests_running"] == 1, "the request running")
        wait_until(lambda: server.metrics()["vllm:num_requests_running"] == 0, "the aborted request gone")
        assert server.metrics()["vllm:request_success_total{finished_reason=abort}"] == 1


def test_nothing_listens_before_the_weights_are_loaded():
    with model_server(env={"SIM_LOAD_SECONDS": "600"}, ready=None) as server:
        wait_until(lambda: "loading lab/tiny" in server.output(), "the start of loading", 20)
        with pytest.raises(ConnectionRefusedError):
            server.get("/health")
        assert server.stop() == 0


def test_sigterm_aborts_what_runs_at_once():
    with model_server(env=SLOW_DECODE) as server:
        stream = events(server.open("POST", "/v1/completions", ask(10_000, stream=True)))
        next(stream)
        server.process.send_signal(signal.SIGTERM)
        assert list(stream)[-1]["choices"][0]["finish_reason"] == "abort"
        assert server.process.wait(10) == 0


def test_a_shutdown_timeout_lets_running_requests_finish_and_refuses_new_ones():
    with model_server("--shutdown-timeout=60", env=SLOW_DECODE) as server:
        stream = events(server.open("POST", "/v1/completions", ask(30, stream=True)))
        next(stream)
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: "mode drain" in server.output(), "the drain")
        status, body = server.post("/v1/completions", ask(1))
        assert (status, body["error"]["type"]) == (503, "ServiceUnavailableError")
        rest = list(stream)
        assert len(rest) == 29
        assert rest[-1]["choices"][0]["finish_reason"] == "length"
        assert server.process.wait(10) == 0


def test_a_shutdown_timeout_that_runs_out_aborts():
    with model_server("--shutdown-timeout=0.2", env=SLOW_DECODE) as server:
        stream = events(server.open("POST", "/v1/completions", ask(10_000, stream=True)))
        next(stream)
        server.process.send_signal(signal.SIGTERM)
        assert list(stream)[-1]["choices"][0]["finish_reason"] == "abort"
        assert server.process.wait(10) == 0


def test_access_lines_can_be_switched_off_for_some_endpoints():
    with model_server("--disable-access-log-for-endpoints=/health,/metrics") as server:
        server.metrics()
        server.get("/v1/models")
        wait_until(lambda: "GET /v1/models" in server.output(), "the access line")
        assert "/metrics" not in server.output()
        assert "/health" not in server.output()


@pytest.mark.parametrize(
    ("arguments", "env", "status", "says"),
    [
        (["--no-such-flag"], {}, 2, "unrecognized arguments"),
        (["--max-model-len=8192"], {"SIM_KV_TOKENS": "4096"}, 1, "stored in KV cache (4096)"),
        ([], {"SIM_KV_TOKENS": "many"}, 1, "SIM_KV_TOKENS='many' is not a number"),
    ],
)
def test_a_server_that_cannot_start_says_why_and_exits(arguments, env, status, says):
    with model_server(*arguments, env=env, ready=None) as server:
        assert server.process.wait(20) == status
        assert says in server.output()


def test_an_idle_server_answers_an_8192_token_prompt_within_2_percent_of_tokens_over_speed():
    """The one timing of this file: what a client measures from request to first token, the median of several."""
    speed = 8192.0
    with model_server(env={"SIM_PREFILL_TOKENS_PER_SECOND": str(speed)}) as server:
        measured = []
        for _ in range(5):
            started = time.monotonic()
            with server.open("POST", "/v1/completions", ask(1, prompt=[11] * 8192, stream=True)) as response:
                next(events(response))
                measured.append(time.monotonic() - started)
    assert statistics.median(measured) == pytest.approx(8192 / speed, rel=0.02), measured
