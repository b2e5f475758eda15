"""Do the queries answer right as Prometheus itself evaluates them?

Each case is a small world of series, 15 s apart for ten minutes; the queries are asked at its end. Label sets are those
of a real scrape: the target's `namespace`, `job` and `pod`, the picker's own namespace as `exported_namespace`, and
vLLM's `engine`.
"""

import json
import subprocess
from pathlib import Path

import pytest

from lab.tools import toolchain
from llmd import dialects, promql
from llmd.names import Names
from llmd.pool import Fleet, Pool
from llmd.roles import Role

ROUTER = dialects.router("0.10")  # keeps series of departed pods: the harder of the two
VLLM = dialects.engine("vllm", "0.27")
BY_REASON = "vllm:num_requests_waiting_by_reason"
NAMES = Names("qwen3-32b", "llm-d-qwen3")
PREFILL, DECODE, BOTH = (Fleet.of(NAMES, role) for role in Role)
STEPS = 40  # x 15 s = 10 minutes
END = "10m"

PATH = promql.prefill_by_path(PREFILL, "2048", ROUTER)
IN_PREFILL = promql.prefill_by_phase(PREFILL, "4096", ROUTER, VLLM)
IN_TRANSFER = promql.transfer_by_phase(PREFILL, "1024", ROUTER, VLLM)
OCCUPANCY = promql.kv_occupancy(DECODE, ROUTER, VLLM)
WAITERS = promql.capacity_waiters(DECODE, ROUTER, VLLM)

A, B, C = "aaaaa", "bbbbb", "ccccc"
ALWAYS = f"x{STEPS}"


@pytest.fixture(scope="module")
def promtool() -> Path:
    """The lab's own; absent it is an error, not a skip."""
    return toolchain.tool("promtool")


def ask(promtool: Path, directory: Path, series: dict[str, str], expected: dict[str, float | None]) -> str:
    """Everything promtool says about the expectations; empty when all hold. None expects no sample."""
    written = {
        "evaluation_interval": "15s",
        "tests": [
            {
                "interval": "15s",
                "input_series": [{"series": name, "values": values} for name, values in series.items()],
                "promql_expr_test": [
                    {
                        "expr": query,
                        "eval_time": END,
                        "exp_samples": [] if value is None else [{"labels": "{}", "value": value}],
                    }
                    for query, value in expected.items()
                ],
            }
        ],
    }
    path = directory / "series.yaml"
    path.write_text(json.dumps(written))
    ran = subprocess.run([promtool, "test", "rules", path], capture_output=True, text=True, timeout=60, check=False)
    return "" if ran.returncode == 0 else f"{ran.stdout}\n{ran.stderr}"


@pytest.fixture
def answers(promtool, tmp_path):
    """Assert what each query answers in a world."""

    def check(series: dict[str, str], expected: dict[str, float | None]) -> None:
        assert ask(promtool, tmp_path, series, expected) == ""

    return check


def constant(value: float) -> str:
    return f"{value}{ALWAYS}"


def until(value: float, step: int) -> str:
    """A series that is scraped until `step` and then gone (Prometheus marks it stale)."""
    return f"{value}x{step} stale _x{STEPS - step - 1}"


def since(value: float, step: int) -> str:
    """A series that does not exist before `step`."""
    return f"_x{step} {value}x{STEPS - step}"


def pod(fleet: Fleet, end: str) -> str:
    return f"{fleet.deployment}-5f7b9c8d4f-{end}"


def picker(metric: str, fleet: Fleet, **own: str) -> str:
    target = {
        "namespace": fleet.pool.namespace,
        "job": fleet.pool.router_job,
        "pod": "qwen3-32b-epp-6c8d7f9b4-zzzzz",
        "instance": "10.0.0.9:9090",
    }
    return named(metric, {**target, **own})


def live(fleet: Fleet, end: str, **more: str) -> str:
    own = {"name": fleet.pool.name, "model_server_endpoint": f"{pod(fleet, end)}-rank-0"}
    return picker(ROUTER.endpoint_queue, fleet, **{**own, **more})


