"""Who may say to be whom in the lab: its authorities, the parts' certificates and the kubeconfigs made of them.

Made anew for every lab and thrown away with it, so validity is generous and nothing rotates. Users and groups are
Kubernetes's own conventions (kubernetes.io/docs/setup/best-practices/certificates).
"""

import base64
import datetime as dt
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from lab.node import network
from lab.paths import Instance

_VALIDITY = dt.timedelta(days=365)  # longer than a lab lives; it starts with new ones
_CLOCK_SKEW = dt.timedelta(hours=1)


@dataclass(frozen=True)
class Authority:
    """A certificate authority with its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


@dataclass(frozen=True)
class Leaf:
    """One certificate to make: subject, and names when it is a server's.

    Attributes:
        common_name: The user, or the server's first name.
        organizations: The user's groups.
        names: DNS names and IP addresses a server answers to; empty = a client's certificate.
    """

    common_name: str
    organizations: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Pki:
    """Paths of everything that `create` wrote, all in one directory."""

    directory: Path

    @property
    def ca(self) -> Path:
        """Certificate of the cluster's authority."""
        return self.directory / "ca.crt"

    def certificate(self, name: str) -> Path:
        """Certificate called `name`."""
        return self.directory / f"{name}.crt"

    def key(self, name: str) -> Path:
        """Private key called `name`."""
        return self.directory / f"{name}.key"

    def kubeconfig(self, name: str) -> Path:
        """Kubeconfig of the user called `name`, for use inside the lab."""
        return self.directory / f"{name}.kubeconfig"


def leaves(node: str) -> Mapping[str, Leaf]:
    """File name → certificate signed by the cluster's authority, for a node called `node`."""
    return {
        "apiserver": Leaf(
            "kube-apiserver",
            names=(
                "kubernetes",
                "kubernetes.default",
                "kubernetes.default.svc",
                f"kubernetes.default.svc.{network.CLUSTER_DOMAIN}",
                "localhost",
                "127.0.0.1",
                network.API_SERVICE_IP,
                network.NODE_IP,
            ),
        ),
        "kubelet-server": Leaf(node, names=(node, network.NODE_IP, "127.0.0.1")),
        "apiserver-kubelet-client": Leaf("kube-apiserver-kubelet-client", ("system:masters",)),
        "admin": Leaf("lab-admin", ("system:masters",)),
        "kubelet": Leaf(f"system:node:{node}", ("system:nodes",)),
        "controller-manager": Leaf("system:kube-controller-manager"),
        "scheduler": Leaf("system:kube-scheduler"),
        "kube-proxy": Leaf(
            "system:kube-proxy"
        ),  # bound to system:node-proxier by the API server's own bootstrap policy
    }


KUBECONFIG_USERS = ("admin", "kubelet", "controller-manager", "scheduler", "kube-proxy")
FRONT_PROXY_CLIENT = "front-proxy-client"  # the name that aggregated API servers are told to trust


def authority(common_name: str) -> Authority:
    """A new self-signed authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = (
        _builder(name, name, key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA256())
    )
    return Authority(certificate, key)


def issue(signer: Authority, leaf: Leaf) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """A certificate for `leaf` and its new key."""
    key = ec.generate_private_key(ec.SECP256R1())
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, leaf.common_name)]
    attributes += [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in leaf.organizations]
    purpose = ExtendedKeyUsageOID.SERVER_AUTH if leaf.names else ExtendedKeyUsageOID.CLIENT_AUTH
    builder = (
        _builder(x509.Name(attributes), signer.certificate.subject, key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.key.public_key()), critical=False)
    )
    if leaf.names:
        names = [_general_name(name) for name in leaf.names]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(signer.key, hashes.SHA256()), key


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + _VALIDITY)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def create(instance: Instance) -> Pki:
    """Write the lab's whole PKI and every kubeconfig; files are readable by their owner only.

    The cluster authority's pair stays beside the rest (`ca.crt`, `ca.key`), the front proxy's as `front-proxy-ca.*`.
    """
    pki = Pki(instance.state / "pki")
    pki.directory.mkdir(parents=True, mode=0o700)
    cluster, front_proxy = authority("llm-d-lab"), authority("llm-d-lab-front-proxy")
    for name, signer in (("ca", cluster), ("front-proxy-ca", front_proxy)):
        _write_pair(pki, name, signer.certificate, signer.key)
    for name, leaf in leaves(instance.node).items():
        _write_pair(pki, name, *issue(cluster, leaf))
    _write_pair(pki, FRONT_PROXY_CLIENT, *issue(front_proxy, Leaf(FRONT_PROXY_CLIENT)))
    service_accounts = ec.generate_private_key(ec.SECP256R1())
    _write(pki.key("service-account"), _private(service_accounts))
    _write(pki.directory / "service-account.pub", _public(service_accounts))
    for user in KUBECONFIG_USERS:
        _write(pki.kubeconfig(user), kubeconfig(pki, user, f"https://127.0.0.1:{network.API_PORT}", instance).encode())
    outside = kubeconfig(pki, "admin", f"https://127.0.0.1:{instance.api_port}", instance)
    _write(instance.kubeconfig, outside.encode())
    return pki


def kubeconfig(pki: Pki, user: str, server: str, instance: Instance) -> str:
    """A kubeconfig, certificates embedded, with which `user` talks to `server`."""
    name = instance.node

    def embedded(path: Path) -> str:
        return base64.b64encode(path.read_bytes()).decode()

    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": name, "cluster": {"server": server, "certificate-authority-data": embedded(pki.ca)}},
        ],
        "users": [
            {
                "name": user,
                "user": {
                    "client-certificate-data": embedded(pki.certificate(user)),
                    "client-key-data": embedded(pki.key(user)),
                },
            }
        ],
        "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
        "current-context": name,
    }
    return yaml.safe_dump(document, sort_keys=False)


def _write_pair(pki: Pki, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
    _write(pki.certificate(name), certificate.public_bytes(serialization.Encoding.PEM))
    _write(pki.key(name), _private(key))


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _public(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def _write(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)
