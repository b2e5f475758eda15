"""Does each version of the router and the engine speak its own dialect?"""

import pytest

from llmd import dialects
from llmd.dialects import UnknownDialectError
from llmd.names import Names
from llmd.pool import Pool
from llmd.router import picker_arguments, sidecar_arguments


@pytest.mark.parametrize(
    ("version", "api_version", "secure_flag", "prunes"),
    [
        ("0.10", "llm-d.ai/v1alpha1", "--secure-proxy", False),
        ("0.11", "llm-d.ai/v1", "--secure-serving", True),
    ],
)
def test_the_router_dialects_differ_where_upstream_does(version, api_version, secure_flag, prunes):
    router = dialects.router(version)
    assert (router.config_api_version, router.sidecar_secure_flag, router.prunes_inflight) == (
        api_version,
        secure_flag,
        prunes,
    )
    assert f"{secure_flag}=false" in sidecar_arguments(router)


@pytest.mark.parametrize("spelling", ["0.11", "v0.11", "0.11.0", "v0.11.2"])
def test_a_patch_release_speaks_its_minor_versions_dialect(spelling):
    assert dialects.router(spelling) == dialects.router("0.11")


@pytest.mark.parametrize("version", ["0.9", "0.12", "1", "", "latest", "0.1"])
def test_an_unknown_router_version_lists_the_known(version):
    with pytest.raises(UnknownDialectError, match=r"known: 0\.10, 0\.11"):
        dialects.router(version)


def test_an_unknown_engine_or_version_lists_the_known():
    with pytest.raises(UnknownDialectError, match="engine 'sglang' is unknown; known: vllm"):
        dialects.engine("sglang", "0.5")
    with pytest.raises(UnknownDialectError, match=r"vllm version '0\.8' is unknown; known: .*0\.27"):
        dialects.engine("vllm", "0.8")


def test_vllm_is_asked_by_the_names_it_has_kept_since_0_12():
    engine = dialects.engine("vllm", "0.27.1")
    assert (engine.kv_usage, engine.running, engine.waiting, engine.waiting_by_reason) == (
        "vllm:kv_cache_usage_perc",
        "vllm:num_requests_running",
        "vllm:num_requests_waiting",
        "vllm:num_requests_waiting_by_reason",
    )


def test_the_sidecar_listens_where_the_pool_looks_and_speaks_to_the_engine_behind_it():
    assert sidecar_arguments(dialects.router("0.11")) == [
        "--port=8000",
        "--model-server-port=8200",
        "--kv-connector=nixlv2",
        "--secure-serving=false",
        "--zap-log-level=1",
    ]


def test_the_picker_serves_one_pool_and_guards_its_metrics():
    given = picker_arguments(Pool.of(Names("m", "ns")), config_path="/config/config.yaml", drain_seconds=66)
    assert {
        "--pool-name=m",
        "--pool-namespace=ns",
        "--config-file=/config/config.yaml",
        "--metrics-endpoint-auth=true",
        "--drain-timeout=66s",
    } <= set(given)
