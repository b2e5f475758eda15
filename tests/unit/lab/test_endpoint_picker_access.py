"""How the endpoint picker reaches the Kubernetes API, and who may read its metrics."""

import asyncio
import base64
import ssl
from pathlib import Path

import pytest
import yaml

from lab.stand_ins.endpoint_picker import health
from lab.stand_ins.endpoint_picker.kube import ApiStatusError, CredentialsError, find_access
from lab.stand_ins.endpoint_picker.metrics_server import Gate
from lab.stand_ins.endpoint_picker.tls import certificate


def kubeconfig(path: Path, cluster: dict, user: dict) -> dict[str, str]:
    path.write_text(
        yaml.safe_dump(
            {
                "current-context": "here",
                "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": cluster}],
                "users": [{"name": "u", "user": user}],
            }
        )
    )
    return {"KUBECONFIG": str(path)}


def test_a_kubeconfig_with_a_client_certificate(tmp_path):
    key, cert = certificate("")
    data = base64.b64encode(cert).decode()
    (tmp_path / "client.key").write_bytes(key)
    user = {"client-certificate-data": data, "client-key": "client.key"}  # a path relative to the file
    cluster = {"server": "https://10.0.0.1:6443/", "certificate-authority-data": data}
    access = find_access(kubeconfig(tmp_path / "config", cluster, user))
    assert access.server == "https://10.0.0.1:6443"
    assert access.tls is not None
    assert access.tls.verify_mode == ssl.CERT_REQUIRED
    assert access.headers() == {}


def test_a_kubeconfig_with_a_token_that_does_not_verify(tmp_path):
    cluster = {"server": "https://10.0.0.1:6443", "insecure-skip-tls-verify": True}
    access = find_access(kubeconfig(tmp_path / "config", cluster, {"token": "t"}))
    assert access.tls is not None
    assert access.tls.verify_mode == ssl.CERT_NONE
    assert access.headers() == {"Authorization": "Bearer t"}


def test_the_service_accounts_token_is_read_each_time(tmp_path):
    (tmp_path / "ca.crt").write_bytes(certificate("")[1])
    (tmp_path / "token").write_text("one\n")
    access = find_access({"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}, tmp_path)
    assert access.server == "https://[fd00::1]:443"
    assert access.headers() == {"Authorization": "Bearer one"}
    (tmp_path / "token").write_text("two")
    assert access.headers() == {"Authorization": "Bearer two"}


@pytest.mark.parametrize(
    ("environment", "message"),
    [({}, "no KUBECONFIG, and not in a pod"), ({"KUBECONFIG": "/nonexistent"}, "kubeconfig /nonexistent")],
)
def test_no_way_to_kubernetes_is_said(tmp_path, environment, message):
    with pytest.raises(CredentialsError, match=message):
        find_access(environment, tmp_path)


class Reviews:
    """Knows tokens, and which of their users may read metrics."""

    def __init__(self, **allowed: bool) -> None:
        self.allowed = allowed
        self.asked: list[str] = []

    async def create(self, path: str, manifest: dict) -> dict:
        self.asked.append(path.rsplit("/", 1)[1])
        if path.endswith("tokenreviews"):
            token = manifest["spec"]["token"]
            if token == "unreviewable":
                raise ApiStatusError(403, "forbidden")
            user = {"username": token, "groups": ["g"]}
            return {"status": {"authenticated": token in self.allowed, "user": user}}
        assert manifest["spec"]["nonResourceAttributes"] == {"path": "/metrics", "verb": "get"}
        assert manifest["spec"]["groups"] == ["g"]
        return {"status": {"allowed": self.allowed[manifest["spec"]["user"]]}}


def asked(gate: Gate, authorization: str) -> int:
    return asyncio.run(gate.status(authorization))


@pytest.mark.parametrize(
    ("authorization", "status"),
    [
        ("", 401),
        ("Basic abc", 401),
        ("Bearer ", 401),
        ("Bearer stranger", 401),
        ("Bearer guest", 403),
        ("Bearer prometheus", 200),
        ("bearer prometheus", 200),
        ("Bearer unreviewable", 500),
    ],
)
def test_status_by_authorization(authorization, status):
    reviews = Reviews(prometheus=True, guest=False)
    gate = Gate(reviews, lambda: 0.0)  # ty: ignore[invalid-argument-type] - plays the client
    assert asked(gate, authorization) == status


def test_an_answer_is_remembered_for_a_few_seconds_but_an_error_is_not():
    now = [0.0]
    reviews = Reviews(prometheus=True)
    gate = Gate(reviews, lambda: now[0])  # ty: ignore[invalid-argument-type] - plays the client
    asked(gate, "Bearer prometheus")
    now[0] = 4.9
    assert asked(gate, "Bearer prometheus") == 200
    assert reviews.asked == ["tokenreviews", "subjectaccessreviews"]
    now[0] = 5.1
    reviews.allowed["prometheus"] = False
    assert asked(gate, "Bearer prometheus") == 403
    asked(gate, "Bearer unreviewable")
    asked(gate, "Bearer unreviewable")
    assert reviews.asked[4:] == ["tokenreviews", "tokenreviews"]


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
