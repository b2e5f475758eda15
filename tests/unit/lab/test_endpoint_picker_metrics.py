"""What the endpoint picker exports, against series captured from the real one."""

import json
import random

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from lab.stand_ins.endpoint_picker.config import load
from lab.stand_ins.endpoint_picker.datastore import Datastore, Endpoint, Pool
from lab.stand_ins.endpoint_picker.dialect import DIALECTS, Dialect
from lab.stand_ins.endpoint_picker.director import Director, RefusalError
from lab.stand_ins.endpoint_picker.inflight import Accounting
from lab.stand_ins.endpoint_picker.metrics import Metrics
from lab.stand_ins.endpoint_picker.pod_metrics import PodMetrics, parse
from lab.stand_ins.endpoint_picker.prefix_index import PrefixIndex
from lab.stand_ins.endpoint_picker.scheduler import Scheduler
from tests.unit.lab.picker_configs import CO_LOCATED, PREFILL_DECODE

# Captured mid-way through six completions of 2,048 token ids; two of three streaming ones had had their first chunk.
# The capture's endpoints were named by hand; in pool mode a name ends in `-rank-<n>`. The one before is left out.
CAPTURED = """\
llm_d_epp_average_kv_cache_utilization{name="pd"} 0
llm_d_epp_average_queue_size{name="pd"} 0
llm_d_epp_average_running_requests{name="pd"} 3
llm_d_epp_disagg_decision_total{decision_type="prefill-decode",model_name="dummy",plugin_name="disagg-profile-handler",plugin_type="disagg-profile-handler"} 6
llm_d_epp_inflight_requests{endpoint_name="decode-rank-0",fairness_id="default-flow",namespace="pd-test",priority="0",producer_name="inflight-load-producer"} 6
llm_d_epp_inflight_requests{endpoint_name="prefill-rank-0",fairness_id="default-flow",namespace="pd-test",priority="0",producer_name="inflight-load-producer"} 4
llm_d_epp_inflight_tokens{endpoint_name="decode-rank-0",fairness_id="default-flow",namespace="pd-test",priority="0",producer_name="inflight-load-producer"} 8192
llm_d_epp_inflight_tokens{endpoint_name="prefill-rank-0",fairness_id="default-flow",namespace="pd-test",priority="0",producer_name="inflight-load-producer"} 8192
llm_d_epp_info{build_ref="",commit=""} 1
llm_d_epp_per_endpoint_queue_size{model_server_endpoint="decode-rank-0",name="pd"} 0
llm_d_epp_per_endpoint_queue_size{model_server_endpoint="prefill-rank-0",name="pd"} 0
llm_d_epp_ready_endpoints{name="pd"} 2
llm_d_epp_request_running{fairness_id="default-flow",model_name="dummy",priority="0",target_model_name="dummy"} 6
llm_d_epp_request_total{fairness_id="default-flow",model_name="dummy",priority="0",target_model_name="dummy"} 6
llm_d_epp_scheduler_attempts_total{endpoint_name="decode-rank-0",namespace="pd-test",port="8301",status="success",target_model_name="dummy"} 6
llm_d_epp_std_dev_kv_cache_utilization{name="pd"} 0
llm_d_epp_std_dev_queue_size{name="pd"} 0
llm_d_epp_std_dev_running_requests{name="pd"} 1.41
"""  # noqa: E501 - lines as captured


class World:
    """A director with pods and engine metrics that a test sets; its clock moves by hand."""

    def __init__(self, document: dict = PREFILL_DECODE, speaks: Dialect = DIALECTS["0.11"]) -> None:
        self.now = 100.0
        self.engines: dict[str, PodMetrics] = {}
        config = load(yaml.safe_dump(document))
        self.datastore = Datastore(self._departed)
        self.datastore.set_pool(Pool("pd", "pd-test", {}, (8301,)))
        accounting = Accounting(prunes_departed_series=speaks.prunes_departed_series)
        self.metrics = Metrics(
            speaks,
            accounting,
            config.inflight_producer.name if config.inflight_producer else None,
            lambda: [(endpoint.name, self.engine(endpoint.name).waiting) for endpoint in self.datastore.endpoints()],
            "pd",
        )
        chance = random.Random(1)
        self.director = Director(
            config=config,
            scheduler=Scheduler(config, chance),
            datastore=self.datastore,
            accounting=accounting,
            index=PrefixIndex(),
            metrics=self.metrics,
            pod_metrics=self.engine,
            clock=lambda: self.now,
            random=chance,
        )

    def _departed(self, endpoint: Endpoint) -> None:
        self.director.forget(endpoint)

    def engine(self, name: str) -> PodMetrics:
        return self.engines.get(name, PodMetrics())

    def pods(self, **roles: str) -> None:
        ready = [{"type": "Ready", "status": "True"}]
        self.datastore.set_pods(
            {
                "metadata": {"name": name, "namespace": "pd-test", "labels": {"llm-d.ai/role": role}},
                "status": {"podIP": f"10.0.0.{index}", "conditions": ready},
            }
            for index, (name, role) in enumerate(roles.items(), 1)
        )

    def send(self, prompt: object, **headers: str):
        body = json.dumps({"model": "dummy", "prompt": prompt}).encode()
        names = {key.replace("_", "-"): value for key, value in headers.items()}
        return self.director.admit(names, body, self.now)

    def values(self) -> dict[str, float]:
        return numbers(self.metrics.render().decode())


