"""Judges certificates: whether a key fits, a chain holds together, and it is their time. Pure; objects are
those of `cryptography`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

from broker.security.distinguished_name import java_name
from broker.tls.settings import TlsError
from broker.tls.stores import KeyStore

Moment = dt.datetime
_DAY = dt.timedelta(days=1)


def check_key_store(store: KeyStore, key: str, where: str, now: Moment) -> None:
    """Raises TlsError, for ``key``, if the broker cannot prove who it is with this key store."""
    own = store.chain[0]
    if _public_bytes(own.public_key()) != _public_bytes(store.key.public_key()):
        raise TlsError(
            key,
            f"the private key does not fit the certificate {_name(own)} in {where}: the first certificate must be "
            "the key's own",
        )
    for number, (certificate, issuer) in enumerate(zip(store.chain, store.chain[1:], strict=False), 1):
        try:
            certificate.verify_directly_issued_by(issuer)
        except Exception as error:
            raise TlsError(
                key,
                f"certificate {number + 1} in {where}, {_name(issuer)}, did not sign certificate {number}, "
                f"{_name(certificate)}: order them from the broker's own to its CA's",
            ) from error
    for certificate in store.chain:
        check_time(certificate, key, where, now)


def check_time(certificate: Any, key: str, where: str, now: Moment) -> None:
    """Raises TlsError if the certificate has expired or is not valid yet."""
    if certificate.not_valid_after_utc < now:
        raise TlsError(
            key,
            f"the certificate {_name(certificate)} in {where} expired on {_day(certificate.not_valid_after_utc)}: "
            "put a new one there",
        )
    if certificate.not_valid_before_utc > now:
        raise TlsError(
            key,
            f"the certificate {_name(certificate)} in {where} is not valid before "
            f"{_day(certificate.not_valid_before_utc)}: is this host's clock right?",
        )


def check_trust_store(trusted: Sequence[Any], key: str, where: str, now: Moment) -> None:
    """Raises TlsError if no trusted certificate is valid now. Some of many may have expired."""
    errors = []
    for certificate in trusted:
        try:
            check_time(certificate, key, where, now)
        except TlsError as error:
            errors.append(error)
    if len(errors) == len(trusted):
        raise errors[0]


def check_successor(before: Any, after: Any, *, key: str, may_change_dn: bool, may_change_san: bool) -> None:
    """Raises TlsError if a reloaded certificate has another name than the one before, or lacks one of its
    alternative names (KIP-978).
    """
    if not may_change_dn and before.subject != after.subject:
        raise TlsError(
            key,
            f"the new certificate is for {_name(after)}, the one before was for {_name(before)}: set "
            "ssl.allow.dn.changes=true if that is right",
        )
    lost = alternative_names(before) - alternative_names(after)
    if not may_change_san and lost:
        raise TlsError(
            key,
            f"the new certificate lacks the alternative names {', '.join(sorted(lost))}: set "
            "ssl.allow.san.changes=true if that is right",
        )


def alternative_names(certificate: Any) -> frozenset[str]:
    """The subject's alternative names, such as ``DNS:host``."""
    from cryptography import x509

    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return frozenset()
    return frozenset(f"{type(name).__name__.removesuffix('Name')}:{name.value}" for name in names)


def days_left(chain: Sequence[Any], now: Moment) -> float:
    """Days until the first certificate of a chain expires; negative afterwards."""
    return min(float((certificate.not_valid_after_utc - now) / _DAY) for certificate in chain)


def _public_bytes(key: Any) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    encoded: bytes = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return encoded


def _name(certificate: Any) -> str:
    return java_name(certificate.subject) or "without a name"


def _day(moment: Moment) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"
