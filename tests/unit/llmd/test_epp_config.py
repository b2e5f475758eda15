"""Is the picker configured as the upstream guides do, with our V_P?"""

import json

import pytest
import yaml

from llmd import dialects, epp_config
from llmd.rates import RateMode, Rates

PUBLISHED = Rates(path=2696.5, prefill=15965, mode=RateMode.PINNED, source="a run")
NEW, OLD = dialects.router("0.11"), dialects.router("0.10")


def test_prefill_decode_has_the_guides_plugins_and_profiles():
    assert epp_config.prefill_decode(PUBLISHED, NEW) == {
        "apiVersion": "llm-d.ai/v1",
        "kind": "EndpointPickerConfig",
        "plugins": [
            {"type": "always-disagg-pd-decider"},
            {"type": "disagg-profile-handler", "parameters": {"deciders": {"prefill": "always-disagg-pd-decider"}}},
            {"type": "prefill-filter"},
            {"type": "decode-filter"},
            {"type": "approx-prefix-cache-producer", "parameters": {"maxPrefixTokensToMatch": 131072}},
            {"type": "inflight-load-producer", "name": "inflight-load-producer"},
            {"type": "prefix-cache-affinity-filter", "parameters": {"peakPrefillThroughput": 2696.5}},
            {"type": "token-load-scorer"},
            {"type": "active-request-scorer"},
            {"type": "max-score-picker"},
        ],
        "schedulingProfiles": [
            {
                "name": "prefill",
                "plugins": [
                    {"pluginRef": "prefill-filter"},
                    {"pluginRef": "prefix-cache-affinity-filter"},
                    {"pluginRef": "token-load-scorer"},
                    {"pluginRef": "max-score-picker"},
                ],
            },
            {
                "name": "decode",
                "plugins": [
                    {"pluginRef": "decode-filter"},
                    {"pluginRef": "active-request-scorer"},
                    {"pluginRef": "max-score-picker"},
                ],
            },
        ],
    }


def test_co_located_has_one_profile_and_no_role_filter():
    config = epp_config.co_located(PUBLISHED, NEW)
    assert [plugin["type"] for plugin in config["plugins"]] == [
        "approx-prefix-cache-producer",
        "inflight-load-producer",
        "prefix-cache-affinity-filter",
        "token-load-scorer",
        "max-score-picker",
    ]
    assert [profile["name"] for profile in config["schedulingProfiles"]] == ["default"]


@pytest.mark.parametrize("build", [epp_config.prefill_decode, epp_config.co_located])
@pytest.mark.parametrize("router", [OLD, NEW], ids=["0.10", "0.11"])
def test_a_config_is_consistent_and_reads_back_from_its_text(build, router):
    config = build(PUBLISHED, router)
    assert config["apiVersion"] == router.config_api_version
    names = {plugin.get("name", plugin["type"]) for plugin in config["plugins"]}
    used = {ref["pluginRef"] for profile in config["schedulingProfiles"] for ref in profile["plugins"]}
    assert used <= names
    text = epp_config.render(config)
    assert yaml.safe_load(text) == json.loads(text) == config
    assert text.endswith("}\n")
    assert build(PUBLISHED, router) == config  # the ConfigMap's name is the hash of its text