def inflight(metric: str, fleet: Fleet, end: str, **more: str) -> str:
    own = {
        "endpoint_name": f"{pod(fleet, end)}-rank-0",
        "exported_namespace": fleet.pool.namespace,
        "producer_name": "inflight-load-producer",
        "fairness_id": "default-flow",
        "priority": "0",
    }
    return picker(metric, fleet, **{**own, **more})


def tokens(fleet: Fleet, end: str, **more: str) -> str:
    return inflight(ROUTER.inflight_tokens, fleet, end, **more)


def requests(fleet: Fleet, end: str, **more: str) -> str:
    return inflight(ROUTER.inflight_requests, fleet, end, **more)


def engine(metric: str, fleet: Fleet, end: str, **own: str) -> str:
    target = {"namespace": fleet.pool.namespace, "job": fleet.engine_job, "pod": pod(fleet, end), "engine": "0"}
    return named(metric, {**target, "model_name": "Qwen/Qwen3-32B", **own})


def named(metric: str, labels: dict[str, str]) -> str:
    matchers = ",".join(f'{name}="{value}"' for name, value in labels.items())
    return f"{metric}{{{matchers}}}"


def waiting(end: str, value: float) -> dict[str, str]:
    """A decode pod with so many requests that wait for capacity, and one that waits for its KV."""
    return {
        live(DECODE, end): constant(0),
        engine(VLLM.kv_usage, DECODE, end): constant(0.5),
        engine(BY_REASON, DECODE, end, reason="capacity"): constant(value),
        engine(BY_REASON, DECODE, end, reason="deferred"): constant(1),
    }


def prefilling(end: str, held: float, count: float, running: float, queued: float) -> dict[str, str]:
    """A prefill pod for which the picker holds tokens and requests while its engine has some of them."""
    return {
        live(PREFILL, end): constant(0),
        tokens(PREFILL, end): constant(held),
        requests(PREFILL, end): constant(count),
        engine(VLLM.running, PREFILL, end): constant(running),
        engine(VLLM.waiting, PREFILL, end): constant(queued),
    }


def idle(fleet: Fleet, end: str) -> dict[str, str]:
    """A live pod with a scraped engine that never had a request."""
    return {
        live(fleet, end): constant(0),
        engine(VLLM.running, fleet, end): constant(0),
        engine(VLLM.waiting, fleet, end): constant(0),
        engine(VLLM.kv_usage, fleet, end): constant(0),
        engine(BY_REASON, fleet, end, reason="capacity"): constant(0),
    }


def test_backlog_by_path_is_tokens_over_throughput_of_the_prefill_fleet_alone(answers):
    elsewhere = {"namespace": "other", "exported_namespace": "other"}
    series = {
        live(PREFILL, A): constant(0),
        live(PREFILL, B): constant(3),
        live(DECODE, A): constant(0),
        tokens(PREFILL, A): constant(4096),
        tokens(PREFILL, B): constant(2048),
        tokens(PREFILL, B, fairness_id="other-flow"): constant(2048),
        # the same request on its decode endpoint, another producer, another tenant's picker
        tokens(DECODE, A): constant(4096),
        tokens(PREFILL, A, producer_name="second-producer"): constant(512),
        tokens(PREFILL, A, **elsewhere): constant(8192),
        live(PREFILL, A, namespace="other"): constant(0),
    }
    answers(series, {PATH: 4})


def test_backlog_is_zero_before_the_first_request_ever(answers):
    answers({**idle(PREFILL, A), **idle(DECODE, A)}, {PATH: 0, IN_PREFILL: 0, IN_TRANSFER: 0, OCCUPANCY: 0, WAITERS: 0})


def test_a_fleet_that_is_idle_again_reads_zero_and_not_nan(answers):
    # the picker keeps the series of past requests, at 0
    answers(prefilling(A, held=0, count=0, running=0, queued=0), {PATH: 0, IN_PREFILL: 0, IN_TRANSFER: 0})


