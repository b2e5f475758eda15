"""How the endpoint picker is told to choose: its EndpointPickerConfig.

Plugins and profiles are the upstream guides' (pd-disaggregation and optimized-baseline, Aug 2026) with the picker
made explicit; V_P comes from the calibration record. The picker decodes strictly: an unknown parameter ends it at
start.
"""

from __future__ import annotations

import json
from typing import Any

from llmd.dialects import RouterDialect
from llmd.rates import Rates

FILE_NAME = "config.yaml"  # key of the ConfigMap
MAX_PREFIX_TOKENS = 131072  # the guides' value, and the default since router 0.9

_PICKER = "max-score-picker"


def prefill_decode(rates: Rates, router: RouterDialect) -> dict[str, Any]:
    """Configuration that splits every request between the prefill and the decode fleet."""
    plugins = [
        _plugin("always-disagg-pd-decider"),
        _plugin("disagg-profile-handler", deciders={"prefill": "always-disagg-pd-decider"}),
        _plugin("prefill-filter"),
        _plugin("decode-filter"),
        *_prefill_load(rates, router),
        _plugin("active-request-scorer"),
        _plugin(_PICKER),
    ]
    profiles = [
        _profile("prefill", "prefill-filter", "prefix-cache-affinity-filter", "token-load-scorer", _PICKER),
        _profile("decode", "decode-filter", "active-request-scorer", _PICKER),
    ]
    return _config(router, plugins, profiles)


def co_located(rates: Rates, router: RouterDialect) -> dict[str, Any]:
    """Configuration for one fleet that does both parts."""
    plugins = [*_prefill_load(rates, router), _plugin(_PICKER)]
    profiles = [_profile("default", "prefix-cache-affinity-filter", "token-load-scorer", _PICKER)]
    return _config(router, plugins, profiles)


def render(config: dict[str, Any]) -> str:
    """The configuration as text: indented JSON, which is YAML, ending in a newline."""
    return json.dumps(config, indent=2) + "\n"


def _prefill_load(rates: Rates, router: RouterDialect) -> list[dict[str, Any]]:
    return [
        _plugin("approx-prefix-cache-producer", maxPrefixTokensToMatch=MAX_PREFIX_TOKENS),
        # the queries select on this instance's name, so it is written out although it is the type's default
        _plugin("inflight-load-producer", name=router.inflight_producer),
        _plugin("prefix-cache-affinity-filter", peakPrefillThroughput=_number(rates.path_text)),
        _plugin("token-load-scorer"),
    ]


def _number(text: str) -> int | float:
    """The number whose JSON text is exactly `text`."""
    return float(text) if "." in text else int(text)


def _plugin(kind: str, *, name: str | None = None, **parameters: object) -> dict[str, Any]:
    plugin: dict[str, Any] = {"type": kind}
    if name is not None:
        plugin["name"] = name
    if parameters:
        plugin["parameters"] = parameters
    return plugin


def _profile(name: str, *plugins: str) -> dict[str, Any]:
    return {"name": name, "plugins": [{"pluginRef": plugin} for plugin in plugins]}


def _config(router: RouterDialect, plugins: list[dict[str, Any]], profiles: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "apiVersion": router.config_api_version,
        "kind": "EndpointPickerConfig",
        "plugins": plugins,
        "schedulingProfiles": profiles,
    }
