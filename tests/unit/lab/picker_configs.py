"""Endpoint picker configurations as the upstream guides have them (August 2026)."""

from typing import Any

PREFILL_DECODE: dict[str, Any] = {
    "apiVersion": "llm-d.ai/v1",
    "kind": "EndpointPickerConfig",
    "plugins": [
        {"type": "always-disagg-pd-decider"},
        {"type": "disagg-profile-handler", "parameters": {"deciders": {"prefill": "always-disagg-pd-decider"}}},
        {"type": "prefill-filter"},
        {"type": "decode-filter"},
        {"type": "approx-prefix-cache-producer", "parameters": {"maxPrefixTokensToMatch": 131072}},
        {"type": "inflight-load-producer"},
        {"type": "prefix-cache-affinity-filter", "parameters": {"peakPrefillThroughput": 33821}},
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
CO_LOCATED: dict[str, Any] = {
    "apiVersion": "llm-d.ai/v1",
    "kind": "EndpointPickerConfig",
    "plugins": [
        {"type": "approx-prefix-cache-producer"},
        {"type": "inflight-load-producer"},
        {"type": "prefix-cache-affinity-filter"},
        {"type": "token-load-scorer"},
    ],
    "schedulingProfiles": [
        {
            "name": "default",
            "plugins": [{"pluginRef": "prefix-cache-affinity-filter"}, {"pluginRef": "token-load-scorer"}],
        }
    ],
}
