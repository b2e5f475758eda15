"""Which certificate the picker shows: the one it is given, or one it signs itself at start."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_LIFETIME = timedelta(days=3650)  # nobody verifies it: Envoy only encrypts


def certificate(cert_path: str) -> tuple[bytes, bytes]:
    """Private key and certificate in PEM: `tls.key` and `tls.crt` in `cert_path`, or fresh ones if that is empty."""
    if cert_path:
        folder = Path(cert_path)
        return (folder / "tls.key").read_bytes(), (folder / "tls.crt").read_bytes()
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Inference Ext")])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + _LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return private, signed.public_bytes(pem)
