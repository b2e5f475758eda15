"""Whether an addon is ready, and if not, what is missing."""

from collections.abc import Iterable

from lab.addons.addon import Addon, Get, Object, Question, Workload
from lab.api import ApiError

_COLLECTIONS = {"Deployment": "/apis/apps/v1/deployments", "StatefulSet": "/apis/apps/v1/statefulsets"}


def missing_pods(workload: Object) -> str | None:
    """What a Deployment or StatefulSet still lacks, or None when all its pods are current and available.

    One that somebody scaled to nothing is not up: an addon without a pod does not work.
    """
    status = workload.get("status", {})
    wanted = max(1, workload["spec"].get("replicas", 1))
    if status.get("observedGeneration", 0) < workload["metadata"].get("generation", 0):
        return "its controller has not seen it yet"
    for word, field in (("updated", "updatedReplicas"), ("available", "availableReplicas")):
        if status.get(field, 0) < wanted:
            return f"{status.get(field, 0)} of {wanted} pods {word}"
    return None


def unavailable(api_service: Object) -> str | None:
    """Why an aggregated API is not Available, or None when it is."""
    for condition in api_service.get("status", {}).get("conditions", ()):
        if condition["type"] == "Available":
            if condition["status"] == "True":
                return None
            return f"{condition.get('reason', '')}: {condition.get('message', '')}"
    return "not judged yet"


class Observation:
    """One look at the cluster, for any number of addons: each collection is read once, when first asked for."""

    def __init__(self, get: Get) -> None:
        self._get = get
        self._seen: dict[str, Object | ApiError] = {}

    def missing(self, addon: Addon) -> list[str]:
        """What keeps `addon` from being ready, one line each."""
        lines = [*self.unserved(addon), *self._down(addon.workloads), *self._unavailable(addon.api_services)]
        return lines or self._unanswered(addon.questions)

    def unserved(self, addon: Addon) -> list[str]:
        """Which of the addon's resources the API server does not serve."""
        lines = []
        for version, plurals in addon.served.items():
            seen = self._read(f"/apis/{version}")
            served = set() if isinstance(seen, ApiError) else {entry["name"] for entry in seen["resources"]}
            lines += [f"API {version} {plural} is not served" for plural in plurals if plural not in served]
        return lines

    def down(self, addon: Addon) -> list[Workload]:
        """The addon's workloads that are not up."""
        return [workload for workload in addon.workloads if self._down([workload])]

    def _down(self, workloads: Iterable[Workload]) -> list[str]:
        lines = []
        for workload in workloads:
            seen = self._read(_COLLECTIONS[workload.kind])
            if isinstance(seen, ApiError):
                lines.append(f"{workload}: {seen}")
                continue
            found = [item for item in seen["items"] if _is(item, workload)]
            reason = missing_pods(found[0]) if found else "does not exist"
            if reason:
                lines.append(f"{workload}: {reason}")
        return lines

    def _unavailable(self, names: Iterable[str]) -> list[str]:
        lines = []
        for name in names:
            seen = self._read(f"/apis/apiregistration.k8s.io/v1/apiservices/{name}")
            reason = str(seen) if isinstance(seen, ApiError) else unavailable(seen)
            if reason:
                lines.append(f"APIService {name}: {reason}")
        return lines

    def _unanswered(self, questions: Iterable[Question]) -> list[str]:
        answers = ((question, str(self._read(question.path))) for question in questions)
        return [f"{question.what}: {answer}" for question, answer in answers if question.answer not in answer]

    def _read(self, path: str) -> Object | ApiError:
        if path not in self._seen:
            try:
                self._seen[path] = self._get(path)
            except ApiError as error:
                self._seen[path] = error
        return self._seen[path]


def _is(item: Object, workload: Workload) -> bool:
    metadata = item["metadata"]
    return (metadata["namespace"], metadata["name"]) == (workload.namespace, workload.name)
