# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""The cluster's own CA in a directory of the control node, and how another one takes its place.

What is in files of certificates is read and checked in certificate_files.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import json
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ansible_collections.landline.cluster.plugins.module_utils.certificate_files import (
    CertificateError,
    certificate_in,
    names_in,
    now,
    uses,
    write,
)

with suppress(ImportError):  # the module looks at WITHOUT_CRYPTOGRAPHY
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

CA_NAME = "Landline cluster CA"
CA_DAYS = 3650
# For clocks that are behind.
EARLIER = dt.timedelta(hours=1)
TRUST, ISSUE, DROP = STEPS = ("trust", "issue", "drop")


def subject() -> x509.Name:
    """Returns the one subject of all brokers: a host more does not change who they are."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "landline-broker")])


def alternative_names(names: Sequence[str]) -> list[x509.GeneralName]:
    """Returns names and addresses as a certificate has them."""
    found: list[x509.GeneralName] = []
    for name in names:
        try:
            found.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            found.append(x509.DNSName(name))
    return found


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


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
    """A CA: ca.key and ca.pem in a directory, made if both are missing."""

    def __init__(self, directory: Path, may_write: bool, name: str = CA_NAME) -> None:
        self.path = directory / "ca.pem"
        key_path = directory / "ca.key"
        self.is_new = not self.path.exists() and not key_path.exists()
        if self.is_new:
            self.key: Any = ec.generate_private_key(ec.SECP256R1())
            self.certificate = self._make(name)
            if may_write:
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                write(key_path, key_pem(self.key), 0o600)
                write(self.path, pem(self.certificate), 0o644)
            return
        try:
            self.key = serialization.load_pem_private_key(key_path.read_bytes(), None)
            if not self.path.exists() and may_write:  # a run ended between the two
                write(self.path, pem(self._make(name)), 0o644)
            self.certificate = x509.load_pem_x509_certificate(self.path.read_bytes())
        except (OSError, ValueError, TypeError) as error:
            raise CertificateError(
                f"{key_path} and {self.path} belong together, and one cannot be read: {error}"
            ) from error
        if self.key.public_key() != self.certificate.public_key():
            raise CertificateError(f"{key_path} is not the key of {self.path}: bring back the one that is")
        if self.certificate.not_valid_after_utc < now():
            raise CertificateError(f"{self.path} has expired: move it and {key_path} away for a new CA")

    def _make(self, common_name: str) -> x509.Certificate:
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
        return (
            builder(name, name, self.key, CA_DAYS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage(key_cert_sign=True, crl_sign=True), critical=True)
            .sign(self.key, hashes.SHA256())
        )

    def issue(self, names: Sequence[str], days: int) -> bytes:
        """Returns a new key and its certificate, as PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            builder(subject(), self.certificate.subject, key, days)
            .add_extension(x509.SubjectAlternativeName(alternative_names(names)), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(usage(digital_signature=True), critical=True)
            .add_extension(x509.ExtendedKeyUsage(uses()), critical=False)
            .add_extension(self._identifier(), critical=False)
            .sign(self.key, hashes.SHA256())
        )
        return key_pem(key) + certificate.public_bytes(serialization.Encoding.PEM)

    def _identifier(self) -> x509.AuthorityKeyIdentifier:
        try:
            own = self.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
        except x509.ExtensionNotFound:  # a CA that was put there
            return x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own)

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


