"""Certificates for tests and benchmarks: an authority, what it issues, and files of both as brokers and clients
read them.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

DAY = dt.timedelta(days=1)


def trusting(pem: bytes | str) -> ssl.SSLContext:
    """A client's context that trusts this CA. From Python 3.13 on the default is strict, and refuses our certificates:
    like those of many operators' own CAs, they name no key of their issuer.
    """
    context = ssl.create_default_context(cadata=pem if isinstance(pem, str) else pem.decode())
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def subject(common_name: str, unit: str = "") -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.COUNTRY_NAME, "DE")]
    if unit:
        attributes.append(x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, unit))
    return x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


@dataclass
class Issued:
    """A certificate, its key, and its issuers' certificates."""

    certificate: x509.Certificate
    key: Any
    issuers: tuple[x509.Certificate, ...] = ()

    @property
    def chain_pem(self) -> bytes:
        return b"".join(each.public_bytes(Encoding.PEM) for each in (self.certificate, *self.issuers))

    def key_pem(self, password: str | None = None) -> bytes:
        encryption = BestAvailableEncryption(password.encode()) if password else NoEncryption()
        pem: bytes = self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
        return pem

    def write_pem(self, path: Path, password: str | None = None) -> Path:
        path.write_bytes(self.key_pem(password) + self.chain_pem)
        return path

    def write_p12(self, path: Path, password: str) -> Path:
        encryption = BestAvailableEncryption(password.encode())
        path.write_bytes(
            pkcs12.serialize_key_and_certificates(
                b"own", self.key, self.certificate, self.issuers, encryption
            )
        )
        return path


class Authority:
    """A CA, or one below another."""

    def __init__(
        self,
        name: str = "Test CA",
        above: Authority | None = None,
        *,
        begins: dt.timedelta = -DAY,
        ends: dt.timedelta = 365 * DAY,
    ) -> None:
        self.issued = _issue(
            subject(name), above, ec.generate_private_key(ec.SECP256R1()), begins, ends, ca=True
        )

    @property
    def certificate(self) -> x509.Certificate:
        return self.issued.certificate

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(Encoding.PEM)

    def write_pem(self, path: Path) -> Path:
        path.write_bytes(self.pem)
        return path

    def write_p12(self, path: Path, password: str) -> Path:
        encryption = BestAvailableEncryption(password.encode())
        path.write_bytes(
            pkcs12.serialize_key_and_certificates(None, None, None, [self.certificate], encryption)
        )
        return path

    def issue(
        self,
        name: str | x509.Name = "broker",
        hosts: Sequence[str] = ("127.0.0.1", "localhost"),
        *,
        begins: dt.timedelta = -DAY,
        ends: dt.timedelta = 90 * DAY,
        with_rsa: bool = False,
    ) -> Issued:
        key = (
            rsa.generate_private_key(public_exponent=65537, key_size=2048)
            if with_rsa
            else ec.generate_private_key(ec.SECP256R1())
        )
        whole = subject(name) if isinstance(name, str) else name
        return _issue(whole, self, key, begins, ends, hosts=hosts)


class Stores:
    """The PEM files of a broker and of its authority, in a directory, and the configs that name them. The
    broker's certificate is for ``hosts``.
    """

    def __init__(self, directory: Path, hosts: Sequence[str] = ("127.0.0.1", "localhost")) -> None:
        self.directory = directory
        self.ca = Authority()
        self.pem = self.ca.issue(hosts=hosts).write_pem(directory / "broker.pem")
        self.trust = self.ca.write_pem(directory / "ca.pem")
        self.configs: dict[str, str] = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.pem),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.trust),
        }


def _issue(
    name: x509.Name,
    above: Authority | None,
    key: Any,
    begins: dt.timedelta,
    ends: dt.timedelta,
    *,
    ca: bool = False,
    hosts: Sequence[str] = (),
) -> Issued:
    issuer = above.issued if above else None
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer.certificate.subject if issuer else name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now() + begins)
        .not_valid_after(now() + ends)
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    )
    if hosts:
        names = x509.SubjectAlternativeName([_alternative(host) for host in hosts])
        builder = builder.add_extension(names, critical=False)
    certificate = builder.sign(issuer.key if issuer else key, hashes.SHA256())
    if issuer is None:
        return Issued(certificate, key)
    # A root is left out: who trusts it has it.
    below_root = issuer.issuers or issuer.certificate.issuer != issuer.certificate.subject
    return Issued(certificate, key, (issuer.certificate, *issuer.issuers) if below_root else ())
