"""Which endpoints serve one request: profiles of filters, weighted scorers and a picker, run by the profile handler."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from lab.stand_ins.endpoint_picker import plugin_types as types
from lab.stand_ins.endpoint_picker.config import PickerConfig, Plugin, Profile
from lab.stand_ins.endpoint_picker.datastore import Endpoint
from lab.stand_ins.endpoint_picker.inflight import Load

ROLE_LABEL = "llm-d.ai/role"
_PREFILL_ROLES = {"prefill", "encode-prefill", "prefill-decode", "both", "encode-prefill-decode"}
_DECODE_ROLES = {"decode", "prefill-decode", "both", "encode-prefill-decode", None}  # None: a pod without the label

PREFILL_DECODE = "prefill-decode"
DECODE_ONLY = "decode-only"


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """An endpoint and what is known of it for this request.

    Attributes:
        load: In flight, by this picker's own books.
        prefix_match: Share of the prompt's blocks that it holds, 0 to 1.
        uncached_tokens: Prompt tokens that it would have to compute.
        waiting: Requests waiting in its engine, as last scraped.
        kv_usage: KV cache in use, 0 to 1, as last scraped.
    """

    endpoint: Endpoint
    load: Load
    prefix_match: float = 0.0
    uncached_tokens: int = 0
    waiting: float = 0.0
    kv_usage: float = 0.0


@dataclass(frozen=True)
class Decision:
    """The outcome: one candidate for each profile that ran and found one.

    Attributes:
        primary: Gets the request itself.
        prefill: Does the prefill leg first, if there is one.
        chosen: By profile name, `primary` and `prefill` included.
        decision_type: As the disaggregation counter names it; None without a disaggregation handler.
    """

    primary: Candidate
    prefill: Candidate | None
    chosen: Mapping[str, Candidate]
    decision_type: str | None


class Scheduler:
    """A checked configuration, ready to schedule. Ties are broken by `random`."""

    def __init__(self, config: PickerConfig, random: Random) -> None:
        self._config = config
        self._random = random

    def schedule(self, candidates: Sequence[Candidate], prompt_tokens: int) -> Decision | None:
        """Choose for one request; None when no endpoint can take it."""
        config = self._config
        primary = self._run(config.profiles[config.decode_profile], candidates)
        if primary is None:
            return None
        chosen = {config.decode_profile: primary}
        if config.handler.type != types.DISAGG_HANDLER:
            return Decision(primary, None, chosen, None)
        prefill = None
        if config.prefill_decider and _disaggregates(config.prefill_decider, primary, prompt_tokens):
            # Nobody to prefill is no failure: the decode side then does both.
            prefill = self._run(config.profiles[config.prefill_profile], candidates)
        if prefill is None:
            return Decision(primary, None, chosen, DECODE_ONLY)
        return Decision(primary, prefill, chosen | {config.prefill_profile: prefill}, PREFILL_DECODE)

    def _run(self, profile: Profile, candidates: Sequence[Candidate]) -> Candidate | None:
        """One profile: filter, score, pick."""
        left = list(candidates)
        for plugin in profile.filters:
            left = _FILTERS[plugin.type](plugin, left, self._random)
        if not left:
            return None
        totals = [0.0] * len(left)
        for plugin, weight in profile.scorers:
            for index, score in enumerate(_SCORERS[plugin.type](plugin, left)):
                totals[index] += weight * min(1.0, max(0.0, score))
        best = max(totals)
        return self._random.choice([item for item, total in zip(left, totals, strict=True) if total == best])


def _disaggregates(decider: Plugin, decode: Candidate, prompt_tokens: int) -> bool:
    """Whether a prefill leg runs before `decode`."""
    if decider.type == types.ALWAYS_DISAGG:
        return True
    threshold = decider.number("nonCachedTokens")
    return 0 < threshold <= decode.uncached_tokens and prompt_tokens >= decider.number("promptTokens")


def _prefill_role(_plugin: Plugin, candidates: list[Candidate], _random: Random) -> list[Candidate]:
    return [item for item in candidates if item.endpoint.labels.get(ROLE_LABEL) in _PREFILL_ROLES]


def _decode_role(_plugin: Plugin, candidates: list[Candidate], _random: Random) -> list[Candidate]:
    return [item for item in candidates if item.endpoint.labels.get(ROLE_LABEL) in _DECODE_ROLES]


def _prefix_affinity(plugin: Plugin, candidates: list[Candidate], random: Random) -> list[Candidate]:
    """Keep those that hold most of the prompt, unless their queue would cost more time than the cache saves."""
    if random.random() < plugin.number("explorationProbability"):
        return candidates
    threshold = plugin.number("affinityThreshold")
    sticky = [item for item in candidates if item.prefix_match >= threshold]
    others = [item for item in candidates if item.prefix_match < threshold]
    if not sticky or not others:
        return candidates
    bound = plugin.number("maxTTFTPenaltyMs")
    if bound:
        extra = min(item.load.tokens for item in sticky) - min(item.load.tokens for item in others)
        if 1000 * extra / plugin.number("peakPrefillThroughput") > bound:
            return candidates
    return sticky


def _token_load(plugin: Plugin, candidates: list[Candidate]) -> list[float]:
    full = plugin.number("queueThresholdTokens")
    return [1.0 - item.load.tokens / full for item in candidates]


def _active_requests(plugin: Plugin, candidates: list[Candidate]) -> list[float]:
    idle, highest = plugin.number("idleThreshold"), plugin.number("maxBusyScore")
    most = max(item.load.requests for item in candidates)
    return [1.0 if item.load.requests <= idle else highest * (most - item.load.requests) / most for item in candidates]


def _queue(_plugin: Plugin, candidates: list[Candidate]) -> list[float]:
    least, most = min(item.waiting for item in candidates), max(item.waiting for item in candidates)
    return [1.0 if most == least else (most - item.waiting) / (most - least) for item in candidates]


def _kv_utilization(_plugin: Plugin, candidates: list[Candidate]) -> list[float]:
    return [1.0 - item.kv_usage for item in candidates]


def _prefix_score(_plugin: Plugin, candidates: list[Candidate]) -> list[float]:
    return [item.prefix_match for item in candidates]


_FILTERS: dict[str, Callable[[Plugin, list[Candidate], Random], list[Candidate]]] = {
    types.PREFILL_FILTER: _prefill_role,
    types.DECODE_FILTER: _decode_role,
    types.AFFINITY_FILTER: _prefix_affinity,
}
_SCORERS: dict[str, Callable[[Plugin, list[Candidate]], list[float]]] = {
    types.TOKEN_LOAD: _token_load,
    types.ACTIVE_REQUEST: _active_requests,
    types.QUEUE: _queue,
    types.KV_UTILIZATION: _kv_utilization,
    types.PREFIX_SCORER: _prefix_score,
}
