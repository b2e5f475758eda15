"""The endpoint picker's stand-in as its users meet it: through a real Envoy, from the command line, by its metrics."""

import asyncio
import json
import re
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

import grpc
import pytest

from lab.locks import locked
from lab.paths import cache_root
from lab.tools.cache import appearing_directory, content_hash
from lab.tools.python_packages import install
from tests.system.lab import picker_rig
from tests.system.lab.picker_rig import NAMESPACE, ROOT, free_port, picker_command, process, rig, until

PREFILL, DECODE = "qwen-prefill-6d5b-aaaaa", "qwen-decode-7c9f-bbbbb"
OPEN_METRICS = "--metrics-endpoint-auth=false"
SERVING, NOT_SERVING = b"\x08\x01", b"\x08\x02"

pytestmark = pytest.mark.asyncio


def _installed(lock_name: str) -> Path:
    lock = ROOT / "lab" / "images" / lock_name
    target = cache_root() / "packages" / content_hash([lock.read_bytes(), sys.version])
    with locked(target.with_suffix(".lock")):
        if not target.exists():
            with appearing_directory(target) as work:
                install(lock, work)
    return target


@pytest.fixture(scope="session")
def packages() -> Path:
    """What the stand-ins' image has: the project's own environment holds another protobuf."""
    return _installed("stand-ins.txt")


@pytest.fixture(scope="session")
def envoy() -> Path:
    return _installed("envoy.txt") / "envoy" / "_bin" / "envoy"


def series(endpoint: str) -> str:
    """Labels of an in-flight series, as captured."""
    return (
        f'endpoint_name="{endpoint}-rank-0",fairness_id="default-flow",namespace="{NAMESPACE}",priority="0",'
        'producer_name="inflight-load-producer"'
    )


def unique_prompt(number: int, tokens: int = 2048) -> list[int]:
    return list(range(number * 10_000, number * 10_000 + tokens))


async def inflight(running: picker_rig.Rig, prefill: tuple[int, int], decode: tuple[int, int]) -> None:
    """Wait until requests and tokens in flight at the two endpoints are these."""
    wanted = {
        "llm_d_epp_inflight_requests": {series(PREFILL): prefill[0], series(DECODE): decode[0]},
        "llm_d_epp_inflight_tokens": {series(PREFILL): prefill[1], series(DECODE): decode[1]},
    }

    async def seen() -> Mapping[str, Mapping[str, float]]:
        return {name: await running.metric(name) for name in wanted}

    await until("the in-flight series", seen, wanted=wanted)


def by_label(name: str, metric: Mapping[str, float]) -> dict[str, float]:
    """Values by one label, which must tell the series apart."""
    values = [(re.findall(f'{name}="([^"]*)"', labels)[0], value) for labels, value in metric.items()]
    assert len(dict(values)) == len(values)
    return dict(values)


async def test_six_concurrent_completions_are_counted_as_in_the_capture(tmp_path, packages, envoy):
    async with rig(tmp_path, packages, envoy, OPEN_METRICS) as running:
        sent = [running.complete(unique_prompt(n), stream=n < 3) for n in range(6)]
        received = await running.received(DECODE, 6)
        await inflight(running, (6, 6 * 2048), (6, 6 * 2048))
        streaming = [got for got in received if json.loads(got.body)["stream"]]
        for got in streaming[:2]:
            got.chunk.set()
        # The capture's moment: two of the streaming ones have had their first chunk.
        await inflight(running, (4, 8192), (6, 8192))
        captured = {
            line.split(" ")[0]: float(line.split(" ")[1])
            for line in (await running.scrape())[1].splitlines()
            if not line.startswith("#")
        }
        labels = '{fairness_id="default-flow",model_name="dummy",priority="0",target_model_name="dummy"}'
        handler = 'plugin_name="disagg-profile-handler",plugin_type="disagg-profile-handler"'
        assert captured[f"llm_d_epp_request_running{labels}"] == 6
        assert captured[f"llm_d_epp_request_total{labels}"] == 6
        decisions = f'llm_d_epp_disagg_decision_total{{decision_type="prefill-decode",model_name="dummy",{handler}}}'
        assert captured[decisions] == 6
        for got in received:
            got.chunk.set()
            got.finish.set()
        await asyncio.gather(*sent)
        await inflight(running, (0, 0), (0, 0))
        durations = await running.metric("llm_d_epp_request_duration_seconds_count")
        assert list(durations.values()) == [6]
        ttft = await running.metric("llm_d_epp_request_ttft_seconds_count")
        assert by_label("streaming", ttft) == {"true": 3, "false": 3}


