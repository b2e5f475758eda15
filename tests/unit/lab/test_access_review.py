"""A bearer token's owner is reviewed as Kubernetes' own programs do it, and not for every request."""

from http import HTTPStatus

import pytest

from lab.stand_ins.access_review import RecentVerdicts, Verdict, judge
from lab.stand_ins.endpoint_picker.metrics_server import ACCESS as PICKER
from lab.stand_ins.in_cluster import ApiError
from lab.stand_ins.metrics_gate import RESOURCE

OPENSHIFT = {"resourceAttributes": RESOURCE}
ACCOUNT = {"username": "system:serviceaccount:ns:reader", "uid": "u1", "groups": ["system:serviceaccounts"]}


class Reviews:
    """An API server that knows one token and answers one access review."""

    def __init__(self, allowed):
        self.allowed = allowed
        self.asked = []

    def request(self, method, path, body=None, content="application/json"):
        assert content == "application/json"
        assert body
        self.asked.append((method, path.rpartition("/")[2], body["spec"]))
        if path.endswith("/tokenreviews"):
            known = body["spec"]["token"] == "good"
            return {"status": {"authenticated": known, "user": ACCOUNT} if known else {"error": "token unknown"}}
        return {"status": {"allowed": self.allowed}}


def test_a_token_that_fails_its_review_is_unauthorized_and_never_judged_for_access():
    api = Reviews(allowed=True)
    assert judge(api, "bad", OPENSHIFT) == Verdict(HTTPStatus.UNAUTHORIZED, "token unknown")
    assert [kind for _, kind, _ in api.asked] == ["tokenreviews"]


@pytest.mark.parametrize(
    ("access", "what"),
    [(OPENSHIFT, "get monitoring.coreos.com prometheuses api openshift-monitoring k8s"), (PICKER, "get /metrics")],
)
def test_an_account_without_the_role_is_forbidden(access, what):
    verdict = judge(Reviews(allowed=False), "good", access)
    assert verdict == Verdict(HTTPStatus.FORBIDDEN, f"system:serviceaccount:ns:reader may not {what}")


def test_access_is_asked_for_the_tokens_owner_with_groups_and_for_openshifts_resource():
    api = Reviews(allowed=True)
    assert judge(api, "good", OPENSHIFT).status == HTTPStatus.OK
    assert api.asked[1] == (
        "POST",
        "subjectaccessreviews",
        {
            "user": ACCOUNT["username"],
            "uid": "u1",
            "groups": ["system:serviceaccounts"],
            "resourceAttributes": {
                "verb": "get",
                "group": "monitoring.coreos.com",
                "resource": "prometheuses",
                "subresource": "api",
                "namespace": "openshift-monitoring",
                "name": "k8s",
            },
        },
    )


def test_a_verdict_is_remembered_for_seconds_only_and_per_token():
    now, asked = [100.0], []

    def decide(token):
        asked.append(token)
        return Verdict(HTTPStatus.OK, token)

    verdicts = RecentVerdicts(decide, lambda: now[0])
    for token in ("a", "a", "b", "a"):
        assert verdicts.of(f"Bearer {token}").reason == token
    assert asked == ["a", "b"]
    now[0] += 10.0
    verdicts.of("Bearer a")
    assert asked == ["a", "b", "a"]


def test_a_review_that_failed_is_asked_again():
    answers = [ApiError(500, "etcd is away"), Verdict(HTTPStatus.OK, "now")]

    def decide(_):
        answer = answers.pop(0)
        if isinstance(answer, ApiError):
            raise answer
        return answer

    verdicts = RecentVerdicts(decide)
    with pytest.raises(ApiError):
        verdicts.of("Bearer a")
    assert verdicts.of("Bearer a").reason == "now"


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer ", "Basic dXNlcg=="])
def test_without_a_bearer_token_nobody_is_asked(header):
    verdict = RecentVerdicts(lambda token: pytest.fail(f"asked about {token}")).of(header)
    assert verdict.status == HTTPStatus.UNAUTHORIZED


@pytest.mark.parametrize("header", ["Bearer abc", "bearer abc", "  Bearer   abc "])
def test_a_bearer_header_carries_a_token(header):
    assert RecentVerdicts(lambda token: Verdict(HTTPStatus.OK, token)).of(header).reason == "abc"
