#!/usr/bin/python
"""Keeps a CA of the cluster's own, and a key and a certificate for each host, in a directory of this machine.

Runs on the control node, whose Ansible has the package `cryptography`. Certificates of the operator's own are
only inspected.
"""

from __future__ import annotations

import datetime as dt
import fcntl
import ipaddress
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DOCUMENTATION = """
module: broker_certificates
short_description: A CA of the cluster's own, and certificates of the brokers' hosts
options:
  directory:
    description: Where the CA and the hosts' keys and certificates are; made if it is missing. Empty for given ones.
    type: str
    default: ""
  hosts:
    description:
      - The hosts, each with name, names (the names and addresses that its certificate is for) and file.
      - C(file) is a PEM file with a key and its certificates that is given, else empty.
    type: list
    elements: dict
    required: true
  days:
    description: Days for which a new certificate is valid.
    type: int
    default: 365
  renew_days:
    description: A certificate with fewer days left is replaced.
    type: int
    default: 30
  renew:
    description: Replaces all certificates.
    type: bool
    default: false
  issue:
    description: Whether to write anything; otherwise it only tells who the brokers are.
    type: bool
    default: true
"""
EXAMPLES = """
- name: Issue the certificates
  broker_certificates:
    directory: /srv/landline-ca
    hosts:
      - {name: kafka-a, names: [kafka-a, 192.0.2.11], file: ""}
  delegate_to: localhost
"""
RETURN = """
hosts:
  description: By host, the path of its key and certificates, and the principal that the certificate makes it.
  type: dict
  returned: success
issued:
  description: Hosts that got a new certificate, each with the reason.
  type: dict
  returned: success
trusted:
  description: Path of the CA's certificate; empty where certificates are given.
  type: str
  returned: success
"""

# One subject for all brokers: a host more does not change who they are.
SUBJECT = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "landline-broker")])
CA_DAYS = 3650
# For clocks that are behind.
EARLIER = dt.timedelta(hours=1)
USES = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)


class CertificateError(Exception):
    """What is wrong with which file, and what to do."""


