"""An addon is ready when all of it is, and otherwise says what is missing."""

import pytest

from lab import addons
from lab.addons.addon import Addon, Question, Workload, nothing
from lab.addons.readiness import Observation, missing_pods, unavailable
from lab.api import ApiError

DEPLOYMENTS = "/apis/apps/v1/deployments"
STATEFUL_SETS = "/apis/apps/v1/statefulsets"


def workload(name="web", *, replicas=1, generation=2, **status):
    return {
        "metadata": {"name": name, "namespace": "ns", "generation": generation},
        "spec": {"replicas": replicas},
        "status": {"observedGeneration": generation, "updatedReplicas": replicas, "availableReplicas": replicas}
        | status,
    }


@pytest.mark.parametrize(
    ("seen", "missing"),
    [
        (workload(), None),
        (workload(replicas=0), "0 of 1 pods updated"),
        (workload(observedGeneration=1), "its controller has not seen it yet"),
        (workload(replicas=2, updatedReplicas=1), "1 of 2 pods updated"),
        (workload(replicas=2, availableReplicas=0), "0 of 2 pods available"),
        (workload() | {"status": {}}, "its controller has not seen it yet"),
        (workload() | {"status": {"observedGeneration": 2}}, "0 of 1 pods updated"),
    ],
)
def test_a_workload_is_up_when_its_current_pods_are_available(seen, missing):
    assert missing_pods(seen) == missing


def api_service(status, **words):
    return {
        "status": {
            "conditions": [{"type": "Other", "status": "False"}, {"type": "Available", "status": status} | words]
        }
    }


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        (api_service("True"), None),
        (api_service("False", reason="MissingEndpoints", message="no pod"), "MissingEndpoints: no pod"),
        ({"status": {}}, "not judged yet"),
    ],
)
def test_an_aggregated_api_says_why_it_is_not_available(seen, reason):
    assert unavailable(seen) == reason


ADDON = Addon(
    name="thing",
    objects=nothing,
    workloads=(Workload("Deployment", "ns", "web"), Workload("StatefulSet", "ns", "store")),
    served={"things.io/v1": ("things", "stuffs")},
    api_services=("v1.extra.io",),
)
FINE = {
    DEPLOYMENTS: {"items": [workload("web"), workload("other", availableReplicas=0)]},
    STATEFUL_SETS: {"items": [workload("store")]},
    "/apis/things.io/v1": {"resources": [{"name": "things"}, {"name": "things/status"}, {"name": "stuffs"}]},
    "/apis/apiregistration.k8s.io/v1/apiservices/v1.extra.io": api_service("True"),
}


def reading(answers, asked=None):
    def get(path):
        if asked is not None:
            asked.append(path)
        if path not in answers:
            raise ApiError(f"{path}: 404")
        return answers[path]

    return get


def test_an_addon_with_everything_up_lacks_nothing():
    assert Observation(reading(FINE)).missing(ADDON) == []


@pytest.mark.parametrize(
    ("changed", "missing"),
    [
        ({DEPLOYMENTS: {"items": []}}, ["Deployment ns/web: does not exist"]),
        (
            {STATEFUL_SETS: {"items": [workload("store", availableReplicas=0)]}},
            ["StatefulSet ns/store: 0 of 1 pods available"],
        ),
        ({"/apis/things.io/v1": {"resources": [{"name": "stuffs"}]}}, ["API things.io/v1 things is not served"]),
        (
            {"/apis/apiregistration.k8s.io/v1/apiservices/v1.extra.io": api_service("False", reason="R", message="m")},
            ["APIService v1.extra.io: R: m"],
        ),
    ],
)
def test_what_is_missing_is_named(changed, missing):
    assert Observation(reading(FINE | changed)).missing(ADDON) == missing


def test_a_pod_of_the_same_name_in_another_namespace_does_not_count():
    elsewhere = workload("web")
    elsewhere["metadata"]["namespace"] = "other"
    seen = Observation(reading(FINE | {DEPLOYMENTS: {"items": [elsewhere]}}))
    assert seen.missing(ADDON) == ["Deployment ns/web: does not exist"]
    assert seen.down(ADDON) == [ADDON.workloads[0]]


ASKING = Addon(
    name="asking",
    objects=nothing,
    served={"things.io/v1": ("things",)},
    questions=(Question("the API reaches the operator", "/ask", "ScaledObject not found"),),
)


def test_a_question_counts_as_answered_by_an_error_with_the_expected_words():
    def get(path):
        if path == "/ask":
            raise ApiError('500 {"message": "ScaledObject not found"}')
        return FINE[path]

    assert Observation(get).missing(ASKING) == []


def test_a_question_without_the_expected_answer_is_missing():
    answers = FINE | {"/ask": {"message": "timeout"}}
    (missing,) = Observation(reading(answers)).missing(ASKING)
    assert missing.startswith("the API reaches the operator: ")
    assert "timeout" in missing


def test_questions_wait_until_nothing_else_is_missing():
    asked = []
    assert Observation(reading({}, asked)).missing(ASKING) == ["API things.io/v1 things is not served"]
    assert asked == ["/apis/things.io/v1"]


def test_where_nothing_answers_everything_is_missing():
    assert Observation(reading({})).missing(ADDON) == [
        "API things.io/v1 things is not served",
        "API things.io/v1 stuffs is not served",
        f"Deployment ns/web: {DEPLOYMENTS}: 404",
        f"StatefulSet ns/store: {STATEFUL_SETS}: 404",
        "APIService v1.extra.io: /apis/apiregistration.k8s.io/v1/apiservices/v1.extra.io: 404",
    ]


def test_one_look_reads_each_collection_once_for_all_addons():
    asked = []
    seen = Observation(reading(FINE, asked))
    for _ in range(3):
        seen.missing(ADDON)
    assert sorted(asked) == sorted(FINE)


def test_status_names_every_addon_when_there_is_no_lab(tmp_path):
    seen = addons.status(tmp_path / "kubeconfig")
    assert [part.name for part in seen] == [addon.name for addon in addons.ADDONS]
    assert not any(part.ready for part in seen)
    assert all("kubeconfig" in part.detail for part in seen)