def test_a_first_request_counts_at_once(answers):
    first = 39  # its series are in the very last scrapes only
    series = {
        **idle(PREFILL, A),
        tokens(PREFILL, A): since(2048, first),
        requests(PREFILL, A): since(1, first),
        engine(VLLM.running, PREFILL, A): f"0x{first - 1} 1 1",
    }
    answers(series, {PATH: 1})
    # by phase the window's earlier steps are true zeros, of seven steps (six since Prometheus 3) the last two have it
    in_prefill = f"({IN_PREFILL}) > bool 0"
    answers(series, {in_prefill: 1, IN_TRANSFER: 0})


def test_a_pod_that_comes_adds_its_own_backlog_and_nothing_before_it_is_live(answers):
    series = {
        live(PREFILL, A): constant(0),
        tokens(PREFILL, A): constant(2048),
        live(PREFILL, B): since(0, 20),
        tokens(PREFILL, B): since(4096, 24),
        tokens(PREFILL, C): constant(8192),  # never became ready
    }
    answers(series, {PATH: 3})


def test_a_pod_that_went_leaves_nothing_although_its_series_stay(answers):
    series = {
        **prefilling(A, held=2048, count=1, running=1, queued=0),
        **idle(DECODE, A),
        live(PREFILL, B): until(0, 20),
        tokens(PREFILL, B): constant(65536),
        requests(PREFILL, B): constant(8),
        engine(VLLM.running, PREFILL, B): until(8, 20),
        engine(VLLM.waiting, PREFILL, B): until(0, 20),
        live(DECODE, B): until(0, 20),
        engine(VLLM.kv_usage, DECODE, B): until(1, 20),
        engine(BY_REASON, DECODE, B, reason="capacity"): until(9, 20),
    }
    answers(series, {PATH: 1, IN_PREFILL: 0.5, IN_TRANSFER: 0, OCCUPANCY: 0, WAITERS: 0})


def test_a_draining_pod_does_not_count_while_it_still_works(answers):
    # out of the picker's list at once, but running, scraped and holding requests
    series = {
        **prefilling(A, held=2048, count=1, running=1, queued=0),
        **prefilling(B, held=8192, count=4, running=4, queued=0),
        live(PREFILL, B): until(0, 10),
        live(DECODE, A): constant(0),
        engine(VLLM.kv_usage, DECODE, A): constant(0.25),
        live(DECODE, B): until(0, 10),
        engine(VLLM.kv_usage, DECODE, B): constant(0.75),
        engine(BY_REASON, DECODE, A, reason="capacity"): constant(0),
        engine(BY_REASON, DECODE, B, reason="capacity"): constant(5),
    }
    answers(series, {PATH: 1, IN_PREFILL: 0.5, IN_TRANSFER: 0, OCCUPANCY: 0.25, WAITERS: 0})


def test_a_dead_picker_gives_no_sample_rather_than_zero(answers):
    gone = {
        name: until(0, 20) if name.startswith("llm_d_epp") else values
        for name, values in {
            **prefilling(A, held=2048, count=1, running=1, queued=0),
            **waiting(A, 3),
        }.items()
    }
    answers(gone, {PATH: None, IN_PREFILL: None, IN_TRANSFER: None, OCCUPANCY: None, WAITERS: None})


def test_a_picker_that_was_never_scraped_gives_no_sample(answers):
    series = {engine(VLLM.kv_usage, DECODE, A): constant(0.5), engine(VLLM.running, PREFILL, A): constant(1)}
    answers(series, {PATH: None, IN_PREFILL: None, IN_TRANSFER: None, OCCUPANCY: None, WAITERS: None})


def test_a_fleet_without_a_live_pod_gives_no_sample(answers):
    # the picker lives and sees the other role only
    prefill_gone = {live(DECODE, A): constant(0), tokens(PREFILL, A): constant(2048)}
    answers(prefill_gone, {PATH: None, IN_PREFILL: None, IN_TRANSFER: None})
    decode_gone = {live(PREFILL, A): constant(0), engine(VLLM.kv_usage, DECODE, A): constant(0.5)}
    answers(decode_gone, {OCCUPANCY: None, WAITERS: None})


