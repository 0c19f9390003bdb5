"""Servers with TLS for tests, each with a certificate of its own."""

import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

HOUR = timedelta(hours=1)


def server_tls(pem: Path, name: str, since: timedelta = HOUR, until: timedelta = HOUR) -> ssl.SSLContext:
    """TLS of a server with this name, or at 127.0.0.2, whose certificate, good since so long and for so long, is
    written into the file."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    names: list[x509.GeneralName] = [x509.DNSName(name), x509.IPAddress(IPv4Address("127.0.0.2"))]
    certificate = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - since)
        .not_valid_after(now + until)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    pem.write_bytes(certificate.public_bytes(Encoding.PEM) + private)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    return context


class Tls:
    """Certificates that `client` trusts."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

    def server(self, name: str) -> ssl.SSLContext:
        path = self.directory / "server.pem"
        context = server_tls(path, name)
        self.client.load_verify_locations(path)
        return context