async def test_the_request_reaches_decode_unchanged_and_names_the_prefill_pod(tmp_path, packages, envoy):
    async with rig(tmp_path, packages, envoy, OPEN_METRICS) as running:
        text = "x" * 300_000  # several pieces of Envoy's and of the picker's size
        answer = running.complete(text)
        (got,) = await running.received(DECODE, 1)
        port = running.servers[PREFILL].port
        assert got.headers["x-prefiller-host-port"] == f"127.0.0.11:{port}"
        assert got.headers["x-gateway-destination-endpoint"] == f"127.0.0.12:{port}"
        assert json.loads(got.body) == {"model": "dummy", "prompt": text, "stream": False}
        got.finish.set()
        assert json.loads(await answer) == {"choices": [{"text": "done"}]}
        assert running.servers[PREFILL].received == []


async def test_a_client_cannot_choose_the_pods(tmp_path, packages, envoy):
    async with rig(tmp_path, packages, envoy, OPEN_METRICS) as running:
        running.kubernetes.put_pod(PREFILL, "127.0.0.11", "prefill", ready=False)
        await until("prefill to leave", lambda: left(running, PREFILL))
        wish = {"x-prefiller-host-port": "127.0.0.1:1", "x-gateway-destination-endpoint": "127.0.0.1:1"}
        body = {"model": "dummy", "prompt": "hi"}

        async def send() -> int:
            async with running.client.post(running.url("/v1/completions"), json=body, headers=wish) as response:
                return response.status

        sent = asyncio.create_task(send())
        (got,) = await running.received(DECODE, 1)
        assert "x-prefiller-host-port" not in got.headers
        got.finish.set()
        assert await sent == 200


async def test_chunks_pass_as_they_come(tmp_path, packages, envoy):
    async with rig(tmp_path, packages, envoy, OPEN_METRICS) as running:
        body = {"model": "dummy", "prompt": unique_prompt(1), "stream": True}
        async with asyncio.timeout(10):
            post = asyncio.create_task(running.client.post(running.url("/v1/completions"), json=body).__aenter__())
            (got,) = await running.received(DECODE, 1)
            got.chunk.set()
            response = await post
            assert await response.content.readany() == b"data: first\n\n"
            await inflight(running, (0, 0), (1, 0))  # prefill is done, decode has the request until the end
            got.finish.set()
            assert await response.content.read() == b"data: [DONE]\n\n"
            response.release()
        await inflight(running, (0, 0), (0, 0))


async def test_a_client_that_goes_away_is_released(tmp_path, packages, envoy):
    async with rig(tmp_path, packages, envoy, OPEN_METRICS) as running:
        waiting = [running.complete(unique_prompt(1)), running.complete(unique_prompt(2), stream=True)]
        await running.received(DECODE, 2)
        await inflight(running, (2, 4096), (2, 4096))
        for task in waiting:
            task.cancel()
        await inflight(running, (0, 0), (0, 0))


async def test_a_request_without_a_body_goes_to_an_endpoint_and_is_not_counted(tmp_path, packages, envoy):
    async with rig(tmp_path, packages, envoy, OPEN_METRICS) as running:
        async with running.client.get(running.url("/v1/models")) as response:
            assert (response.status, await response.text()) == (200, "models")
        assert await running.metric("llm_d_epp_request_total") == {}


async def test_refusals_are_answered_without_a_model_server(tmp_path, packages, envoy):
    async with rig(tmp_path, packages, envoy, OPEN_METRICS) as running:
        url = running.url("/v1/completions")
        async with running.client.post(url, data=b"{not json") as response:
            assert (response.status, await response.text()) == (400, "inference error: the request body is not JSON")
        running.kubernetes.put_pod(DECODE, "127.0.0.12", "decode", terminating=True)
        await until("decode to leave", lambda: left(running, DECODE))
        async with running.client.post(url, json={"model": "dummy", "prompt": "x"}) as response:
            assert response.status == 503
        errors = await running.metric("llm_d_epp_request_error_total")
        assert by_label("error_code", errors) == {"BadRequest": 1, "ServiceUnavailable": 1}


async def left(running: picker_rig.Rig, pod: str) -> bool:
    names = await running.metric("llm_d_epp_per_endpoint_queue_size")
    return bool(names) and not any(pod in labels for labels in names)


@pytest.mark.parametrize(("version", "kept"), [("0.10", True), ("0.11", False)])
async def test_series_of_a_departed_pod(tmp_path, packages, envoy, version, kept):
    async with rig(tmp_path, packages, envoy, OPEN_METRICS, version=version) as running:
        answer = running.complete(unique_prompt(1))
        (got,) = await running.received(DECODE, 1)
        running.kubernetes.put_pod(PREFILL, "127.0.0.11", "prefill", terminating=True)
        await until("prefill to leave", lambda: left(running, PREFILL))
        tokens = await running.metric("llm_d_epp_inflight_tokens")
        assert tokens == ({series(PREFILL): 2048.0, series(DECODE): 2048.0} if kept else {series(DECODE): 2048.0})
        got.finish.set()
        await answer

        left_at_zero = dict.fromkeys([series(PREFILL), series(DECODE)] if kept else [series(DECODE)], 0.0)
        await until("release", lambda: running.metric("llm_d_epp_inflight_tokens"), wanted=left_at_zero)
        legacy = await running.metric("inference_pool_ready_pods")
        assert bool(legacy) is kept


