"""What differs between the router releases that the stand-in can be.

The image says which one it is in the environment variable `STAND_IN_ROUTER_VERSION`.
"""

from dataclasses import dataclass

ENVIRONMENT_VARIABLE = "STAND_IN_ROUTER_VERSION"


class UnknownVersionError(ValueError):
    """A router version that the stand-in does not speak."""


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """One release of the router.

    Attributes:
        version: Major and minor number.
        api_versions: `apiVersion` values of the configuration file that load silently.
        deprecated_api_versions: Those that load with a warning.
        prunes_departed_series: In-flight series of an endpoint are deleted when it leaves; 0.10 exports them until
            the process ends.
        legacy_metric_names: Pool and decision metrics are exported under their earlier names too.
        removed_plugin_types: Types that this release no longer has, each with what replaced it.
    """

    version: str
    api_versions: tuple[str, ...]
    deprecated_api_versions: tuple[str, ...]
    prunes_departed_series: bool
    legacy_metric_names: bool
    removed_plugin_types: dict[str, str]


_REMOVED_IN_0_11 = {
    "by-label": "label-selector-filter",
    "by-label-selector": "label-selector-filter",
    "disagg-headers-handler": "disagg-profile-handler",
    "prefill-header-handler": "disagg-profile-handler",
    "tokenizer": "token-producer",
    "pd-profile-handler": "disagg-profile-handler",
}

DIALECTS = {
    "0.10": Dialect(
        version="0.10",
        api_versions=("llm-d.ai/v1alpha1",),
        deprecated_api_versions=("inference.networking.x-k8s.io/v1alpha1",),
        prunes_departed_series=False,
        legacy_metric_names=True,
        removed_plugin_types={},
    ),
    "0.11": Dialect(
        version="0.11",
        api_versions=("llm-d.ai/v1",),
        deprecated_api_versions=("llm-d.ai/v1alpha1",),  # 0.11 converts it and says so
        prunes_departed_series=True,
        legacy_metric_names=False,
        removed_plugin_types=_REMOVED_IN_0_11,
    ),
}


def dialect(version: str) -> Dialect:
    """The release named `version` (`0.10`, `0.11`).

    Raises:
        UnknownVersionError: The stand-in does not speak it.
    """
    try:
        return DIALECTS[version]
    except KeyError:
        known = ", ".join(DIALECTS)
        raise UnknownVersionError(f"{ENVIRONMENT_VARIABLE}={version!r}: this stand-in speaks {known}") from None
