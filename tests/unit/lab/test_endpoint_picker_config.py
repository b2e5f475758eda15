"""The endpoint picker's configuration, read strictly."""

import copy
from typing import Any

import pytest
import yaml

from lab.stand_ins.endpoint_picker.config import load
from lab.stand_ins.endpoint_picker.dialect import DIALECTS, UnknownVersionError, dialect
from lab.stand_ins.endpoint_picker.strict import ConfigError
from tests.unit.lab.picker_configs import CO_LOCATED, PREFILL_DECODE

V0_10, V0_11 = DIALECTS["0.10"], DIALECTS["0.11"]


def loaded(document: dict[str, Any], speaks=V0_11):
    return load(yaml.safe_dump(document), speaks)


def changed(document: dict[str, Any], *path: Any, value: Any) -> dict[str, Any]:
    """`document` with the value at `path` set; an index one past a list's end appends."""
    result = copy.deepcopy(document)
    place: Any = result
    for step in path[:-1]:
        place = place[step]
    if isinstance(place, list) and path[-1] == len(place):
        place.append(value)
    else:
        place[path[-1]] = value
    return result


def test_the_guides_prefill_decode_configuration_loads():
    config = loaded(PREFILL_DECODE)
    assert (config.decode_profile, config.prefill_profile) == ("decode", "prefill")
    assert config.prefill_decider.name == "always-disagg-pd-decider"
    prefill = config.profiles["prefill"]
    assert [plugin.name for plugin in prefill.filters] == ["prefill-filter", "prefix-cache-affinity-filter"]
    assert [(plugin.name, weight) for plugin, weight in prefill.scorers] == [("token-load-scorer", 1.0)]
    assert prefill.filters[1].parameters == {
        "affinityThreshold": 0.8,
        "explorationProbability": 0.0,
        "maxTTFTPenaltyMs": 18000.0,
        "ttftSource": "prefillThroughput",
        "peakPrefillThroughput": 33821,
    }
    assert config.inflight_producer.name == "inflight-load-producer"
    assert config.prefix_producer.parameters["maxPrefixTokensToMatch"] == 131072
    assert config.warnings == ()


def test_the_guides_co_located_configuration_loads_with_what_the_loader_adds():
    config = loaded(CO_LOCATED)
    assert config.handler.type == "single-profile-handler"
    assert config.prefill_decider is None
    assert config.profiles["default"].filters[0].parameters["peakPrefillThroughput"] == 15928


def test_no_configuration_means_the_charts_default_scorers():
    config = load("", V0_11)
    scorers = {plugin.type: weight for plugin, weight in config.profiles["default"].scorers}
    assert scorers == {"queue-scorer": 2, "kv-cache-utilization-scorer": 2, "prefix-cache-scorer": 3}
    assert config.inflight_producer is None  # nothing asks for it, so there are no in-flight series


def test_producers_that_a_plugin_needs_are_added():
    document = changed(CO_LOCATED, "plugins", value=CO_LOCATED["plugins"][2:])
    config = loaded(document)
    assert config.prefix_producer.type == "approx-prefix-cache-producer"
    assert config.inflight_producer.name == "inflight-load-producer"


def test_an_instance_has_its_own_name():
    document = changed(PREFILL_DECODE, "plugins", 5, value={"type": "inflight-load-producer", "name": "books"})
    assert loaded(document).inflight_producer.name == "books"


@pytest.mark.parametrize(
    ("version", "speaks", "outcome"),
    [
        ("llm-d.ai/v1", V0_11, "silent"),
        ("llm-d.ai/v1alpha1", V0_11, "warned"),
        ("inference.networking.x-k8s.io/v1alpha1", V0_11, "refused"),
        ("llm-d.ai/v1alpha1", V0_10, "silent"),
        ("inference.networking.x-k8s.io/v1alpha1", V0_10, "warned"),
        ("llm-d.ai/v1", V0_10, "refused"),
    ],
)
def test_api_versions_by_router_version(version, speaks, outcome):
    document = changed(PREFILL_DECODE, "apiVersion", value=version)
    if outcome == "refused":
        with pytest.raises(ConfigError, match="is not served by router"):
            loaded(document, speaks)
    else:
        assert bool(loaded(document, speaks).warnings) is (outcome == "warned")


def test_plugins_that_the_newer_router_removed_load_in_the_older_one_only():
    document = changed(PREFILL_DECODE, "plugins", 10, value={"type": "disagg-headers-handler"})
    old = changed(document, "apiVersion", value="llm-d.ai/v1alpha1")
    assert loaded(old, V0_10).handler.type == "disagg-profile-handler"
    with pytest.raises(ConfigError, match=r"plugins\[10\].type: 'disagg-headers-handler' was removed"):
        loaded(document, V0_11)