async def test_engine_metrics_reach_the_pool_gauges(tmp_path, packages, envoy):
    async with rig(tmp_path, packages, envoy, OPEN_METRICS) as running:
        running.servers[DECODE].waiting = 4

        queues = {
            f'model_server_endpoint="{DECODE}-rank-0",name="pd"': 4.0,
            f'model_server_endpoint="{PREFILL}-rank-0",name="pd"': 0.0,
        }
        await until("queues", lambda: running.metric("llm_d_epp_per_endpoint_queue_size"), wanted=queues)
        averages = {"ready_endpoints": 2.0, "average_queue_size": 2.0, "average_kv_cache_utilization": 0.25}
        for name, value in averages.items():
            await until(name, lambda name=name: running.metric(f"llm_d_epp_{name}"), wanted={'name="pd"': value})


async def test_metrics_need_a_token_that_may_read_them(tmp_path, packages, envoy):
    async with rig(tmp_path, packages, envoy, "--metrics-endpoint-auth=true") as running:
        running.kubernetes.users = {"prometheus": True, "somebody": False}
        assert (await running.scrape())[0] == 401
        assert (await running.scrape("stranger"))[0] == 401
        assert (await running.scrape("somebody"))[0] == 403
        status, text = await running.scrape("prometheus")
        assert status == 200
        assert "llm_d_epp_info" in text
        reviews = running.kubernetes.reviews
        assert (await running.scrape("prometheus"))[0] == 200
        assert running.kubernetes.reviews == reviews  # remembered for a few seconds
        running.kubernetes.may_review = False
        assert (await running.scrape("another"))[0] == 500


async def health(port: int, service: str) -> bytes:
    name = service.encode()
    request = b"\x0a" + bytes([len(name)]) + name if name else b""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        return await channel.unary_unary("/grpc.health.v1.Health/Check")(request, timeout=5)


async def test_health_follows_the_pool(tmp_path, packages, envoy):
    async with rig(tmp_path, packages, envoy, OPEN_METRICS, pool=False) as running:
        for service in ("inference-extension", "liveness", "readiness", ""):
            assert await health(running.health_port, service) == NOT_SERVING
        running.kubernetes.put_pool(running.servers[DECODE].port)

        await until("SERVING", lambda: health(running.health_port, "inference-extension"), wanted=SERVING)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await health(running.health_port, "nobody")
        assert refused.value.code() == grpc.StatusCode.NOT_FOUND


async def test_sigterm_lets_open_exchanges_end_and_exits_0(tmp_path, packages, envoy):
    async with rig(tmp_path, packages, envoy, OPEN_METRICS, "--drain-timeout=15s") as running:
        answer = running.complete(unique_prompt(1), stream=True)
        (got,) = await running.received(DECODE, 1)
        got.chunk.set()
        await inflight(running, (0, 0), (1, 0))
        running.picker.send_signal(signal.SIGTERM)

        async def refuses() -> bool:
            async with running.client.get(running.url("/v1/models")) as response:
                return response.status >= 500

        await until("new exchanges to be refused", refuses)
        assert running.picker.returncode is None
        got.finish.set()
        assert "[DONE]" in await answer
        async with asyncio.timeout(10):
            assert await running.picker.wait() == 0


async def test_the_programs_own_envoy_routes_by_it(tmp_path, packages, envoy):
    async with rig(tmp_path, packages, envoy, OPEN_METRICS, as_the_chart=False) as running:
        sent = [running.complete(unique_prompt(n), stream=bool(n)) for n in range(2)]
        received = await running.received(DECODE, 2)
        await inflight(running, (2, 4096), (2, 4096))
        for got in received:
            got.chunk.set()
            got.finish.set()
        assert {"done" in answer or "[DONE]" in answer for answer in await asyncio.gather(*sent)} == {True}
        await inflight(running, (0, 0), (0, 0))


async def test_plaintext_ext_proc(tmp_path, packages, envoy):
    async with rig(tmp_path, packages, envoy, OPEN_METRICS, tls=False) as running:
        answer = running.complete("hello")
        (got,) = await running.received(DECODE, 1)
        got.finish.set()
        assert "done" in await answer


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("--pool-name=pd", "--no-such-flag"), 2, "unknown flag: --no-such-flag"),
        (("--pool-name=pd", "--config-text={apiVersion: llm-d.ai/v2}"), 1, "apiVersion"),
        ((), 1, "exactly one of --pool-name and --endpoint-selector"),
        (("--help",), 0, "--drain-timeout"),
    ],
)
async def test_exit_status_of_a_refused_start(tmp_path, packages, arguments, status, message):
    command, env = picker_command(packages, *arguments)
    env |= picker_rig.Kubernetes(free_port()).service_account(tmp_path)
    async with process(*command, log=tmp_path / "log", env=env) as picker, asyncio.timeout(20):
        assert await picker.wait() == status
    assert message in (tmp_path / "log").read_text()
