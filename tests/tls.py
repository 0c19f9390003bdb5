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
    now = datetime.now(UTC)
    return _server(pem, _issued(name, now - since, now + until))


def privately_issued(directory: Path, name: str) -> tuple[Path, ssl.SSLContext]:
    """The certificate of a private authority in a file, and TLS of a server with one that it has issued."""
    now = datetime.now(UTC)
    certificate, key = _issued("Private CA", now - HOUR, now + HOUR, is_authority=True)
    ca = directory / "ca.pem"
    ca.write_bytes(certificate.public_bytes(Encoding.PEM))
    return ca, _server(directory / "issued.pem", _issued(name, now - HOUR, now + HOUR, (certificate, key)))


Issued = tuple[x509.Certificate, ec.EllipticCurvePrivateKey]


def _issued(
    name: str, since: datetime, until: datetime, by: Issued | None = None, *, is_authority: bool = False
) -> Issued:
    """A certificate and its key, issued by itself if by no other."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    names: list[x509.GeneralName] = [x509.DNSName(name), x509.IPAddress(IPv4Address("127.0.0.2"))]
    draft = (
        x509.CertificateBuilder(by[0].subject if by else subject, subject, key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(since)
        .not_valid_after(until)
    )
    if is_authority:
        usage = x509.KeyUsage(False, False, False, False, False, True, False, False, False)  # signs certificates
        draft = draft.add_extension(usage, critical=True)
        draft = draft.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    else:
        draft = draft.add_extension(x509.SubjectAlternativeName(names), critical=False)
    if is_authority or by:  # RFC 5280 4.2.1 requires both, and Python 3.13 checks that
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key((by[1] if by else key).public_key())
        draft = draft.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        draft = draft.add_extension(issuer, critical=False)
    return draft.sign(by[1] if by else key, hashes.SHA256()), key


def _server(pem: Path, issued: Issued) -> ssl.SSLContext:
    certificate, key = issued
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