AFFINITY = ("plugins", 6, "parameters")
REFUSED = [
    (("kind",), "Other", "kind: must be EndpointPickerConfig"),
    (("extra",), 1, "configuration: unknown field 'extra'"),
    (("saturationDetector",), {"pluginRef": "x"}, "unknown field 'saturationDetector'"),  # v1 moved it
    (("flowControl",), {}, "flowControl: this stand-in has no flow control"),
    (("featureGates",), ["flowControl"], "no flow control"),
    (("featureGates",), ["warpDrive"], "featureGates[0]: unknown gate 'warpDrive'"),
    (("plugins",), {}, "plugins: must be a list"),
    (("plugins", 0, "type"), "no-such-plugin", "plugins[0].type: unknown plugin type 'no-such-plugin'"),
    (("plugins", 0, "weight"), 2, "plugins[0]: unknown field 'weight'"),
    (("plugins", 0, "parameters"), {"x": 1}, "plugins[0](always-disagg-pd-decider).parameters: unknown field 'x'"),
    (("plugins", 10), {"type": "prefill-filter"}, "'prefill-filter' is declared twice"),
    ((*AFFINITY, "peakPrefilThroughput"), 1, "unknown field 'peakPrefilThroughput'"),
    ((*AFFINITY, "peakPrefillThroughput"), "33821", "must be a number, not '33821'"),
    ((*AFFINITY, "peakPrefillThroughput"), True, "must be a number, not True"),
    ((*AFFINITY, "peakPrefillThroughput"), 0, "out of range"),
    ((*AFFINITY, "peakPrefillThroughput"), float("nan"), "out of range"),
    ((*AFFINITY, "affinityThreshold"), 1.5, "out of range"),
    ((*AFFINITY, "ttftSource"), "guess", "not one of prefillThroughput, latencyPredictor"),
    ((*AFFINITY, "ttftSource"), "latencyPredictor", "this stand-in has 'prefillThroughput' only"),
    (("plugins", 4, "parameters", "maxPrefixTokensToMatch"), 1.5, "must be an integer, not 1.5"),
    (("plugins", 5, "parameters"), {"addEstimatedOutputTokens": True}, "this stand-in has False only"),
    (("plugins", 9, "parameters"), {"maxNumOfEndpoints": 2}, "this stand-in has 1 only"),
    (
        ("plugins", 5, "parameters"),
        {"prefixMatchInfoProducerName": "x"},
        "no approx-prefix-cache-producer is named",
    ),
    (("plugins", 1, "parameters", "deciders", "prefill"), "nobody", "no decider is named 'nobody'"),
    (("plugins", 1, "parameters", "deciders", "decode"), "x", "unknown field 'decode'"),
    (("plugins", 1, "parameters", "deciders", "encode"), "always-disagg-pd-decider", "no encode stage"),
    (
        ("plugins", 1, "parameters", "profiles"),
        {"decode": "serve"},
        "no scheduling profile 'serve' for the decode",
    ),
    (("plugins", 10), {"type": "single-profile-handler"}, "2 profile handlers"),
    (("plugins", 10), {"type": "inflight-load-producer", "name": "b"}, "takes one inflight-load-producer"),
    (("schedulingProfiles", 1, "name"), "prefill", "schedulingProfiles[1].name: 'prefill' is declared twice"),
    (("schedulingProfiles", 0, "plugins", 0, "pluginRef"), "nobody", "no plugin is named 'nobody'"),
    (("schedulingProfiles", 0, "plugins", 0, "pluginRef"), "inflight-load-producer", "does not belong in a profile"),
    (("schedulingProfiles", 0, "plugins", 0, "weigth"), 1, "unknown field 'weigth'"),
    (("schedulingProfiles", 0, "plugins", 2, "weight"), "2", "weight: must be a number"),
    (("schedulingProfiles", 0, "plugins", 4), {"pluginRef": "max-score-picker"}, "2 pickers"),
    (("requestHandler",), {"parsers": [{"pluginRef": "nobody"}]}, "requestHandler.parsers[0].pluginRef"),
    (("dataLayer",), {"discovery": {"pluginRef": "file"}}, "dataLayer: unknown field 'discovery'"),
]


@pytest.mark.parametrize(("path", "value", "message"), REFUSED, ids=[row[2] for row in REFUSED])
def test_refusals_name_the_place(path, value, message):
    with pytest.raises(ConfigError) as refused:
        loaded(changed(PREFILL_DECODE, *path, value=value))
    assert message in str(refused.value)


def test_a_decider_is_declared_before_its_handler():
    plugins = PREFILL_DECODE["plugins"]
    with pytest.raises(ConfigError, match="declare 'always-disagg-pd-decider' before 'disagg-profile-handler'"):
        loaded(changed(PREFILL_DECODE, "plugins", value=[plugins[1], plugins[0], *plugins[2:]]))


def test_several_profiles_need_a_handler():
    with pytest.raises(ConfigError, match="2 scheduling profiles and no profile handler"):
        loaded(changed(PREFILL_DECODE, "plugins", value=PREFILL_DECODE["plugins"][2:]))


@pytest.mark.parametrize("text", ["[1]", "a: b: c", "kind: x\nkind: y", "just text"])
def test_what_is_not_an_object_of_unique_keys_is_refused(text):
    with pytest.raises(ConfigError):
        load(text, V0_11)


def test_a_weight_of_zero_stays_zero():
    config = loaded(changed(PREFILL_DECODE, "schedulingProfiles", 0, "plugins", 2, "weight", value=0))
    assert config.profiles["prefill"].scorers[0][1] == 0.0


def test_without_written_profiles_there_is_one_of_everything():
    document = changed(CO_LOCATED, "schedulingProfiles", value=[])
    assert [plugin.type for plugin in loaded(document).profiles["default"].filters] == ["prefix-cache-affinity-filter"]


def test_an_unknown_router_version_is_named():
    with pytest.raises(UnknownVersionError, match=r"'0.9': this stand-in speaks 0.10, 0.11"):
        dialect("0.9")
