"""Do generated names obey Kubernetes, and keep one model's apart from another's?"""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmd import labels, promql
from llmd.names import InvalidNameError, Names, PrefixedNameError, check_models
from llmd.pool import Fleet, Pool
from llmd.roles import Role

KEYS = st.from_regex(r"[a-z]([a-z0-9-]{0,36}[a-z0-9])?", fullmatch=True)
NAMESPACES = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", fullmatch=True)
LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
QWEN = Names("qwen3-32b", "llm-d-qwen3")


def test_the_whole_page_of_names():
    commit = "9216db5781bf21249d130ec9da846c4624c16137"
    assert {
        "fleets": [QWEN.deployment(role) for role in Role],
        "hpa": QWEN.hpa(Role.DECODE),
        "account": QWEN.model_server_account,
        "claim": QWEN.cache_claim,
        "job": QWEN.download_job("Qwen/Qwen3-32B", commit),
        "pool": QWEN.pool,
        "router": QWEN.router,
        "configs": [QWEN.router_config("a"), QWEN.envoy_config("a")],
        "roles": [QWEN.router_cluster_role("x1y2z3"), QWEN.keda_cluster_role("x1y2z3")],
        "keda": [QWEN.keda_account, QWEN.keda_token, QWEN.trigger_authentication],
        "metrics token": QWEN.router_metrics_token,
        "quota": QWEN.quota,
        "jobs": [QWEN.router_job, QWEN.engine_job(Role.PREFILL)],
        "address": QWEN.endpoint,
    } == {
        "fleets": ["qwen3-32b-prefill", "qwen3-32b-decode", "qwen3-32b-server"],
        "hpa": "keda-hpa-qwen3-32b-decode",
        "account": "qwen3-32b-model-server",
        "claim": "qwen3-32b-model-cache",
        "job": "qwen3-32b-download-faf4de78",
        "pool": "qwen3-32b",
        "router": "qwen3-32b-epp",
        "configs": ["qwen3-32b-epp-ca978112ca", "qwen3-32b-envoy-ca978112ca"],
        "roles": ["llm-d-llm-d-qwen3-qwen3-32b-epp-x1y2z3", "llm-d-llm-d-qwen3-qwen3-32b-keda-x1y2z3"],
        "keda": ["qwen3-32b-keda", "qwen3-32b-keda-token", "qwen3-32b-prometheus"],
        "metrics token": "qwen3-32b-epp-metrics-token",
        "quota": "qwen3-32b-gpus",
        "jobs": ["qwen3-32b-epp", "llm-d-qwen3/qwen3-32b-prefill"],
        "address": "http://qwen3-32b-epp.llm-d-qwen3",
    }


@given(KEYS, NAMESPACES)
def test_every_valid_model_key_gives_valid_names(key, namespace):
    names = Names(key, namespace)
    made = [names.deployment(role) for role in Role] + [names.hpa(role) for role in Role]
    made += [names.model_server_account, names.cache_claim, names.download_job("m", "r"), names.pool, names.router]
    made += [names.keda_account, names.keda_token, names.trigger_authentication, names.router_metrics_token]
    made += [names.quota, names.router_config("x"), names.envoy_config("x")]
    assert [name for name in made if not LABEL.fullmatch(name)] == []
    assert len(made) == len(set(made))
    assert max(len(names.deployment(role)) for role in Role) <= 46
    assert len(names.router_cluster_role("abcdef")) <= 253


@given(KEYS)
def test_a_pod_name_is_never_cut_and_its_endpoint_always_matches(key):
    names = Names(key, "n")
    for role in Role:
        # the longest ReplicaSet hash; a generated name keeps at most 58 characters before its own 5
        prefix = f"{names.deployment(role)}-5f7b9c8d4f-"
        assert len(prefix) <= 58
        pod = prefix + "x2x4z"
        assert re.fullmatch(promql.pod_pattern(names.deployment(role)), pod)
        assert re.fullmatch(promql.endpoint_pattern(names.deployment(role)), f"{pod}-rank-0")


@pytest.mark.parametrize(
    ("key", "rule"),
    [
        ("a" * 39, "at most 38 characters (this has 39)"),
        ("", "DNS label"),
        ("Qwen3", "DNS label"),
        ("3b", "first a letter"),
        ("qwen-", "last no '-'"),
        ("qwen3.5", "DNS label"),
        ("qwen3\n", "DNS label"),
    ],
)
def test_a_bad_model_key_is_refused_with_its_value_and_the_rule(key, rule):
    with pytest.raises(InvalidNameError, match=re.escape(repr(key))) as refused:
        Names(key, "n")
    assert rule in refused.value.rule


@pytest.mark.parametrize("namespace", ["", "Upper", "a.b", "-a", "a" * 64])
def test_a_bad_namespace_is_refused(namespace):
    with pytest.raises(InvalidNameError, match="namespace"):
        Names("m", namespace)


@pytest.mark.parametrize("suffix", ["", "UPPER", "a-b", "a" * 11])
def test_a_bad_stack_suffix_is_refused(suffix):
    with pytest.raises(InvalidNameError, match="suffix"):
        QWEN.keda_cluster_role(suffix)


@pytest.mark.parametrize("keys", [["qwen3", "qwen3-32b"], ["b", "a-2", "a"], ["same", "same"]])
def test_no_models_name_may_prefix_anothers(keys):
    with pytest.raises(PrefixedNameError, match="may prefix another's"):
        check_models(keys)


def test_different_names_are_accepted():
    check_models(["qwen3-32b", "qwen3-8b", "llama"])


def test_another_revision_or_content_is_another_object():
    assert QWEN.download_job("m", "1") != QWEN.download_job("m", "2")
    assert QWEN.router_config("a") != QWEN.router_config("b")


@pytest.mark.parametrize("role", list(Role))
def test_the_selectors_select_the_pods_of_their_role_alone(role):
    carried = labels.model_server(QWEN, role).items()
    assert labels.pool_selector(QWEN).items() <= carried
    assert labels.role_selector(QWEN, role).items() <= carried
    others = [other for other in Role if other is not role]
    assert not any(labels.role_selector(QWEN, other).items() <= carried for other in others)


def test_router_pods_are_selected_by_their_service_and_not_by_the_pool():
    carried = labels.router(QWEN).items()
    assert labels.router_selector(QWEN).items() <= carried
    assert not labels.pool_selector(QWEN).items() <= carried


def test_co_located_pods_say_prefill_decode_and_live_in_the_server_deployment():
    assert labels.model_server(QWEN, Role.BOTH) == {
        "app.kubernetes.io/name": "qwen3-32b-server",
        "app.kubernetes.io/instance": "qwen3-32b",
        "app.kubernetes.io/part-of": "llm-d",
        "app.kubernetes.io/managed-by": "pulumi",
        "llm-d.ai/model": "qwen3-32b",
        "llm-d.ai/role": "prefill-decode",
    }


def test_a_fleet_knows_its_pool_and_its_jobs():
    assert Fleet.of(QWEN, Role.DECODE) == Fleet(
        pool=Pool(name="qwen3-32b", namespace="llm-d-qwen3", router_job="qwen3-32b-epp"),
        role=Role.DECODE,
        deployment="qwen3-32b-decode",
        engine_job="llm-d-qwen3/qwen3-32b-decode",
    )
