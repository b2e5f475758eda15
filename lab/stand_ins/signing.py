"""Certificates for programs of the lab: an authority and what it signs.

RSA keys in PKCS #1, as the real service CA makes them; KEDA's certificate rotation reads no other.
"""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_VALIDITY = dt.timedelta(days=3650)  # longer than any lab lives, so nothing here has to renew by date
_CLOCK_SKEW = dt.timedelta(hours=1)
_COMMON_NAME_LENGTH = 64  # X.509's limit; clients read the DNS names anyway


@dataclass(frozen=True)
class KeyPair:
    """A certificate and its private key, both PEM."""

    certificate: str
    key: str


def new_authority(common_name: str, dns_names: Sequence[str] = ()) -> KeyPair:
    """A new self-signed certificate authority (ten years)."""
    key = _key()
    subject = _name(common_name)
    builder = _builder(subject, subject, key, dns_names)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
    return _pem(builder.sign(key, hashes.SHA256()), key)


def issue(authority: KeyPair, dns_names: Sequence[str]) -> KeyPair:
    """A certificate for `dns_names` (server and client authentication), signed by `authority`."""
    signer = x509.load_pem_x509_certificate(authority.certificate.encode())
    signing_key = serialization.load_pem_private_key(authority.key.encode(), password=None)
    if not isinstance(signing_key, rsa.RSAPrivateKey):
        raise TypeError("an authority of ours has an RSA key")
    key = _key()
    builder = _builder(_name(dns_names[0]), signer.subject, key, dns_names)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
    purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key())
    builder = builder.add_extension(identifier, critical=False)
    return _pem(builder.sign(signing_key, hashes.SHA256()), key)


def serving_pair(directory: str, name: str) -> KeyPair:
    """`tls.crt` and `tls.key` in `directory`; if that is empty, a fresh pair that nobody is asked to trust."""
    if directory:
        return KeyPair(Path(directory, "tls.crt").read_text(), Path(directory, "tls.key").read_text())
    return issue(new_authority(name), [name])


def _key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: rsa.RSAPrivateKey, dns_names: Sequence[str]
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + _VALIDITY)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    if dns_names:
        names = x509.SubjectAlternativeName([x509.DNSName(name) for name in dns_names])
        builder = builder.add_extension(names, critical=False)
    return builder


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name[:_COMMON_NAME_LENGTH])])


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=not signs_certificates,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate, key: rsa.RSAPrivateKey) -> KeyPair:
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    return KeyPair(certificate.public_bytes(serialization.Encoding.PEM).decode(), private.decode())