def test_a_live_pod_whose_engine_is_not_scraped_gives_no_sample_by_phase(answers):
    series = {
        **prefilling(A, held=2048, count=1, running=1, queued=0),
        live(PREFILL, B): constant(0),
        tokens(PREFILL, B): constant(2048),
        requests(PREFILL, B): constant(1),
    }
    # by path the picker alone is asked, and that is complete
    answers(series, {IN_PREFILL: None, IN_TRANSFER: None, PATH: 2})


def test_a_live_pod_whose_engine_is_not_scraped_gives_no_kv_sample(answers):
    series = {**waiting(A, 4), **waiting(C, 4), live(DECODE, B): constant(0)}
    answers(series, {OCCUPANCY: None, WAITERS: None})
    lost = {**waiting(A, 4), live(DECODE, B): constant(0), engine(VLLM.kv_usage, DECODE, B): until(0.5, 30)}
    answers(lost, {OCCUPANCY: None, WAITERS: None})


def test_backlog_splits_by_what_the_prefill_engines_still_have(answers):
    series = {
        **prefilling(A, held=8192, count=4, running=1, queued=1),  # half of it is still prefill's
        **prefilling(B, held=4096, count=2, running=0, queued=0),  # all of it waits to enter decode
    }
    answers(series, {IN_PREFILL: 4096 / 4096, IN_TRANSFER: (4096 + 4096) / 1024, PATH: 6})


def test_an_engine_with_more_requests_than_the_picker_knows_has_all_of_the_tokens(answers):
    # read at different instants, or asked by someone else as well
    series = prefilling(A, held=4096, count=2, running=3, queued=3)
    answers(series, {IN_PREFILL: 1, IN_TRANSFER: 0})


def test_the_two_phases_together_are_the_picker_s_tokens(answers):
    series = {
        **prefilling(A, held=6144, count=3, running=1, queued=0),
        **prefilling(B, held=2048, count=1, running=0, queued=1),
    }
    together = f"({IN_PREFILL}) * 4096 + ({IN_TRANSFER}) * 1024"
    answers(series, {together: 8192, IN_PREFILL: 1})


def test_occupancy_sums_pods_and_averages_the_engines_of_one(answers):
    series = {
        live(DECODE, A): constant(0),
        live(DECODE, B): constant(0),
        engine(VLLM.kv_usage, DECODE, A): constant(0.5),
        engine(VLLM.kv_usage, DECODE, B): constant(0.25),
        engine(VLLM.kv_usage, DECODE, B, engine="1"): constant(0.75),
        engine(VLLM.kv_usage, PREFILL, A): constant(1),
        engine(VLLM.kv_usage, DECODE, A, namespace="other"): constant(1),
    }
    answers(series, {OCCUPANCY: 1})


def test_occupancy_survives_one_missed_scrape(answers):
    series = {live(DECODE, A): constant(0), engine(VLLM.kv_usage, DECODE, A): f"0.5x{STEPS - 2} stale _"}
    answers(series, {OCCUPANCY: 0.5})


@pytest.mark.parametrize(
    ("waiters", "answer"),
    [
        ([0], 0),
        ([4], 4),
        ([4, 0], 0),  # exactly half is no majority
        ([4, 2], 6),
        ([4, 2, 0], 6),
        ([8, 0, 0], 0),
    ],
)
def test_waiters_count_only_while_a_majority_of_pods_has_some(answers, waiters, answer):
    series = {}
    for end, value in zip((A, B, C), waiters, strict=False):
        series |= waiting(end, value)
    answers(series, {WAITERS: answer, OCCUPANCY: 0.5 * len(waiters)})


def test_requests_that_wait_for_their_kv_are_no_capacity_waiters(answers):
    series = {**waiting(A, 0), engine(BY_REASON, DECODE, A, reason="deferred"): constant(50)}
    answers(series, {WAITERS: 0})


