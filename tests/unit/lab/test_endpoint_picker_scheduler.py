"""Scheduling by the endpoint picker: filters, scorers, pickers and the disaggregation handler."""

import random
from collections import Counter

import pytest
import yaml

from lab.stand_ins.endpoint_picker.config import load
from lab.stand_ins.endpoint_picker.datastore import Endpoint
from lab.stand_ins.endpoint_picker.inflight import Load
from lab.stand_ins.endpoint_picker.scheduler import Candidate, Decision, Scheduler


def candidate(name: str, role: str | None = None, *, requests: int = 0, tokens: int = 0, **known) -> Candidate:
    labels = {} if role is None else {"llm-d.ai/role": role}
    return Candidate(endpoint=Endpoint(name, "ns", "10.0.0.1", 8000, labels), load=Load(requests, tokens), **known)


def scheduler(*plugins: dict, profiles: dict[str, list[str]], seed: int = 1) -> Scheduler:
    document = {
        "apiVersion": "llm-d.ai/v1",
        "kind": "EndpointPickerConfig",
        "plugins": list(plugins),
        "schedulingProfiles": [
            {"name": name, "plugins": [{"pluginRef": reference} for reference in references]}
            for name, references in profiles.items()
        ],
    }
    return Scheduler(load(yaml.safe_dump(document)), random.Random(seed))


def one_profile(kind: str, **parameters) -> Scheduler:
    return scheduler({"type": kind, "parameters": parameters}, profiles={"default": [kind]})


def disaggregated(decider: dict | None = None) -> Scheduler:
    decider = decider or {"type": "always-disagg-pd-decider"}
    return scheduler(
        decider,
        {"type": "disagg-profile-handler", "parameters": {"deciders": {"prefill": decider["type"]}}},
        *({"type": t} for t in ("prefill-filter", "decode-filter", "token-load-scorer", "active-request-scorer")),
        profiles={
            "prefill": ["prefill-filter", "token-load-scorer"],
            "decode": ["decode-filter", "active-request-scorer"],
        },
    )


def decide(of: Scheduler, *candidates: Candidate, tokens: int = 100) -> Decision:
    decision = of.schedule(candidates, tokens)
    assert decision is not None
    return decision


def prefill_of(decision: Decision) -> str | None:
    return decision.prefill.endpoint.name if decision.prefill else None


def chosen(of: Scheduler, *candidates: Candidate) -> set[str]:
    """Everything that 60 runs choose."""
    return {decide(of, *candidates).primary.endpoint.name for _ in range(60)}


def test_a_pair_is_chosen_and_the_decision_counted():
    decision = decide(disaggregated(), candidate("p", "prefill"), candidate("d", "decode"))
    assert (decision.primary.endpoint.name, prefill_of(decision)) == ("d", "p")
    assert decision.decision_type == "prefill-decode"
    assert {name: item.endpoint.name for name, item in decision.chosen.items()} == {"decode": "d", "prefill": "p"}


@pytest.mark.parametrize("role", ["prefill", "encode-prefill", "prefill-decode", "both", "encode-prefill-decode"])
def test_roles_that_prefill(role):
    decision = decide(disaggregated(), candidate("p", role), candidate("d", "decode", requests=0))
    assert prefill_of(decision) == "p"


@pytest.mark.parametrize("role", ["decode", "prefill-decode", "both", "encode-prefill-decode", None])
def test_roles_that_decode(role):
    assert decide(disaggregated(), candidate("d", role), candidate("p", "prefill")).primary.endpoint.name == "d"


@pytest.mark.parametrize("role", ["decode", "encode", "encode-decode", "other", None])
def test_without_a_prefill_pod_decode_does_both(role):
    decision = decide(disaggregated(), candidate("x", role), candidate("d", "decode"))
    assert decision.prefill is None
    assert decision.decision_type == "decode-only"
    assert set(decision.chosen) == {"decode"}


def test_without_a_decode_pod_nothing_is_chosen():
    assert disaggregated().schedule([candidate("p", "prefill")], 100) is None
    assert disaggregated().schedule([], 100) is None


@pytest.mark.parametrize(
    ("parameters", "uncached", "kind"),
    [
        ({"nonCachedTokens": 512}, 512, "prefill-decode"),
        ({"nonCachedTokens": 512}, 511, "decode-only"),
        ({"nonCachedTokens": 0}, 4096, "decode-only"),
        ({"nonCachedTokens": 1, "promptTokens": 5000}, 4096, "decode-only"),
    ],
)
def test_the_prefix_based_decider_looks_at_what_decode_lacks(parameters, uncached, kind):
    of = disaggregated({"type": "prefix-based-pd-decider", "parameters": parameters})
    pods = [candidate("p", "prefill"), candidate("d", "decode", uncached_tokens=uncached)]
    assert decide(of, *pods, tokens=4096).decision_type == kind


