"""The lab's PKI: who is signed by whom, as whom, and who may read it."""

import base64
import ipaddress
import stat

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from lab.node import certificates, network
from lab.node.certificates import Authority, Leaf, Pki
from lab.paths import Instance


@pytest.fixture
def pki(tmp_path, monkeypatch) -> Pki:
    monkeypatch.setattr("lab.paths.STATE_ROOT", tmp_path)
    (tmp_path / "t9").mkdir()
    return certificates.create(Instance("t9"))


def load(path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_every_certificate_is_signed_by_the_clusters_authority_and_fits_its_key(pki):
    authority = load(pki.ca)
    for name in certificates.leaves("lab-t9"):
        certificate = load(pki.certificate(name))
        certificate.verify_directly_issued_by(authority)
        key = serialization.load_pem_private_key(pki.key(name).read_bytes(), None)
        assert key.public_key() == certificate.public_key(), name


def test_the_front_proxy_has_an_authority_of_its_own(pki):
    client = load(pki.certificate("front-proxy-client"))
    client.verify_directly_issued_by(load(pki.certificate("front-proxy-ca")))
    with pytest.raises(ValueError, match="does not match certificate issuer"):
        client.verify_directly_issued_by(load(pki.ca))


def test_the_kubelets_user_is_the_node_so_that_node_authorization_lets_it_in(pki):
    subject = load(pki.certificate("kubelet")).subject.rfc4514_string()
    assert subject == "O=system:nodes,CN=system:node:lab-t9"


def test_the_api_server_answers_to_every_address_it_is_called_by(pki):
    names = load(pki.certificate("apiserver")).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    addresses = set(names.get_values_for_type(x509.IPAddress))
    assert addresses == {ipaddress.ip_address(ip) for ip in ("127.0.0.1", network.API_SERVICE_IP, network.NODE_IP)}
    assert {"localhost", "kubernetes.default.svc"} <= set(names.get_values_for_type(x509.DNSName))


def test_a_leaf_without_names_is_a_client_and_one_with_names_a_server():
    authority = certificates.authority("x")
    for leaf, purpose in ((Leaf("a"), "clientAuth"), (Leaf("b", names=("b",)), "serverAuth")):
        certificate, _ = certificates.issue(authority, leaf)
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        assert [use._name for use in usage] == [purpose]


def test_an_authority_may_sign_certificates_and_a_leaf_may_not():
    authority: Authority = certificates.authority("x")
    leaf, _ = certificates.issue(authority, Leaf("a"))
    for certificate, is_authority in ((authority.certificate, True), (leaf, False)):
        assert certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca is is_authority


def test_nobody_but_root_can_read_keys_and_kubeconfigs(pki, tmp_path):
    secrets = [*pki.directory.glob("*.key"), *pki.directory.glob("*.kubeconfig"), tmp_path / "t9" / "kubeconfig"]
    assert len(secrets) > 10
    assert {stat.S_IMODE(path.stat().st_mode) for path in secrets} == {0o600}


def test_the_kubeconfig_outside_goes_to_the_forwarded_port_as_administrator(pki):
    document = yaml.safe_load((pki.directory.parent / "kubeconfig").read_text())
    assert document["clusters"][0]["cluster"]["server"] == f"https://127.0.0.1:{Instance('t9').api_port}"
    user = document["users"][0]["user"]
    certificate = x509.load_pem_x509_certificate(base64.b64decode(user["client-certificate-data"]))
    assert certificate.subject.rfc4514_string() == "O=system:masters,CN=lab-admin"
    assert document["current-context"] == document["contexts"][0]["name"]


def test_kubeconfigs_inside_go_to_the_api_server_itself(pki):
    for user in certificates.KUBECONFIG_USERS:
        document = yaml.safe_load(pki.kubeconfig(user).read_text())
        assert document["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:6443", user