def test_the_co_located_fleet_is_asked_by_its_own_name(answers):
    path, occupancy = promql.prefill_by_path(BOTH, "2048", ROUTER), promql.kv_occupancy(BOTH, ROUTER, VLLM)
    series = {
        live(BOTH, A): constant(0),
        tokens(BOTH, A): constant(4096),
        engine(VLLM.kv_usage, BOTH, A): constant(0.5),
        live(PREFILL, B): constant(0),
        tokens(PREFILL, B): constant(8192),
    }
    answers(series, {path: 2, occupancy: 0.5, PATH: 4, OCCUPANCY: None})


def test_two_pickers_during_a_rollout_count_a_pod_once(answers):
    old = {"pod": "qwen3-32b-epp-5d5d5d5d5-yyyyy", "instance": "10.0.0.8:9090"}
    series = {
        **prefilling(A, held=2048, count=1, running=1, queued=0),
        live(PREFILL, A, **old): constant(0),
        tokens(PREFILL, A, **old): constant(2048),
        requests(PREFILL, A, **old): constant(1),
        **waiting(A, 2),
        live(DECODE, A, **old): constant(0),
    }
    # each holds its own requests, so tokens add up and pods do not
    answers(series, {PATH: 2, OCCUPANCY: 0.5, WAITERS: 2, IN_PREFILL: 2048 / 4096})


def test_endpoints_without_a_rank_are_the_same_pods(answers):
    bare = {"model_server_endpoint": pod(PREFILL, A)}
    series = {
        live(PREFILL, A, **bare): constant(0),
        tokens(PREFILL, A, endpoint_name=pod(PREFILL, A)): constant(2048),
        requests(PREFILL, A, endpoint_name=pod(PREFILL, A)): constant(1),
        engine(VLLM.running, PREFILL, A): constant(1),
        engine(VLLM.waiting, PREFILL, A): constant(0),
    }
    answers(series, {PATH: 1, IN_PREFILL: 0.5})


def test_decisions_are_counted_by_what_was_decided(answers):
    split = promql.disagg_decisions(Pool.of(NAMES), ROUTER)
    series = {
        picker(ROUTER.disagg_decisions, PREFILL, decision_type="prefill-decode", model_name="a"): constant(5),
        picker(ROUTER.disagg_decisions, PREFILL, decision_type="prefill-decode", model_name="b"): constant(2),
        picker(ROUTER.disagg_decisions, PREFILL, decision_type="decode-only", model_name="a"): constant(9),
    }
    answers(series, {split: 7, promql.disagg_decisions(Pool.of(NAMES), ROUTER, "decode-only"): 9})


@pytest.mark.parametrize(
    "query", [PATH, IN_PREFILL, IN_TRANSFER, OCCUPANCY, WAITERS], ids=["path", "prefill", "transfer", "kv", "waiters"]
)
def test_a_query_is_one_line_of_balanced_text(query):
    assert "\n" not in query
    assert "  " not in query
    assert query.count("(") == query.count(")")
    assert f'namespace="{NAMES.namespace}"' in query


def test_a_name_with_regex_or_quote_characters_is_taken_literally(answers):
    odd = Fleet(
        pool=Pool(name='p"o\\ol', namespace="n", router_job="j"),
        role=Role.PREFILL,
        deployment="a.b",
        engine_job="n/a.b",
    )
    query = promql.prefill_by_path(odd, "1024", ROUTER)
    assert 'name="p\\"o\\\\ol"' in query
    escaped = {"name": 'p\\"o\\\\ol'}
    series = {
        live(odd, A, **escaped): constant(0),
        tokens(odd, A): constant(1024),
        live(odd, A, model_server_endpoint="axb-5f7b9c8d4f-aaaaa", **escaped): constant(0),
        tokens(odd, A, endpoint_name="axb-5f7b9c8d4f-aaaaa"): constant(4096),
    }
    answers(series, {query: 1})


def test_a_wrong_expectation_is_noticed(promtool, tmp_path):
    said = ask(promtool, tmp_path, {live(PREFILL, A): constant(0)}, {PATH: 1, IN_PREFILL: 0})
    assert said.count("got:") == 2
