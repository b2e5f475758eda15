"""How a day-2 command reaches a model: requests through its router, and the counters of its pods."""

import http.client
import json
from dataclasses import dataclass
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from cluster import Cluster, Kind
from llmd import envoy, labels, vllm
from llmd import router as picker
from llmd.dialects import EngineDialect, RouterDialect
from llmd.names import Names
from llmd.outputs import ModelOutputs
from llmd.roles import Role

POD = Kind("v1", "Pod")


class NoPodError(RuntimeError):
    """No ready pod to ask; the message names the labels that were looked for."""


@dataclass(frozen=True)
class Answer:
    """An HTTP answer: status and body."""

    status: int
    body: str


@dataclass(frozen=True)
class Model:
    """One deployed model, reached through the API server's port-forward with the user's own rights."""

    cluster: Cluster
    outputs: ModelOutputs

    @property
    def _names(self) -> Names:
        return Names(self.outputs.key, self.outputs.namespace)

    def complete(self, prompt: str, max_tokens: int) -> Answer:
        """One completion, not streamed, through Envoy and the endpoint picker."""
        body = {"model": self.outputs.served_name, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0}
        pod = self._ready(labels.router_selector(self._names))[0]
        return self._ask(pod, envoy.HTTP_PORT, "/v1/completions", body=json.dumps(body))

    def decisions(self, dialect: RouterDialect, decision: str) -> float:
        """Requests about which the endpoint picker decided `decision`; it wants a token that may read metrics."""
        token = self.cluster.token(self.outputs.namespace, self.outputs.router)
        return sum(
            counter(
                self._ask(pod, picker.METRICS_PORT, "/metrics", token=token),
                dialect.disagg_decisions,
                decision_type=decision,
            )
            for pod in self._ready(labels.router_selector(self._names))
        )

    def answered(self, role: Role, dialect: EngineDialect) -> float:
        """Requests that the engines of a role have answered to their end."""
        return sum(
            counter(self._ask(pod, vllm.port(role), "/metrics"), dialect.request_success)
            for pod in self._ready(labels.role_selector(self._names, role))
        )

    def _ready(self, wanted: dict[str, str]) -> list[str]:
        pods = self.cluster.list(POD, self.outputs.namespace, wanted)
        ready = [pod["metadata"]["name"] for pod in pods if _is_ready(pod)]
        if not ready:
            raise NoPodError(f"{self.outputs.namespace}: none of {len(pods)} pods with {wanted} is ready")
        return ready

    def _ask(self, pod: str, port: int, path: str, *, body: str | None = None, token: str | None = None) -> Answer:
        """GET, or POST when there is a body."""
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        with self.cluster.http(self.outputs.namespace, pod, port) as connection:
            connection.request("POST" if body else "GET", path, body, headers)
            answer = connection.getresponse()
            return Answer(answer.status, answer.read().decode())


def counter(answer: Answer, name: str, **wanted: str) -> float:
    """Sum of a counter over its series with the labels `wanted`; 0 when it has none yet.

    Raises:
        http.client.HTTPException: the metrics were refused.
    """
    if answer.status != http.client.OK:
        raise http.client.HTTPException(f"/metrics: HTTP {answer.status}: {answer.body.strip()[:200]}")
    return sum(
        sample.value
        for family in text_string_to_metric_families(answer.body)
        for sample in family.samples
        if sample.name == name and wanted.items() <= sample.labels.items()
    )


def _is_ready(pod: dict[str, Any]) -> bool:
    conditions = pod.get("status", {}).get("conditions") or []
    ready = any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
    return ready and "deletionTimestamp" not in pod["metadata"]
