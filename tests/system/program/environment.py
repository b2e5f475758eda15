"""The environment that the live tests deploy: `dev`, and one model more whose link is its bottleneck.

Each model has one bottleneck, so that load on it shows one signal: `tiny-pd` its prefill engine, `slow-link` the
transfer into decode, `tiny-co` its only fleet.
"""

import copy
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]
PREFILL, SLOW_LINK = 8000, 3000  # tokens/s; the link of `dev` is faster than its prefill
MAXIMUM = 3
# No multiple of the HPA's 15 s: a policy or window must not end on a sync, where a second of jitter would decide.
BEHAVIOR = {
    "scaleUp": {"pods": 1, "periodSeconds": 20, "stabilizationSeconds": 0},
    "scaleDown": {"pods": 1, "periodSeconds": 20, "stabilizationSeconds": 40},
}


def config() -> dict[str, Any]:
    """The stack's config file, from `Pulumi.dev.yaml`."""
    settings = yaml.safe_load((ROOT / "Pulumi.dev.yaml").read_text())["config"]
    models = settings["llm-d:models"]
    slow = copy.deepcopy(models["tiny-pd"])
    slow["namespace"]["name"], slow["router"]["nodePort"] = "llm-d-slow-link", 30082
    models["slow-link"] = slow
    _link(slow, SLOW_LINK)
    for model in models.values():
        model["autoscaling"] = {"behavior": BEHAVIOR}
        for fleet in _fleets(model):
            fleet["replicas"] = {"min": 1, "max": MAXIMUM}
    settings["llm-d:accelerators"]["sim"] |= {"budget": 16, "headroom": 1}
    return {"config": settings}


def _link(model: dict[str, Any], transfer: int) -> None:
    for fleet in _fleets(model):
        fleet["extraEnv"]["SIM_TRANSFER_TOKENS_PER_SECOND"] = str(transfer)
    path = round(1 / (1 / PREFILL + 1 / transfer), 3)
    model["calibration"] |= {"prefillThroughput": PREFILL, "pathThroughput": path}


def _fleets(model: dict[str, Any]) -> list[dict[str, Any]]:
    return [part for role, part in model["topology"].items() if role in {"prefill", "decode", "server"}]
