"""The service CA gives its certificate to service accounts and signs for Services, as OpenShift's does."""

import base64

import pytest

from lab.stand_ins.in_cluster import ApiError
from lab.stand_ins.service_ca import (
    ServiceCA,
    fingerprint,
    load_authority,
    wanted_secret,
    wants_bundle,
)
from lab.stand_ins.signing import new_authority

AUTHORITY = new_authority("signer")
BUNDLE = base64.b64encode(AUTHORITY.certificate.encode()).decode()


class Cluster:
    """Objects by path, and what was written."""

    def __init__(self, **objects):
        self.objects = dict(objects)
        self.written = []

    def request(self, method, path, body=None, content="application/json"):
        if method != "GET":
            self.written.append((method, path, content, body))
        if method == "POST":
            assert body
            path = f"{path}/{body['metadata']['name']}"
            if path in self.objects:
                raise ApiError(409, "exists")
        elif path not in self.objects:
            raise ApiError(404, f"no {path}")
        if method in {"POST", "PUT"}:
            self.objects[path] = body
        return self.objects[path]


def token_secret(data=None, **metadata):
    return {
        "metadata": {
            "name": "reader-token",
            "namespace": "ns",
            "annotations": {"kubernetes.io/service-account.name": "reader"},
        }
        | metadata,
        "type": "kubernetes.io/service-account-token",
        "data": data,
    }


def service(**annotations):
    return {"metadata": {"name": "thanos", "namespace": "ns", "uid": "u1", "annotations": annotations}}


def asking(secret="thanos-tls"):
    return service(**{"service.beta.openshift.io/serving-cert-secret-name": secret})


@pytest.mark.parametrize(
    ("secret", "wants"),
    [
        (token_secret(), True),
        (token_secret({"token": "dA=="}), True),
        (token_secret({"service-ca.crt": "b2xk"}), True),
        (token_secret({"service-ca.crt": BUNDLE}), False),
        (token_secret(deletionTimestamp="2026-01-01T00:00:00Z"), False),
        (token_secret(annotations={}), False),
        (token_secret(annotations=None), False),
        (token_secret() | {"type": "Opaque"}, False),
    ],
)
def test_the_bundle_goes_to_tokens_of_service_accounts_that_lack_it(secret, wants):
    assert wants_bundle(secret, AUTHORITY) is wants


@pytest.mark.parametrize("kind", ["ADDED", "MODIFIED"])
def test_the_bundle_is_merged_beside_the_token(kind):
    cluster = Cluster(**{"/api/v1/namespaces/ns/secrets/reader-token": token_secret()})
    ServiceCA(cluster, AUTHORITY).secret_changed(kind, token_secret({"token": "dA=="}))
    assert cluster.written == [
        (
            "PATCH",
            "/api/v1/namespaces/ns/secrets/reader-token",
            "application/merge-patch+json",
            {"data": {"service-ca.crt": BUNDLE}},
        )
    ]


def test_a_secret_that_has_gone_meanwhile_is_no_error():
    ServiceCA(Cluster(), AUTHORITY).secret_changed("ADDED", token_secret())


@pytest.mark.parametrize(
    ("asked", "name"),
    [(service(), None), (asking(), "thanos-tls"), (asking(""), None), ({"metadata": {"annotations": None}}, None)],
)
def test_a_service_asks_by_its_annotation(asked, name):
    assert wanted_secret(asked) == name


def test_an_asking_service_gets_a_secret_that_it_owns():
    cluster = Cluster()
    ServiceCA(cluster, AUTHORITY).service_changed("ADDED", asking())
    secret = cluster.objects["/api/v1/namespaces/ns/secrets/thanos-tls"]
    assert secret["type"] == "kubernetes.io/tls"
    assert secret["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Service", "name": "thanos", "uid": "u1"}
    ]
    assert base64.b64decode(secret["data"]["tls.crt"]).startswith(b"-----BEGIN CERTIFICATE-----")
    assert b"PRIVATE KEY" in base64.b64decode(secret["data"]["tls.key"])


def test_a_current_certificate_is_left_alone_and_one_of_another_authority_replaced():
    cluster = Cluster()
    ServiceCA(cluster, AUTHORITY).service_changed("ADDED", asking())
    ServiceCA(cluster, AUTHORITY).service_changed("MODIFIED", asking())
    assert [method for method, *_ in cluster.written] == ["POST"]
    successor = new_authority("signer")
    ServiceCA(cluster, successor).service_changed("MODIFIED", asking())
    assert [method for method, *_ in cluster.written] == ["POST", "PUT"]
    secret = cluster.objects["/api/v1/namespaces/ns/secrets/thanos-tls"]
    assert secret["metadata"]["annotations"]["lab.llm-d.ai/service-ca-fingerprint"] == fingerprint(successor)


def test_a_foreign_secret_of_the_wanted_name_is_not_overwritten():
    foreign = {"metadata": {"name": "thanos-tls", "namespace": "ns"}, "data": {"tls.crt": "eA==", "tls.key": "eA=="}}
    cluster = Cluster(**{"/api/v1/namespaces/ns/secrets/thanos-tls": foreign})
    ServiceCA(cluster, AUTHORITY).service_changed("ADDED", asking())
    assert cluster.written == []


def test_a_deleted_certificate_is_made_again_while_its_service_asks():
    cluster = Cluster(**{"/api/v1/namespaces/ns/services/thanos": asking()})
    keeper = ServiceCA(cluster, AUTHORITY)
    keeper.service_changed("ADDED", asking())
    deleted = cluster.objects.pop("/api/v1/namespaces/ns/secrets/thanos-tls")
    keeper.secret_changed("DELETED", deleted)
    assert "/api/v1/namespaces/ns/secrets/thanos-tls" in cluster.objects
    del cluster.objects["/api/v1/namespaces/ns/services/thanos"]
    gone = cluster.objects.pop("/api/v1/namespaces/ns/secrets/thanos-tls")
    keeper.secret_changed("DELETED", gone)
    assert "/api/v1/namespaces/ns/secrets/thanos-tls" not in cluster.objects


def test_the_authority_is_made_once_and_then_found():
    cluster = Cluster()
    first = load_authority(cluster)
    assert load_authority(cluster) == first
    assert [method for method, *_ in cluster.written] == ["POST"]


def test_of_two_that_make_an_authority_at_once_the_stored_one_counts():
    class Late(Cluster):
        """Another replica writes between our look and our write."""

        def request(self, method, path, body=None, content="application/json"):
            if method == "POST" and not self.objects:
                other = load_authority(Cluster(**self.objects))
                data = {"tls.crt": other.certificate, "tls.key": other.key}
                self.objects[f"{path}/signing-key"] = {
                    "metadata": {"name": "signing-key"},
                    "data": {key: base64.b64encode(text.encode()).decode() for key, text in data.items()},
                }
            return super().request(method, path, body, content)

    cluster = Late()
    stored = load_authority(cluster)
    kept = cluster.objects["/api/v1/namespaces/openshift-service-ca/secrets/signing-key"]
    assert base64.b64encode(stored.certificate.encode()).decode() == kept["data"]["tls.crt"]
