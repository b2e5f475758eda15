"""Which plugin types the stand-in has, and which parameters each takes.

Names and defaults are those of the real endpoint picker's code (August 2026).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from math import inf


class Role(Enum):
    """What a plugin does; only the first three may stand in a scheduling profile."""

    FILTER = "filter"
    SCORER = "scorer"
    PICKER = "picker"
    PROFILE_HANDLER = "profile handler"
    DECIDER = "decider"
    PRODUCER = "data producer"
    PASSIVE = "passive"  # accepted, checked, and without effect here


IN_PROFILES = (Role.FILTER, Role.SCORER, Role.PICKER)


class Kind(Enum):
    """JSON type of a parameter."""

    INTEGER = "an integer"
    NUMBER = "a number"
    BOOLEAN = "a boolean"
    STRING = "a string"
    STRINGS = "a list of strings"
    STRING_MAP = "an object of strings"
    OBJECTS = "a list of objects"


@dataclass(frozen=True)
class Parameter:
    """One parameter: its type, what an omitted one means, and the bounds of a number (inclusive)."""

    kind: Kind
    default: object = None
    least: float = -inf
    most: float = inf
    allowed: tuple[str, ...] = ()  # of a string; empty = any
    keys: tuple[str, ...] = ()  # of an object of strings
    only: object = None  # the single value that the stand-in can honour, where it lacks the rest


@dataclass(frozen=True)
class PluginType:
    """One plugin type."""

    role: Role
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    consumes_prefix_matches: bool = False
    consumes_inflight_load: bool = False


_PRODUCER_NAME = Parameter(Kind.STRING, "")
_STAGES = ("encode", "prefill", "decode")

ALWAYS_DISAGG = "always-disagg-pd-decider"
PREFIX_BASED = "prefix-based-pd-decider"
DISAGG_HANDLER = "disagg-profile-handler"
SINGLE_HANDLER = "single-profile-handler"
PREFILL_FILTER = "prefill-filter"
DECODE_FILTER = "decode-filter"
AFFINITY_FILTER = "prefix-cache-affinity-filter"
TOKEN_LOAD = "token-load-scorer"  # noqa: S105 - a plugin's name, no secret
ACTIVE_REQUEST = "active-request-scorer"
QUEUE = "queue-scorer"
KV_UTILIZATION = "kv-cache-utilization-scorer"
PREFIX_SCORER = "prefix-cache-scorer"
PREFIX_PRODUCER = "approx-prefix-cache-producer"
INFLIGHT_PRODUCER = "inflight-load-producer"

PLUGIN_TYPES: dict[str, PluginType] = {
    ALWAYS_DISAGG: PluginType(Role.DECIDER),
    PREFIX_BASED: PluginType(
        Role.DECIDER,
        {
            "nonCachedTokens": Parameter(Kind.INTEGER, 0, least=0),  # 0: never disaggregate
            "promptTokens": Parameter(Kind.INTEGER, 0, least=0),
        },
        consumes_prefix_matches=True,
    ),
    DISAGG_HANDLER: PluginType(
        Role.PROFILE_HANDLER,
        {
            "deciders": Parameter(Kind.STRING_MAP, {}, keys=("encode", "prefill")),
            "profiles": Parameter(Kind.STRING_MAP, {}, keys=_STAGES),
            "stageOrder": Parameter(Kind.STRINGS, []),
        },
    ),
    SINGLE_HANDLER: PluginType(Role.PROFILE_HANDLER),
    PREFILL_FILTER: PluginType(Role.FILTER),
    DECODE_FILTER: PluginType(Role.FILTER),
    AFFINITY_FILTER: PluginType(
        Role.FILTER,
        {
            "affinityThreshold": Parameter(Kind.NUMBER, 0.80, least=0, most=1),
            "explorationProbability": Parameter(Kind.NUMBER, 0.0, least=0, most=1),
            "maxTTFTPenaltyMs": Parameter(Kind.NUMBER, 18000.0, least=0),  # 0: always stick
            "ttftSource": Parameter(
                Kind.STRING,
                "prefillThroughput",
                allowed=("prefillThroughput", "latencyPredictor"),
                only="prefillThroughput",
            ),
            "peakPrefillThroughput": Parameter(Kind.NUMBER, 15928.0, least=1e-9),  # tokens/s; zero or less is refused
        },
        consumes_prefix_matches=True,
        consumes_inflight_load=True,
    ),
    TOKEN_LOAD: PluginType(
        Role.SCORER,
        {
            "queueThresholdTokens": Parameter(Kind.INTEGER, 4_194_304, least=1),  # 128 requests of 32 Ki tokens
            "inFlightLoadProducerName": _PRODUCER_NAME,
        },
        consumes_inflight_load=True,
    ),
    ACTIVE_REQUEST: PluginType(
        Role.SCORER,
        {
            "idleThreshold": Parameter(Kind.INTEGER, 0, least=0),
            "maxBusyScore": Parameter(Kind.NUMBER, 1.0, least=0, most=1),
            "inFlightLoadProducerName": _PRODUCER_NAME,
        },
        consumes_inflight_load=True,
    ),
    QUEUE: PluginType(Role.SCORER),
    KV_UTILIZATION: PluginType(Role.SCORER),
    PREFIX_SCORER: PluginType(
        Role.SCORER, {"prefixMatchInfoProducerName": _PRODUCER_NAME}, consumes_prefix_matches=True
    ),
    "max-score-picker": PluginType(Role.PICKER, {"maxNumOfEndpoints": Parameter(Kind.INTEGER, 1, least=1, only=1)}),
    PREFIX_PRODUCER: PluginType(
        Role.PRODUCER,
        {
            "autoTune": Parameter(
                Kind.BOOLEAN, default=True
            ),  # block size and capacity from the engine, once it is scraped
            "blockSizeTokens": Parameter(Kind.INTEGER, 16, least=1),
            "lruCapacityPerServer": Parameter(Kind.INTEGER, 31_250, least=1),
            "maxPrefixTokensToMatch": Parameter(Kind.INTEGER, 131_072, least=0),  # 0: the bound in blocks counts
            "maxPrefixBlocksToMatch": Parameter(Kind.INTEGER, 0, least=0),  # 0: no bound
        },
    ),
    INFLIGHT_PRODUCER: PluginType(
        Role.PRODUCER,
        {
            "addEstimatedOutputTokens": Parameter(Kind.BOOLEAN, default=False, only=False),
            "outputRatio": Parameter(Kind.NUMBER, 1.5, least=0),
            "maxEstimatedOutputTokens": Parameter(Kind.INTEGER, None, least=0),
            "prefixMatchInfoProducerName": _PRODUCER_NAME,
            "syncCrossReplicaState": Parameter(Kind.BOOLEAN, default=True),
        },
    ),
    "metrics-data-source": PluginType(
        Role.PASSIVE,
        {
            "scheme": Parameter(Kind.STRING, "http", allowed=("http", "https"), only="http"),
            "path": Parameter(Kind.STRING, "/metrics", only="/metrics"),
            "insecureSkipVerify": Parameter(Kind.BOOLEAN, default=True),
        },
    ),
    "core-metrics-extractor": PluginType(
        Role.PASSIVE,
        {
            "defaultEngine": Parameter(Kind.STRING, "vllm", only="vllm"),
            "engineLabelKey": Parameter(Kind.STRING, ""),
            "engineConfigs": Parameter(Kind.OBJECTS, []),
        },
    ),
    "utilization-detector": PluginType(
        Role.PASSIVE,
        {
            "queueDepthThreshold": Parameter(Kind.INTEGER, 5, least=0),
            "kvCacheUtilThreshold": Parameter(Kind.NUMBER, 0.8, least=0, most=1),
            "metricsStalenessThreshold": Parameter(Kind.STRING, "200ms"),
        },
    ),
    "openai-parser": PluginType(Role.PASSIVE),
    # Both set headers that disagg-profile-handler sets itself; 0.11 no longer has them.
    "disagg-headers-handler": PluginType(
        Role.PASSIVE, {"prefillProfile": Parameter(Kind.STRING, ""), "encodeProfile": Parameter(Kind.STRING, "")}
    ),
    "prefill-header-handler": PluginType(Role.PASSIVE, {"prefillProfile": Parameter(Kind.STRING, "")}),
}
