"""InferencePool: the API that ties model servers to an endpoint picker; definitions only, the picker controls."""

from lab.addons.addon import Addon, Manifest, Site
from lab.addons.manifests import read

_MODULE = "sigs.k8s.io/gateway-api-inference-extension"


def _objects(site: Site) -> list[Manifest]:
    definitions = site.module_dir("inference-extension", _MODULE) / "config" / "crd" / "bases"
    return read(*sorted(definitions.glob("*.yaml")))


ADDON = Addon(
    name="inference-pool",
    objects=_objects,
    served={
        "inference.networking.k8s.io/v1": ("inferencepools",),
        "inference.networking.x-k8s.io/v1alpha1": ("inferencepoolimports",),
        "inference.networking.x-k8s.io/v1alpha2": ("inferenceobjectives", "inferencemodelrewrites"),
    },
)
