"""The certificate of the embedded hub."""

from __future__ import annotations

from datetime import timedelta

from multi_agent_mcp.domain import times

VALID_DAYS = 3650


def new_certificate() -> tuple[bytes, bytes]:
    """Returns a new key and a self-signed certificate, which joining machines receive with their token."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "multi-agent-mcp hub")])
    now = times.now()
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=VALID_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    unencrypted = serialization.NoEncryption()
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, unencrypted)
    return private, certificate.public_bytes(serialization.Encoding.PEM)
