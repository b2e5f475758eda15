"""What an environment's configuration may say: one frozen tree, unknown keys refused.

Keys are camelCase in YAML and snake_case here. A unit is in the key's name; GPUs, replicas and tokens are counts.
What must agree *between* parts of the tree is in `stacks/checks.py`.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from stacks.model_schema import ModelStack
from stacks.scalars import Address, Count, ExtendedResource, Image, Section, Str, Text, Whole


class Router(Section):
    """Release of llm-d-router; its minor version selects the dialect."""

    version: Text


class Engine(Section):
    """Inference engine and its release; they select the dialect."""

    name: Text
    version: Text


class Toleration(Section):
    """A Kubernetes toleration."""

    key: Text | None = None
    operator: Literal["Exists", "Equal"] | None = None
    value: Str | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    toleration_seconds: Whole | None = None


class Accelerator(Section):
    """A kind of GPU: where it is, how many there are and how many of them this environment may hold."""

    resource: ExtendedResource = "nvidia.com/gpu"
    product: Text | None = None  # as the node feature discovery labels it; part of a calibration's identity
    per_node: Count
    nodes: Count
    budget: Count  # GPUs that this environment may hold at most, headroom included
    headroom: Whole = 0  # GPUs of the budget that serve rollouts, draining pods and dedicated calibration
    node_selector: dict[Text, Str] = Field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()
    runtime_class: Text | None = None


class SecretKey(Section):
    """A key of a Secret in the model's namespace."""

    name: Text
    key: Text


AUTH_KINDS = ("none", "openshift-thanos")  # bearer-secret and bound-token are named in docs/design.md and come later


def _known_kind(value: object) -> object:
    if value in ("bearer-secret", "bound-token"):
        raise PydanticCustomError("not_yet", "not available yet; allowed: {kinds}", {"kinds": ", ".join(AUTH_KINDS)})
    return value


class PrometheusAuth(Section):
    """How KEDA proves who it is: as an OpenShift service account, or not at all."""

    kind: Annotated[Literal["none", "openshift-thanos"], BeforeValidator(_known_kind)]


class Prometheus(Section):
    """Where the scalers ask for metrics."""

    address: Address
    auth: PrometheusAuth
    ca: SecretKey | None = None  # certificate authority; openshift-thanos finds its own in the token Secret

    @model_validator(mode="after")
    def _ca_is_read(self) -> Self:
        if self.ca is not None and self.auth.kind == "none":
            raise PydanticCustomError("ca", "KEDA reads a `ca` only with an auth kind other than none; leave `ca` out")
        return self


class Images(Section):
    """Container images; pin them by digest where results must be comparable."""

    model_server: Image
    endpoint_picker: Image
    routing_sidecar: Image
    envoy: Image
    tools: Image  # python3 and its standard library, for short-lived pods
    pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    pull_secrets: tuple[Text, ...] = ()


class Pods(Section):
    """As whom containers run. Leave both out where the platform assigns ids, as OpenShift does."""

    run_as_user: Count | None = None  # needed where an image's own user is root or a name
    fs_group: Count | None = None  # needed where a volume belongs to root


class Hub(Section):
    """Where weights are downloaded from, and the Secret with the token (in the model's namespace)."""

    endpoint: Address | None = None  # HF_ENDPOINT; the public Hugging Face hub when left out
    token_secret: SecretKey | None = None


class Environment(Section):
    """Everything that one Pulumi stack builds."""

    router: Router = Router(version="0.11")
    engine: Engine = Engine(name="vllm", version="0.27")
    accelerators: Annotated[dict[Text, Accelerator], Field(min_length=1)]
    prometheus: Prometheus
    images: Images
    pods: Pods = Pods()
    hub: Hub = Hub()
    models: Annotated[dict[Text, ModelStack], Field(min_length=1)]
