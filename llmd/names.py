"""What every Kubernetes object of a model stack is called."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations

from llmd.roles import Role

LABEL_LENGTH = 63  # RFC 1123 label: Service, Job, namespace and label values
# With "-" + ReplicaSet hash (at most 10) and "-" that is 58; Kubernetes cuts a longer generated pod name
DEPLOYMENT_LENGTH = 46
MODEL_KEY_LENGTH = DEPLOYMENT_LENGTH - len(
    "-prefill"
)  # the longest role suffix decides: a model may change its topology

_DNS_1035 = re.compile(
    r"[a-z]([a-z0-9-]*[a-z0-9])?"
)  # a Service name starts with a letter, and the model key starts one
_DNS_1123 = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_SUFFIX = re.compile(r"[a-z0-9]{1,10}")


class InvalidNameError(ValueError):
    """A name breaks a rule of Kubernetes or of ours; `value` is the name and `rule` says which."""

    def __init__(self, value: str, rule: str) -> None:
        super().__init__(f"{value!r}: {rule}")
        self.value = value
        self.rule = rule


class PrefixedNameError(InvalidNameError):
    """One model's key begins another's, so that a pattern over the shorter one's pods could match the longer one's."""


def check_models(keys: Iterable[str]) -> None:
    """Refuse model keys of one environment of which one begins another (or that repeat).

    Raises:
        PrefixedNameError: naming both keys.
    """
    for first, second in combinations(sorted(keys), 2):
        if second.startswith(first):
            rule = f"begins with the model name {first!r}; no model's name may prefix another's"
            raise PrefixedNameError(second, rule)


def content_hash(text: str) -> str:
    """Ten hex digits of the SHA-256 of `text`: a ConfigMap named by its content is never edited under a running pod."""
    return hashlib.sha256(text.encode()).hexdigest()[:10]


@dataclass(frozen=True)
class Names:
    """Every object name of the model `model` in `namespace`.

    Raises:
        InvalidNameError: the model key or namespace breaks a length or character rule.
    """

    model: str
    namespace: str

    def __post_init__(self) -> None:
        if len(self.model) > MODEL_KEY_LENGTH:
            rule = (
                f"a model name has at most {MODEL_KEY_LENGTH} characters (this has {len(self.model)}), "
                f"so that its Deployments have at most {DEPLOYMENT_LENGTH}"
            )
            raise InvalidNameError(self.model, rule)
        if not _DNS_1035.fullmatch(self.model):
            rule = "a model name is a DNS label: lower-case letters, digits and '-', first a letter, last no '-'"
            raise InvalidNameError(self.model, rule)
        if len(self.namespace) > LABEL_LENGTH or not _DNS_1123.fullmatch(self.namespace):
            rule = f"a namespace is a DNS label of at most {LABEL_LENGTH} lower-case letters, digits and '-'"
            raise InvalidNameError(self.namespace, rule)

    def deployment(self, role: Role) -> str:
        """Deployment, headless Service, PDB, ScaledObject and PodMonitor of a role."""
        return f"{self.model}-{role.suffix}"

    def hpa(self, role: Role) -> str:
        """The HorizontalPodAutoscaler that KEDA makes for the role's ScaledObject."""
        return f"keda-hpa-{self.deployment(role)}"

    @property
    def model_server_account(self) -> str:
        """ServiceAccount of the model servers."""
        return f"{self.model}-model-server"

    @property
    def cache_claim(self) -> str:
        """PersistentVolumeClaim that holds the weights."""
        return f"{self.model}-model-cache"

    def download_job(self, model_id: str, revision: str) -> str:
        """Job that downloads one revision of one model; another revision is another Job."""
        return f"{self.model}-download-{hashlib.sha256(f'{model_id}@{revision}'.encode()).hexdigest()[:8]}"

    @property
    def pool(self) -> str:
        """InferencePool."""
        return self.model

    @property
    def router(self) -> str:
        """Router Deployment, Service, ServiceAccount, Role, RoleBinding and ServiceMonitor; also the Prometheus job."""
        return f"{self.model}-epp"

    @property
    def router_external(self) -> str:
        """Service that carries the API out of the cluster, and nothing but the API."""
        return f"{self.router}-external"

    def router_config(self, content: str) -> str:
        """ConfigMap with the endpoint picker's `config.yaml`; `content` is that text."""
        return f"{self.router}-{content_hash(content)}"

    def envoy_config(self, content: str) -> str:
        """ConfigMap with Envoy's `envoy.yaml`; `content` is that text."""
        return f"{self.model}-envoy-{content_hash(content)}"

    @property
    def router_metrics_token(self) -> str:
        """Token Secret with which Prometheus scrapes the endpoint picker."""
        return f"{self.router}-metrics-token"

    @property
    def keda_account(self) -> str:
        """ServiceAccount as which KEDA asks Prometheus."""
        return f"{self.model}-keda"

    @property
    def keda_token(self) -> str:
        """Token Secret of `keda_account`."""
        return f"{self.model}-keda-token"

    @property
    def trigger_authentication(self) -> str:
        """TriggerAuthentication to which every trigger of the model refers."""
        return f"{self.model}-prometheus"

    @property
    def quota(self) -> str:
        """ResourceQuota of the namespace's GPUs."""
        return f"{self.model}-gpus"

    def router_cluster_role(self, suffix: str) -> str:
        """ClusterRole and binding of the endpoint picker's metrics authentication.

        `suffix` is the stack's own (kept in state).
        """
        return self._cluster_scoped("epp", suffix)

    def keda_cluster_role(self, suffix: str) -> str:
        """ClusterRole and binding of KEDA's account; `suffix` is the stack's own (kept in state)."""
        return self._cluster_scoped("keda", suffix)

    @property
    def router_job(self) -> str:
        """Prometheus `job` of the endpoint picker's series: the name of the Service that the ServiceMonitor selects."""
        return self.router

    def engine_job(self, role: Role) -> str:
        """Prometheus `job` of a role's engine series: a PodMonitor's is its namespace/name."""
        return f"{self.namespace}/{self.deployment(role)}"

    @property
    def endpoint(self) -> str:
        """Base URL of the model's OpenAI-compatible API inside the cluster."""
        return f"http://{self.router}.{self.namespace}"

    def _cluster_scoped(self, part: str, suffix: str) -> str:
        if not _SUFFIX.fullmatch(suffix):
            raise InvalidNameError(suffix, "the stack's suffix is 1 to 10 lower-case letters or digits")
        return f"llm-d-{self.namespace}-{self.model}-{part}-{suffix}"