def numbers(text: str) -> dict[str, float]:
    lines = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return {series: float(value) for series, value in lines}


def ids(number: int, tokens: int = 2048) -> list[int]:
    return list(range(number * 10_000, number * 10_000 + tokens))


def test_the_captured_moment_is_reproduced_series_by_series():
    world = World()
    world.pods(prefill="prefill", decode="decode")
    exchanges = [world.send(ids(index)) for index in range(6)]
    for exchange in exchanges[:2]:
        world.director.response_headers(exchange, 200, "text/event-stream")
        world.director.response_chunk(exchange)
    world.metrics.refresh_pool([PodMetrics(running=2), PodMetrics(running=4)])
    captured, exported = numbers(CAPTURED), world.values()
    assert {series: exported.get(series) for series in captured} == captured
    for exchange in exchanges:
        world.director.end(exchange)
    inflight = {name: value for name, value in world.values().items() if "inflight" in name}
    assert set(inflight.values()) == {0}
    assert len(inflight) == 4  # the series stay, at zero


def test_a_whole_exposition_parses_and_every_family_has_help_and_the_captured_type():
    world = World()
    world.pods(prefill="prefill", decode="decode")
    world.director.end(world.send(ids(1)))
    with pytest.raises(RefusalError):
        world.director.admit({}, b"{", world.now)
    text = world.metrics.render().decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert all(family.documentation for family in families.values())
    counters = {"llm_d_epp_request", "llm_d_epp_request_error", "llm_d_epp_disagg_decision"}
    histograms = {"llm_d_epp_request_duration_seconds", "llm_d_epp_scheduler_e2e_duration_seconds"}
    types = {name: family.type for name, family in families.items()}
    assert {types[name] for name in counters} == {"counter"}
    assert {types[name] for name in histograms} == {"histogram"}
    assert {types[name] for name in types if "inflight" in name or "queue_size" in name} == {"gauge"}
    assert text.splitlines() == [line for line in text.splitlines() if line.strip()]


def test_time_to_first_token_is_told_apart_by_streaming():
    world = World()
    world.pods(prefill="prefill", decode="decode")
    for content_type in ("text/event-stream; charset=utf-8", "application/json"):
        exchange = world.send(ids(len(content_type)))
        world.director.response_headers(exchange, 200, content_type)
        world.now += 0.3
        world.director.response_chunk(exchange)
        world.now += 5
        world.director.response_chunk(exchange)
        world.director.end(exchange)
    labels = 'fairness_id="default-flow",model_name="dummy",priority="0",streaming="{}",target_model_name="dummy"'
    values = world.values()
    for streaming in ("true", "false"):
        text = labels.format(streaming)
        assert values[f"llm_d_epp_request_ttft_seconds_sum{{{text}}}"] == pytest.approx(0.3)
        assert values[f'llm_d_epp_request_ttft_seconds_bucket{{{text},le="0.2"}}'] == 0
        assert values[f'llm_d_epp_request_ttft_seconds_bucket{{{text},le="0.4"}}'] == 1
    duration = 'llm_d_epp_request_duration_seconds_sum{fairness_id="default-flow",model_name="dummy",'
    assert values[duration + 'priority="0",target_model_name="dummy"}'] == pytest.approx(10.6)


@pytest.mark.parametrize(("status", "code"), [(200, None), (500, "ModelServerError"), (0, "ClientClosedRequest")])
def test_how_an_exchange_that_went_wrong_is_counted(status, code):
    world = World()
    world.pods(prefill="prefill", decode="decode")
    exchange = world.send(ids(1))
    if status:
        world.director.response_headers(exchange, status, "application/json")
    world.director.end(exchange)
    world.director.end(exchange)
    errors = [name for name in world.values() if name.startswith("llm_d_epp_request_error_total")]
    assert [code in name for name in errors] == ([True] if code else [])