def now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def alternative_names(names: Sequence[str]) -> list[x509.GeneralName]:
    """Returns names and addresses as a certificate has them."""
    found: list[x509.GeneralName] = []
    for name in names:
        try:
            found.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            found.append(x509.DNSName(name))
    return found


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


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def builder(subject: x509.Name, issuer: x509.Name, key: Any, days: int) -> x509.CertificateBuilder:
    """Returns what all certificates have."""
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now() - EARLIER)
        .not_valid_after(now() + dt.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def usage(**given: bool) -> x509.KeyUsage:
    names = (
        "digital_signature",
        "content_commitment",
        "key_encipherment",
        "data_encipherment",
        "key_agreement",
        "key_cert_sign",
        "crl_sign",
        "encipher_only",
        "decipher_only",
    )
    return x509.KeyUsage(**{name: given.get(name, False) for name in names})


class Authority:
    """The cluster's own CA: ca.key and ca.pem in a directory, made if both are missing."""

    def __init__(self, directory: Path, may_write: bool) -> None:
        self.path = directory / "ca.pem"
        key_path = directory / "ca.key"
        self.is_new = not self.path.exists() and not key_path.exists()
        if self.is_new:
            self.key: Any = ec.generate_private_key(ec.SECP256R1())
            self.certificate = self._make()
            if may_write:
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                write(key_path, key_pem(self.key), 0o600)
                write(self.path, self.certificate.public_bytes(serialization.Encoding.PEM), 0o644)
            return
        try:
            self.key = serialization.load_pem_private_key(key_path.read_bytes(), None)
            self.certificate = x509.load_pem_x509_certificate(self.path.read_bytes())
        except (OSError, ValueError, TypeError) as error:
            raise CertificateError(
                f"{key_path} and {self.path} belong together, and one cannot be read: {error}"
            ) from error
        if self.key.public_key() != self.certificate.public_key():
            raise CertificateError(f"{key_path} is not the key of {self.path}: bring back the one that is")
        if self.certificate.not_valid_after_utc < now():
            raise CertificateError(f"{self.path} has expired: move it and {key_path} away for a new CA")

    def _make(self) -> x509.Certificate:
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Landline cluster CA")])
        return (
            builder(name, name, self.key, CA_DAYS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage(key_cert_sign=True, crl_sign=True), critical=True)
            .sign(self.key, hashes.SHA256())
        )

    def issue(self, names: Sequence[str], days: int) -> bytes:
        """Returns a new key and its certificate, as PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        issuer = self.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
        certificate = (
            builder(SUBJECT, self.certificate.subject, key, days)
            .add_extension(x509.SubjectAlternativeName(alternative_names(names)), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(usage(digital_signature=True), critical=True)
            .add_extension(x509.ExtendedKeyUsage(USES), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer), critical=False
            )
            .sign(self.key, hashes.SHA256())
        )
        return key_pem(key) + certificate.public_bytes(serialization.Encoding.PEM)

    def why_not(self, path: Path, names: Sequence[str], renew_days: int) -> str:
        """Returns why a host needs another certificate than the one in the file; empty if it does not."""
        try:
            certificate = certificate_in(path, names)
        except FileNotFoundError:
            return "it had none"
        except CertificateError as error:
            return str(error)
        if not is_signed_by(certificate, self.certificate):
            return "it was of another CA"
        if certificate.not_valid_after_utc < now() + dt.timedelta(days=renew_days):
            return f"it is valid until {certificate.not_valid_after_utc:%Y-%m-%d} only"
        if names_in(certificate) != set(names):
            return "its names have changed"
        return ""


def is_signed_by(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except Exception:  # ValueError, TypeError or InvalidSignature: it is not, whatever it is
        return False
    return True


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
        uses = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return certificate
    if not set(USES) <= set(uses):
        raise CertificateError(
            f"{path} must be for servers and for clients (extended key usage serverAuth, clientAuth): brokers are both"
        )
    return certificate


@contextmanager
def alone(directory: Path, may_write: bool) -> Iterator[None]:
    """Keeps other runs out of the directory."""
    if not may_write:
        yield
        return
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def keep(params: Mapping[str, Any], may_write: bool) -> dict[str, Any]:
    """Returns the module's result. Raises CertificateError, OSError."""
    hosts = {
        each["name"]: principal(given(Path(each["file"]), each["names"]), each["file"])
        for each in params["hosts"]
        if each.get("file")
    }
    own = [each for each in params["hosts"] if not each.get("file")]
    issued: dict[str, str] = {}
    if not own:
        return {"hosts": hosts, "issued": issued, "trusted": "", "changed": False}
    directory = Path(params["directory"])
    with alone(directory, may_write):
        authority = Authority(directory, may_write)
        for each in own:
            path = directory / f"{each['name']}.pem"
            wrong = authority.why_not(path, each["names"], params["renew_days"])
            if params["renew"] and not wrong:
                wrong = "it was to be renewed"
            if wrong:
                issued[each["name"]] = wrong
                if may_write:
                    write(path, authority.issue(each["names"], params["days"]), 0o600)
            hosts[each["name"]] = {"path": str(path), "principal": f"User:{SUBJECT.rfc4514_string()}"}
    return {
        "hosts": hosts,
        "issued": issued,
        "trusted": str(authority.path),
        "changed": authority.is_new or bool(issued),
    }


def principal(certificate: x509.Certificate, path: str) -> dict[str, str]:
    return {"path": path, "principal": f"User:{certificate.subject.rfc4514_string()}"}


def main() -> None:
    module = AnsibleModule(
        {
            "directory": {"default": ""},
            "hosts": {"type": "list", "elements": "dict", "required": True},
            "days": {"type": "int", "default": 365},
            "renew_days": {"type": "int", "default": 30},
            "renew": {"type": "bool", "default": False},
            "issue": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    try:
        found = keep(module.params, may_write=module.params["issue"] and not module.check_mode)
        module.exit_json(**{**found, "changed": found["changed"] and module.params["issue"]})
    except (CertificateError, OSError) as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
