"""Volumes: the local-path provisioner and its default StorageClass `local-path`, for every access mode.

A directory of the node stands for a file system that all nodes share (`sharedFileSystemPath`): only so does the
provisioner give ReadWriteMany. Binding is immediate, as on most shared file systems, so a claim is Bound before a pod
uses it.
"""

import json
from pathlib import Path

from lab.addons.addon import Addon, Manifest, Site, Workload
from lab.addons.manifests import go_runtime, read, resources, unprivileged

IMAGE = "docker.io/rancher/local-path-provisioner:v0.0.30"
HELPER_IMAGE = "docker.io/library/busybox:latest"
STORAGE_CLASS = "local-path"

_MODULE = "github.com/rancher/local-path-provisioner"
_NAMESPACE = "local-path-storage"

# Makes and removes the directories of volumes; it runs as root because pods of any user must be able to write there.
_HELPER_POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "helper-pod"},
    "spec": {
        "enableServiceLinks": False,
        "tolerations": [{"operator": "Exists"}],
        "containers": [
            {
                "name": "helper-pod",
                "image": HELPER_IMAGE,
                "imagePullPolicy": "IfNotPresent",
                "securityContext": {"runAsUser": 0, "runAsNonRoot": False},
            }
        ],
    },
}


def _config(volumes: Path) -> dict[str, str]:
    return {
        "config.json": json.dumps({"nodePathMap": [], "sharedFileSystemPath": str(volumes)}),
        "setup": '#!/bin/sh\nset -eu\nmkdir -m 0777 -p "$VOL_DIR"\n',
        "teardown": '#!/bin/sh\nset -eu\nrm -rf "$VOL_DIR"\n',
        "helperPod.yaml": json.dumps(_HELPER_POD),
    }


def _adapted(manifest: Manifest, volumes: Path) -> Manifest:
    """One of the module's own objects, as the lab wants it."""
    match manifest["kind"]:
        case "ConfigMap":
            return manifest | {"data": _config(volumes)}
        case "StorageClass":
            metadata = {
                "name": STORAGE_CLASS,
                "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
            }
            return manifest | {"metadata": metadata, "volumeBindingMode": "Immediate"}
        case "Deployment":
            pod = manifest["spec"]["template"]["spec"]
            (container,) = pod["containers"]
            del container["command"]  # the image's entry point
            container |= {
                "image": IMAGE,
                "args": ["start", "--config", "/etc/config/config.json"],
                "resources": resources("24Mi", "128Mi"),
                "securityContext": unprivileged() | {"runAsUser": 65532},
            }
            container["env"] += go_runtime("40MiB")
            return manifest
    return manifest


def _objects(site: Site) -> list[Manifest]:
    shipped = site.module_dir("local-path-provisioner", _MODULE) / "deploy" / "local-path-storage.yaml"
    return [_adapted(manifest, site.volumes) for manifest in read(shipped)]


ADDON = Addon(
    name="local-path",
    objects=_objects,
    workloads=(Workload("Deployment", _NAMESPACE, "local-path-provisioner"),),
)
