"""Who may read the endpoint picker's metrics, and what its health checks say."""

from http import HTTPStatus

import pytest
from aiohttp.test_utils import TestClient, TestServer

from lab.stand_ins.access_review import RecentVerdicts, Verdict
from lab.stand_ins.endpoint_picker import health
from lab.stand_ins.endpoint_picker.metrics_server import application
from lab.stand_ins.in_cluster import ApiError


def decide(token: str) -> Verdict:
    if token == "unreviewable":
        raise ApiError(403, "forbidden")
    status = {"prometheus": HTTPStatus.OK, "guest": HTTPStatus.FORBIDDEN}.get(token, HTTPStatus.UNAUTHORIZED)
    return Verdict(status, token)


@pytest.mark.parametrize(
    ("authorization", "status"),
    [
        ("", 401),
        ("Bearer stranger", 401),
        ("Bearer guest", 403),
        ("Bearer prometheus", 200),
        ("Bearer unreviewable", 500),
    ],
)
async def test_metrics_are_served_by_verdict(authorization, status):
    served = application(lambda: b"up 1\n", RecentVerdicts(decide))
    async with TestClient(TestServer(served)) as client:
        answer = await client.get("/metrics", headers={"Authorization": authorization})
        assert answer.status == status
        assert (await answer.text() == "up 1\n") is (status == 200)


async def test_without_authentication_anyone_reads_them():
    async with TestClient(TestServer(application(lambda: b"up 1\n", None))) as client:
        assert (await client.get("/metrics")).status == 200


@pytest.mark.parametrize(("request_bytes", "service"), [(b"", ""), (b"\x0a\x08liveness", "liveness")])
def test_a_health_request_names_a_service(request_bytes, service):
    assert health.service_of(request_bytes) == service


@pytest.mark.parametrize("request_bytes", [b"\x0a", b"\x12\x01a", b"\x0a\x05ab", b"\x0a\x01\xff"])
def test_what_is_no_health_request(request_bytes):
    with pytest.raises(health.MalformedCheckError):
        health.service_of(request_bytes)


@pytest.mark.parametrize(
    ("synced", "leader_election", "serving"),
    [(False, False, set()), (True, False, set(health.SERVICES)), (False, True, {"liveness"})],
)
def test_services_serve_once_the_pool_has_synced(synced, leader_election, serving):
    state = health.Health(lambda: synced, leader_election=leader_election)
    assert {service for service in health.SERVICES if state.serving(service)} == serving
    state.leave()
    assert not any(state.serving(service) for service in health.SERVICES)