class Authorities:
    """The cluster's own CA, and the one that replaces it: the directory `rollover` has it while that lasts.

    A replacement has three steps, and a host's certificate is issued anew in each, so that a broker which
    presents it has also read the trusted certificates of that step:

    - trust: hosts trust both CAs. The old one issues certificates.
    - issue: hosts trust both CAs. The new one issues certificates.
    - drop: hosts trust the new one alone. When all do, it takes the place of the old one, whose key is gone.

    Each file is replaced whole; a step counts when its file is there, and `rollover` goes by one rename. So
    a run that ends anywhere leaves a step that the next run goes on with.
    """

    def __init__(self, directory: Path, may_write: bool) -> None:
        self._home, self._may_write = directory, may_write
        self._rollover = directory / "rollover"
        if may_write:
            for left in directory.glob(".rollover.*"):
                shutil.rmtree(left)
        self.changed = False
        self._load()

    def _load(self) -> None:
        self.step, self._before = self._read()
        if self.step:
            self._next = Authority(self._rollover, may_write=False)
            if self._next.is_new:
                raise CertificateError(f"{self._rollover} has no ca.key and ca.pem: bring them back")
        if self.step != DROP:  # in that step, files of the old one may be the new one's already
            self._old = Authority(self._home, self._may_write)
            self.changed |= self._old.is_new

    def _read(self) -> tuple[str, dict[str, int]]:
        path = self._rollover / "step.json"
        try:
            found = json.loads(path.read_bytes())
            return STEPS[STEPS.index(found["step"])], dict(found["before"])
        except FileNotFoundError:
            return "", {}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CertificateError(f"{path} cannot be read: {error}; bring back the one that can") from error

    @property
    def issuer(self) -> Authority:
        """The CA that issues certificates now."""
        return self._next if self.step in (ISSUE, DROP) else self._old

    def trusted(self) -> Path:
        """Returns the file with the certificates that hosts trust now."""
        if not self.step:
            return self._old.path
        both = [self._next] if self.step == DROP else [self._old, self._next]
        path, content = self._rollover / "trusted.pem", b"".join(pem(each.certificate) for each in both)
        if self._may_write and (not path.exists() or path.read_bytes() != content):
            write(path, content, 0o644)
        return path

    def is_from_before(self, host: str) -> bool:
        """Whether a host's certificate was there before this step."""
        return host in self._before and self._serial(host) == self._before[host]

    def take(self, wanted: str, hosts: Iterable[str], hosts_are_done: bool) -> bool:
        """Goes on to the wanted step, if the hosts have what the step before it brought; after the last step it
        ends the replacement. Returns whether the wanted step is still to come. Raises CertificateError.
        """
        if wanted == self.step == DROP and hosts_are_done:
            self._end()
        if wanted in ("", self.step) or (wanted == DROP and not self.step):
            return False
        if wanted == TRUST and not self.step:
            self._begin(hosts)
            return False
        if (self.step, wanted) not in ((TRUST, ISSUE), (ISSUE, DROP)):
            raise CertificateError(
                f"landline_ca_rollover is {wanted}, and the CA in {self._home} "
                + (f"is being replaced: its step is {self.step}" if self.step else "is not being replaced")
                + f". The steps are {', '.join(STEPS)}, each in a run of its own"
            )
        if hosts_are_done and self._may_write:
            self._write_step(wanted, hosts)
        return self.step != wanted

    def _begin(self, hosts: Iterable[str]) -> None:
        if not self._may_write:
            return
        Authority(self._rollover, may_write=True, name=f"{CA_NAME} {now():%Y-%m-%d}")
        self._write_step(TRUST, hosts)

    def _end(self) -> None:
        if not self._may_write:
            return
        write(self._home / "ca.key", key_pem(self._next.key), 0o600)
        write(self._home / "ca.pem", pem(self._next.certificate), 0o644)
        done = self._home / ".rollover.done"
        self._rollover.rename(done)
        shutil.rmtree(done)
        self._load()
        self.changed = True

    def _write_step(self, step: str, hosts: Iterable[str]) -> None:
        before = {host: serial for host in hosts if (serial := self._serial(host)) is not None}
        write(self._rollover / "step.json", json.dumps({"step": step, "before": before}).encode(), 0o600)
        self._load()
        self.changed = True

    def _serial(self, host: str) -> int | None:
        try:
            return x509.load_pem_x509_certificates((self._home / f"{host}.pem").read_bytes())[0].serial_number
        except (OSError, ValueError):
            return None
