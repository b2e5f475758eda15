"""Which objects put a model's weights on a volume, once per model and revision."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
from pulumi_kubernetes.batch.v1 import Job
from pulumi_kubernetes.core.v1 import PersistentVolumeClaim

from components.manifests import (
    SKIP_AWAIT,
    Compute,
    Identity,
    ImagePull,
    Manifest,
    children,
    container_security,
    metadata,
    pod_basics,
    resources,
    variables,
)
from llmd import labels, vllm
from llmd.names import Names
from llmd.vllm import Variable

# Downloading is I/O: `hf` writes what it reads (65 GB took about 5 minutes, Aug 2026), so what a small node has left
# is enough.
DOWNLOAD = Compute(cpu="100m", memory="1Gi")
ATTEMPTS = 3  # a hub or a network that fails three times needs a person; what was fetched stays on the volume

# The marker is written last: a directory without it is a download that was cut off, and `hf` goes on where it stopped.
_SCRIPT = """\
if [ -e "$TARGET/.complete" ]; then
  echo "$MODEL_ID at $MODEL_REVISION is already in $TARGET"
  exit 0
fi
mkdir -p "$TARGET"
hf download "$MODEL_ID" --revision "$MODEL_REVISION" --local-dir "$TARGET"
touch "$TARGET/.complete"
echo "$MODEL_ID at $MODEL_REVISION is complete in $TARGET"
"""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A claim that the cache makes."""

    size: str
    storage_class: str | None
    access_mode: str
    retain: bool  # whether it outlives the stack


@dataclass(frozen=True, kw_only=True)
class ModelCacheArgs:
    """Which weights, from where, on which volume."""

    names: Names
    model_id: str
    revision: str
    claim: Claim | str  # to be made, or the name of someone else's
    image: str  # has `hf` on its PATH, as the model server's own image does
    pull: ImagePull
    identity: Identity
    hub: vllm.Hub
    deadline_seconds: int


class ModelCache(pulumi.ComponentResource):
    """The weights of one model on a volume; ready when the download has ended."""

    claim_name: str
    model_path: str  # where a model server finds the weights

    def __init__(self, name: str, args: ModelCacheArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("llm-d:components:ModelCache", name, None, opts)
        child = children(self, opts)
        self.claim_name = args.claim if isinstance(args.claim, str) else args.names.cache_claim
        self.model_path = model_path(args.model_id, args.revision)
        after: list[pulumi.Resource] = []
        if isinstance(args.claim, Claim):
            after.append(_claim(args.names, args.claim, child))
        _download(args, self.claim_name, pulumi.ResourceOptions.merge(child, pulumi.ResourceOptions(depends_on=after)))
        self.register_outputs({"modelPath": self.model_path})


def model_path(model_id: str, revision: str) -> str:
    """Directory of one revision's weights in a pod that mounts the volume; several revisions lie side by side."""
    return f"{vllm.MODEL_CACHE}/{model_id}/{revision}"


def claim_spec(claim: Claim) -> Manifest:
    """PersistentVolumeClaimSpec."""
    spec: Manifest = {"accessModes": [claim.access_mode], "resources": {"requests": {"storage": claim.size}}}
    if claim.storage_class is not None:
        spec["storageClassName"] = claim.storage_class
    return spec


def download_spec(args: ModelCacheArgs, claim_name: str) -> Manifest:
    """JobSpec of the download."""
    names = args.names
    job = names.download_job(args.model_id, args.revision)
    environment = [
        Variable(name="MODEL_ID", value=args.model_id),
        Variable(name="MODEL_REVISION", value=args.revision),
        Variable(name="TARGET", value=model_path(args.model_id, args.revision)),
        *vllm.home(),
        *args.hub.variables(),
    ]
    container: Manifest = {
        "name": "download",
        "image": args.image,
        "imagePullPolicy": args.pull.policy,
        "command": ["sh", "-ec", _SCRIPT],
        "env": variables(environment),
        "resources": resources(DOWNLOAD),
        "securityContext": container_security(),
        "volumeMounts": [{"name": "model-cache", "mountPath": vllm.MODEL_CACHE}],
    }
    pod: Manifest = {
        **pod_basics(args.identity, args.pull),
        "restartPolicy": "Never",  # a failed attempt's log stays readable
        "automountServiceAccountToken": False,
        "containers": [container],
        "volumes": [{"name": "model-cache", "persistentVolumeClaim": {"claimName": claim_name}}],
    }
    return {
        "backoffLimit": ATTEMPTS - 1,
        "activeDeadlineSeconds": args.deadline_seconds,
        "template": {"metadata": {"labels": labels.common(names, job)}, "spec": pod},
    }


def _claim(names: Names, claim: Claim, child: pulumi.ResourceOptions) -> PersistentVolumeClaim:
    # Many storage classes bind a claim only when its first pod is there: the download, which waits for the claim.
    meta = metadata(names.cache_claim, names.namespace, labels.common(names, names.cache_claim), {SKIP_AWAIT: "true"})
    opts = pulumi.ResourceOptions.merge(child, pulumi.ResourceOptions(retain_on_delete=claim.retain))
    return PersistentVolumeClaim(names.cache_claim, metadata=meta, spec=claim_spec(claim), opts=opts)


def _download(args: ModelCacheArgs, claim_name: str, child: pulumi.ResourceOptions) -> Job:
    names = args.names
    job = names.download_job(args.model_id, args.revision)
    # a Job that failed for good is made anew by the next `up`; the engine waits for completion
    meta = metadata(job, names.namespace, labels.common(names, job), {"pulumi.com/replaceUnready": "true"})
    limit = f"{args.deadline_seconds + 60}s"  # the Job's own deadline speaks first
    timeouts = pulumi.CustomTimeouts(create=limit, update=limit)
    opts = pulumi.ResourceOptions.merge(child, pulumi.ResourceOptions(custom_timeouts=timeouts))
    return Job(job, metadata=meta, spec=download_spec(args, claim_name), opts=opts)
