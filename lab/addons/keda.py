"""KEDA 2.21 from its own manifests: operator, metrics API server, admission webhooks, in namespace `keda`.

Certificate rotation stays on, but the first certificate is ours: made by the operator itself, it costs a restart of the
operator and up to a minute until the others see the Secret in their volumes.
"""

import base64
import subprocess
from pathlib import Path

from lab.addons.addon import Addon, Manifest, Question, Site, Workload
from lab.addons.kubectl import KubectlError
from lab.addons.manifests import go_runtime, parse, resources, soon_ready
from lab.stand_ins.signing import issue, new_authority

VERSION = "2.21.0"
IMAGES = {
    "keda-operator": f"ghcr.io/kedacore/keda:{VERSION}",
    "keda-metrics-apiserver": f"ghcr.io/kedacore/keda-metrics-apiserver:{VERSION}",
    "keda-admission-webhooks": f"ghcr.io/kedacore/keda-admission-webhooks:{VERSION}",
}
SERVICES = tuple(IMAGES)  # each container's Service has its name

_MODULE = "github.com/kedacore/keda/v2"
_NAMESPACE = "keda"
_CERTIFICATES = "kedaorg-certs"


def _rendered(kubectl: Path, directory: Path) -> str:
    run = subprocess.run([kubectl, "kustomize", directory], capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise KubectlError(f"KEDA's manifests in {directory} do not render: {run.stderr.strip()}")
    return run.stdout


def _adapted(manifest: Manifest) -> Manifest:
    """One of KEDA's own objects, as the lab wants it."""
    if manifest["kind"] != "Deployment":
        return manifest
    manifest["spec"] |= {"strategy": {"type": "Recreate"}, "revisionHistoryLimit": 1}
    pod = manifest["spec"]["template"]["spec"]
    pod["enableServiceLinks"] = False
    (container,) = pod["containers"]
    container.pop("command")  # the image's entry point
    container |= {
        "image": IMAGES[container["name"]],
        "imagePullPolicy": "IfNotPresent",
        # One replica needs no lease, and would wait for its predecessor's to run out after every start of the lab.
        "args": [argument for argument in container["args"] if argument != "--leader-elect"],
        "env": container["env"] + go_runtime("128MiB"),
        "resources": resources("64Mi", "512Mi"),
        # As shipped it is first asked after 20 s, which would be a quarter of the lab's start.
        "readinessProbe": soon_ready({"httpGet": container["readinessProbe"]["httpGet"]}),
        # A restart because two cores were busy starting everything else would make the start longer still.
        "livenessProbe": {
            "httpGet": container["livenessProbe"]["httpGet"],
            "initialDelaySeconds": 60,
            "timeoutSeconds": 5,
            "failureThreshold": 6,
        },
    }
    return manifest


def _objects(site: Site) -> list[Manifest]:
    shipped = site.module_dir("keda", _MODULE) / "config" / "default"
    return [_adapted(manifest) for manifest in parse(_rendered(site.kubectl, shipped))]


def certificate_names() -> list[str]:
    """Every name that KEDA's own rotation would put into the certificate; another set would be replaced at once."""
    return [
        f"{service}{rest}"
        for service in SERVICES
        for rest in ("", f".{_NAMESPACE}", f".{_NAMESPACE}.svc", f".{_NAMESPACE}.svc.cluster.local")
    ]


def _seeds(_: Site) -> list[Manifest]:
    authority = new_authority("KEDA", ["KEDA"])  # the rotation verifies the authority under this DNS name
    pair = issue(authority, certificate_names())
    files = {
        "ca.crt": authority.certificate,
        "ca.key": authority.key,
        "tls.crt": pair.certificate,
        "tls.key": pair.key,
    }
    return [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": _CERTIFICATES, "namespace": _NAMESPACE},
            "data": {name: base64.b64encode(text.encode()).decode() for name, text in files.items()},
        }
    ]


ADDON = Addon(
    name="keda",
    objects=_objects,
    seeds=_seeds,
    workloads=(
        Workload("Deployment", _NAMESPACE, "keda-operator"),
        Workload("Deployment", _NAMESPACE, "keda-metrics-apiserver"),
        Workload("Deployment", _NAMESPACE, "keda-admission"),
    ),
    served={
        "keda.sh/v1alpha1": (
            "clustertriggerauthentications",
            "scaledjobs",
            "scaledobjects",
            "triggerauthentications",
        ),
        "eventing.keda.sh/v1alpha1": ("cloudeventsources", "clustercloudeventsources"),
    },
    api_services=("v1beta1.external.metrics.k8s.io",),
    # Available says nothing of the way from the metrics API to the operator (names, certificates); a metric that does
    # not exist is refused by the operator, and times out where it is not reached.
    questions=(
        Question(
            "the metrics API reaches the operator",
            f"/apis/external.metrics.k8s.io/v1beta1/namespaces/{_NAMESPACE}/none"
            "?labelSelector=scaledobject.keda.sh%2Fname%3Dnone",
            "ScaledObject.keda.sh",
        ),
    ),
)
