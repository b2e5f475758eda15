"""Two model server stand-ins hand a prompt's KV from prefill to decode."""

import contextlib
import http.client
import json
import socket

import pytest

from tests.engine.lab.stand_in_processes import NIXL, model_server, nixl, wait_until

PROMPT = [7] * 2048
PREFILL_PARAMS = {"do_remote_decode": True, "do_remote_prefill": False, "remote_engine_id": None}


def ask(max_tokens, **more):
    return {"model": "lab/tiny", "prompt": PROMPT, "max_tokens": max_tokens, **more}


def prefill(server, request_id="r1"):
    request = ask(1, stream=False, kv_transfer_params=PREFILL_PARAMS)
    status, body = server.post("/v1/completions", request, {"X-Request-Id": request_id})
    assert status == 200
    return body["kv_transfer_params"]


@pytest.fixture(scope="module")
def prefill_server():
    with model_server(NIXL, "--block-size=128", "--tensor-parallel-size=2", env=nixl()) as server:
        yield server


@pytest.fixture(scope="module")
def decode_server():
    with model_server(NIXL, "--block-size=128", env=nixl()) as server:
        yield server


def test_a_prefill_says_where_its_blocks_are_held_and_keeps_them(prefill_server):
    params = prefill(prefill_server, "holding")
    assert params["do_remote_prefill"] is True
    assert params["do_remote_decode"] is False
    assert params["remote_host"] == "127.0.0.1"
    assert params["remote_request_id"].startswith("cmpl-holding-")
    assert [len(group) for group in params["remote_block_ids"]] == [16]
    assert (params["tp_size"], params["remote_num_tokens"]) == (2, 2048)
    seen = prefill_server.metrics()
    assert seen["vllm:num_requests_running"] == seen["vllm:num_requests_waiting"] == 0
    assert seen["vllm:kv_cache_usage_perc"] > 0


def test_a_pulled_prompt_counts_as_external_and_frees_the_blocks(prefill_server, decode_server):
    held = prefill_server.metrics()["vllm:kv_cache_usage_perc"]
    before = decode_server.metrics()
    params = prefill(prefill_server)
    status, body = decode_server.post("/v1/completions", ask(3, kv_transfer_params=params))
    after = decode_server.metrics()
    assert status == 200
    assert body["usage"]["completion_tokens"] == 3

    def grew(name):
        return after[f"vllm:{name}"] - before[f"vllm:{name}"]

    assert grew("prompt_tokens_by_source_total{source=external_kv_transfer}") == 2048
    assert grew("prompt_tokens_by_source_total{source=local_compute}") == 0
    assert grew("prompt_tokens_total") == 2048
    assert grew("time_to_first_token_seconds_sum") >= 2048 / 1e6 + 0.001  # the transfer, then the first decode step
    assert after["vllm:kv_cache_usage_perc"] == 0
    wait_until(lambda: prefill_server.metrics()["vllm:kv_cache_usage_perc"] == held, "the pulled blocks freed")


def test_a_transfer_is_a_deferred_wait():
    slow = nixl(SIM_TRANSFER_TOKENS_PER_SECOND="10")
    with model_server(NIXL, env=nixl()) as prefiller, model_server(NIXL, env=slow) as decoder:
        request = ask(1, kv_transfer_params=prefill(prefiller))
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", decoder.port)) as connection:
            connection.request("POST", "/v1/completions", json.dumps(request))
            seen = wait_until(lambda: (m := decoder.metrics())["vllm:num_requests_waiting"] and m, "the transfer")
            assert seen["vllm:num_requests_waiting_by_reason{reason=deferred}"] == 1
            assert seen["vllm:num_requests_waiting_by_reason{reason=capacity}"] == 0
            assert seen["vllm:kv_cache_usage_perc"] > 0
            assert prefiller.metrics()["vllm:kv_cache_usage_perc"] > 0
        # The client has gone: nobody pulls any more, so the prefill engine need not hold.
        wait_until(lambda: prefiller.metrics()["vllm:kv_cache_usage_perc"] == 0, "the blocks freed after an abort")


def test_blocks_that_nobody_pulls_are_freed_after_the_timeout():
    with model_server(NIXL, env=nixl(VLLM_NIXL_ABORT_REQUEST_TIMEOUT="0.3")) as server:
        prefill(server)
        wait_until(lambda: server.metrics()["vllm:kv_cache_usage_perc"] == 0, "the blocks freed after the timeout")
        assert "no decode engine pulled them in time" in server.output()


def test_blocks_that_are_not_held_any_more_fail_the_request(prefill_server, decode_server):
    params = prefill(prefill_server) | {"remote_request_id": "cmpl-forgotten"}
    status, body = decode_server.post("/v1/completions", ask(3, kv_transfer_params=params))
    assert (status, body["error"]["type"]) == (500, "InternalServerError")
    assert decode_server.metrics()["vllm:request_success_total{finished_reason=error}"] >= 1


def test_a_prefill_engine_that_is_gone_fails_the_request(decode_server):
    with model_server(NIXL, env=nixl()) as gone:
        params = prefill(gone)
    status, _ = decode_server.post("/v1/completions", ask(3, kv_transfer_params=params))
    assert status == 500


def test_a_client_that_goes_away_before_the_transfer_begins_sets_the_blocks_free(prefill_server, decode_server):
    with socket.create_server(("127.0.0.1", 0)) as silent, contextlib.ExitStack() as opened:
        silent.settimeout(20)

        def question() -> dict:
            connection = opened.enter_context(silent.accept()[0])
            return json.loads(opened.enter_context(connection.makefile()).readline())

        params = prefill(prefill_server, "left") | {"remote_port": silent.getsockname()[1]}
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", decode_server.port)) as connection:
            connection.request("POST", "/v1/completions", json.dumps(ask(3, kv_transfer_params=params)))
            assert question()["ask"] == "holds"
        assert question() == {"ask": "pulled", "request_id": params["remote_request_id"]}
    assert decode_server.metrics()["vllm:num_requests_waiting"] == 0


@pytest.mark.parametrize("params", [{"do_remote_prefill": True}, {"do_remote_prefill": True, "remote_host": "x"}])
def test_incomplete_parameters_fall_back_to_a_local_prefill(decode_server, params):
    name = "vllm:prompt_tokens_by_source_total{source=local_compute}"
    before = decode_server.metrics()[name]
    status, _ = decode_server.post("/v1/completions", ask(1, kv_transfer_params=params))
    assert status == 200
    assert decode_server.metrics()[name] == before + 2048


def test_a_server_without_a_connector_computes_the_prompt_and_hands_out_nothing():
    with model_server() as server:
        assert prefill(server) is None
        assert server.metrics()["vllm:kv_cache_usage_perc"] == 0
        assert "no KVConnector found" in server.output()