def test_prefill_goes_where_the_fewest_tokens_are():
    pods = [candidate("p1", "prefill", tokens=4096), candidate("p2", "prefill", tokens=64), candidate("d", "decode")]
    assert prefill_of(decide(disaggregated(), *pods)) == "p2"


def test_decode_goes_where_the_fewest_requests_are():
    pods = [candidate("d1", "decode", requests=3), candidate("d2", "decode", requests=2, tokens=9999)]
    assert chosen(disaggregated(), *pods) == {"d2"}


def test_ties_are_broken_at_random():
    seen = Counter()
    of = one_profile("token-load-scorer")
    pods = [candidate("a"), candidate("b"), candidate("c", tokens=1)]
    for _ in range(200):
        seen[decide(of, *pods).primary.endpoint.name] += 1
    assert set(seen) == {"a", "b"}
    assert min(seen.values()) > 50


def test_beyond_the_threshold_every_load_is_the_same():
    of = one_profile("token-load-scorer", queueThresholdTokens=1000)
    assert chosen(of, candidate("a", tokens=1000), candidate("b", tokens=5000)) == {"a", "b"}
    assert chosen(of, candidate("a", tokens=999), candidate("b", tokens=5000)) == {"a"}


def test_idle_endpoints_are_equal_up_to_the_threshold():
    of = one_profile("active-request-scorer", idleThreshold=2, maxBusyScore=0.5)
    assert chosen(of, candidate("a", requests=2), candidate("b", requests=0), candidate("c", requests=3)) == {"a", "b"}


@pytest.mark.parametrize(
    ("kind", "better", "worse"),
    [
        ("queue-scorer", {"waiting": 1}, {"waiting": 4}),
        ("kv-cache-utilization-scorer", {"kv_usage": 0.2}, {"kv_usage": 0.7}),
        ("prefix-cache-scorer", {"prefix_match": 0.9}, {"prefix_match": 0.1}),
    ],
)
def test_scorers_of_the_default_configuration(kind, better, worse):
    assert chosen(one_profile(kind), candidate("good", **better), candidate("bad", **worse)) == {"good"}


AFFINITY = {"peakPrefillThroughput": 1000, "maxTTFTPenaltyMs": 5000}


def test_a_prompt_sticks_to_the_endpoint_that_holds_it():
    of = one_profile("prefix-cache-affinity-filter", **AFFINITY)
    assert chosen(of, candidate("warm", prefix_match=0.8, tokens=5000), candidate("cold")) == {"warm"}


def test_stickiness_ends_when_waiting_costs_more_than_the_bound():
    of = one_profile("prefix-cache-affinity-filter", **AFFINITY)
    assert chosen(of, candidate("warm", prefix_match=1.0, tokens=5001), candidate("cold")) == {"warm", "cold"}


def test_a_bound_of_zero_always_sticks():
    of = one_profile("prefix-cache-affinity-filter", **AFFINITY | {"maxTTFTPenaltyMs": 0})
    assert chosen(of, candidate("warm", prefix_match=1.0, tokens=10**6), candidate("cold")) == {"warm"}


def test_below_the_threshold_nobody_sticks():
    of = one_profile("prefix-cache-affinity-filter", **AFFINITY)
    assert chosen(of, candidate("a", prefix_match=0.79), candidate("b")) == {"a", "b"}


def test_exploration_passes_the_filter_by():
    of = one_profile("prefix-cache-affinity-filter", **AFFINITY, explorationProbability=1.0)
    assert chosen(of, candidate("warm", prefix_match=1.0), candidate("cold")) == {"warm", "cold"}


def test_weights_decide_between_scorers():
    plugins = [{"type": "queue-scorer"}, {"type": "kv-cache-utilization-scorer"}]
    document = {
        "apiVersion": "llm-d.ai/v1",
        "kind": "EndpointPickerConfig",
        "plugins": plugins,
        "schedulingProfiles": [
            {
                "name": "default",
                "plugins": [
                    {"pluginRef": "queue-scorer", "weight": 3},
                    {"pluginRef": "kv-cache-utilization-scorer", "weight": 2},
                ],
            }
        ],
    }
    short_queue, empty_cache = candidate("queue", waiting=0, kv_usage=1.0), candidate("cache", waiting=9, kv_usage=0.0)
    heavy_queue = Scheduler(load(yaml.safe_dump(document)), random.Random(1))
    assert chosen(heavy_queue, short_queue, empty_cache) == {"queue"}
    document["schedulingProfiles"][0]["plugins"][1]["weight"] = 4
    heavy_cache = Scheduler(load(yaml.safe_dump(document)), random.Random(1))
    assert chosen(heavy_cache, short_queue, empty_cache) == {"cache"}
