# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""Reads and checks certificates in files, and writes files whole. What a CA is and issues is in certificate_authority.

Runs on the control node, whose Ansible has the package `cryptography`.
"""

from __future__ import annotations

import datetime as dt
import os
import ssl
import traceback
from collections.abc import Sequence
from pathlib import Path

# Another Python than Ansible's own may lack it. The module then fails with a sentence.
WITHOUT_CRYPTOGRAPHY = ""
try:
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
    from cryptography.x509.oid import ExtendedKeyUsageOID
except ImportError:
    WITHOUT_CRYPTOGRAPHY = traceback.format_exc()

# More than any handshake takes.
_FLIGHTS = 5


class CertificateError(Exception):
    """What is wrong with which file, and what to do."""


def uses() -> tuple[x509.ObjectIdentifier, ...]:
    """Returns what a broker's certificate is for: it is server and client of other brokers."""
    return ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH


def now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def names_in(certificate: x509.Certificate) -> set[str]:
    """Returns the names and addresses that a certificate is for."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    return {
        *found.get_values_for_type(x509.DNSName),
        *map(str, found.get_values_for_type(x509.IPAddress)),
    }


def write(path: Path, content: bytes, mode: int) -> None:
    """Replaces a file whole, so that nobody reads half of it, and nobody else reads a key."""
    aside = path.with_name(f".{path.name}.new")
    aside.unlink(missing_ok=True)
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    aside.replace(path)


def certificate_in(path: Path, names: Sequence[str]) -> x509.Certificate:
    """Returns a host's own certificate, of a file with its key. Raises FileNotFoundError, CertificateError."""
    try:
        pem = path.read_bytes()
        key = serialization.load_pem_private_key(pem, None)
        certificate = x509.load_pem_x509_certificates(pem)[0]
    except FileNotFoundError:
        raise
    except (OSError, ValueError, TypeError) as error:
        raise CertificateError(f"{path} has no key and certificates that can be read: {error}") from error
    if key.public_key() != certificate.public_key():
        raise CertificateError(f"{path}: the key does not fit the first certificate")
    if not certificate.not_valid_before_utc <= now() <= certificate.not_valid_after_utc:
        raise CertificateError(
            f"{path} is valid from {certificate.not_valid_before_utc:%Y-%m-%d} until "
            f"{certificate.not_valid_after_utc:%Y-%m-%d}"
        )
    missing = [name for name in names if name not in names_in(certificate)]
    if missing:
        raise CertificateError(f"{path} is not for {', '.join(missing)} (subject alternative names)")
    return certificate


def given(path: Path, names: Sequence[str]) -> x509.Certificate:
    """Returns the certificate in a file of the operator's. Raises CertificateError."""
    try:
        certificate = certificate_in(path, names)
    except FileNotFoundError:
        raise CertificateError(f"{path} does not exist (landline_certificate_file)") from None
    try:
        found = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return certificate
    if not set(uses()) <= set(found):
        raise CertificateError(
            f"{path} must be for servers and for clients (extended key usage serverAuth, clientAuth): brokers are both"
        )
    return certificate


def why_untrusted(path: Path, trusted: Path) -> str:
    """Returns why brokers that trust the certificates in one file would refuse the certificate in the other, as
    a broker's and as a client's; empty if they would not.
    """
    try:
        broker, client = (
            _context(ssl.PROTOCOL_TLS_SERVER, path, trusted),
            _context(ssl.PROTOCOL_TLS_CLIENT, path, trusted),
        )
    except (OSError, ValueError) as error:
        return f"{path} and {trusted} cannot be used: {error}"
    to_broker, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = (
        client.wrap_bio(to_client, to_broker),
        broker.wrap_bio(to_broker, to_client, server_side=True),
    )
    for _unused in range(_FLIGHTS):
        for side in sides:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError as error:
                return f"{path} is not trusted by {trusted}: {error.verify_message}"
            except ssl.SSLError as error:
                return f"{path} cannot be used with {trusted}: {error.reason}"
    return ""


def _context(kind: int, path: Path, trusted: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(kind)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(path)
    context.load_verify_locations(trusted)
    return context
