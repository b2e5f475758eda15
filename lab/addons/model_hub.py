"""The model hub stand-in: `http://model-hub.model-hub`, where model servers and download Jobs fetch tiny models."""

from lab.addons.addon import Addon, Manifest, Site, Workload
from lab.addons.manifests import deployment, namespace, resources, service, soon_ready

IMAGE = "lab.llm-d.ai/model-hub:1"

_NAME = "model-hub"
_PORT = 8000


def _objects(_: Site) -> list[Manifest]:
    container = {
        "image": IMAGE,
        "ports": [{"name": "http", "containerPort": _PORT}],
        "readinessProbe": soon_ready({"httpGet": {"path": "/health", "port": "http"}}),
        "resources": resources("24Mi", "128Mi"),
        "volumeMounts": [{"name": "scratch", "mountPath": "/tmp"}],  # noqa: S108 - the pod's own
    }
    selector = {"app.kubernetes.io/name": _NAME}
    return [
        namespace(_NAME),
        deployment(
            _NAME,
            _NAME,
            container,
            automountServiceAccountToken=False,
            volumes=[{"name": "scratch", "emptyDir": {"sizeLimit": "64Mi"}}],
        ),
        service(_NAME, _NAME, selector, [{"name": "http", "port": 80, "targetPort": "http"}]),
    ]


ADDON = Addon(name="model-hub", objects=_objects, workloads=(Workload("Deployment", _NAME, _NAME),))