def test_what_an_endpoint_holds_is_not_charged_again():
    world = World()
    world.pods(prefill="prefill", decode="decode")
    world.director.end(world.send(ids(1)))
    world.send([*ids(1, 1024), *ids(2, 1024)])
    tokens = {name: value for name, value in world.values().items() if "inflight_tokens" in name}
    assert set(tokens.values()) == {1024}


def test_a_response_that_is_not_streamed_holds_its_tokens_to_the_end():
    world = World()
    world.pods(prefill="prefill", decode="decode")
    exchange = world.send(ids(1))
    world.director.response_headers(exchange, 200, "application/json")
    world.director.response_chunk(exchange)
    assert {value for name, value in world.values().items() if "inflight_tokens" in name} == {2048}
    world.director.end(exchange)
    assert {value for name, value in world.values().items() if "inflight_tokens" in name} == {0}


def test_a_pod_that_comes_back_holds_nothing():
    world = World()
    world.pods(prefill="prefill", decode="decode")
    world.director.end(world.send(ids(1)))
    world.pods()
    world.pods(prefill="prefill", decode="decode")
    world.send(ids(1))
    assert {value for name, value in world.values().items() if "inflight_tokens" in name} == {2048}


def test_text_is_charged_in_whole_blocks_of_the_engines_size():
    world = World()
    world.pods(prefill="prefill", decode="decode")
    world.engines = {"prefill-rank-0": PodMetrics(block_size=128, blocks=1000)}
    world.send("x" * 12_500)  # 3,125 tokens by estimate: 24.4 blocks of 128
    tokens = {name: value for name, value in world.values().items() if "inflight_tokens" in name}
    assert set(tokens.values()) == {25 * 128}


def test_co_located_requests_go_to_one_endpoint_without_a_prefill_header():
    world = World(CO_LOCATED)
    world.pods(server="prefill-decode")
    exchange = world.send(ids(1))
    assert exchange.set_headers["x-gateway-destination-endpoint"] == "10.0.0.1:8301"
    assert "x-prefiller-host-port" in exchange.remove_headers
    tokens = {name: value for name, value in world.values().items() if "inflight_tokens" in name}
    assert list(tokens.values()) == [2048]
    assert not any("disagg_decision" in name for name in world.values())


def test_the_fairness_id_of_a_request_is_a_label():
    world = World()
    world.pods(prefill="prefill", decode="decode")
    exchange = world.send(ids(1), x_gateway_inference_fairness_id="tenant-a", x_request_id="r1")
    assert exchange.set_headers["x-request-id"] == "r1"
    assert all('fairness_id="tenant-a"' in name for name in world.values() if "inflight" in name)


def test_without_endpoints_a_request_is_refused_as_unavailable():
    world = World()
    world.pods()
    with pytest.raises(RefusalError) as refused:
        world.send(ids(1))
    assert refused.value.status == 503
    with pytest.raises(RefusalError):
        world.director.admit_without_body()
    assert not any("request_total" in name for name in world.values())


def test_averages_go_stale_when_no_endpoint_is_fresh_and_the_count_goes_to_zero():
    world = World()
    world.metrics.refresh_pool([PodMetrics(waiting=3, kv_usage=0.555), PodMetrics(waiting=0, kv_usage=0.25)])
    world.metrics.refresh_pool([])
    values = world.values()
    assert values['llm_d_epp_ready_endpoints{name="pd"}'] == 0
    assert values['llm_d_epp_average_queue_size{name="pd"}'] == 1.5
    assert values['llm_d_epp_average_kv_cache_utilization{name="pd"}'] == 0.4  # two decimals


def test_the_older_router_exports_the_earlier_names_too():
    world = World(speaks=DIALECTS["0.10"])
    world.pods(prefill="prefill", decode="decode")
    world.send(ids(1))
    world.metrics.refresh_pool([PodMetrics()])
    values = world.values()
    assert values['inference_pool_ready_pods{name="pd"}'] == 1
    assert 'inference_pool_per_pod_queue_size{model_server_pod="decode-rank-0",name="pd"}' in values
    assert any(name.startswith("llm_d_inference_scheduler_disagg_decision_total") for name in values)
    assert 'llm_d_epp_ready_endpoints{name="pd"}' in values


def test_an_engines_metrics_are_told_apart_from_those_with_longer_names():
    text = """# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} 3.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 9.0
vllm:num_requests_running{engine="0",model_name="m"} 2.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:cache_config_info{block_size="16",cache_dtype="auto",engine="0",num_gpu_blocks="1024"} 1.0
"""
    assert parse(text) == PodMetrics(waiting=3, running=2, kv_usage=0.25, block_size=16, blocks=1024)
    assert parse("") == PodMetrics()
