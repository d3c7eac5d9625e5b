"""Reads key stores and trust stores: PEM files, PEM text in the configuration (KIP-651), and PKCS#12 files.

Java's own format, JKS, is refused with the command that converts it. Every error is a :class:`TlsError` with
the key and the file. `certificates` judges what was read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from broker.tls.settings import StoreSettings, TlsError

_JKS_MAGIC: Final = bytes.fromhex("feedfeed")
_JCEKS_MAGIC: Final = bytes.fromhex("cececece")
_MOST_BYTES: Final = 16 << 20
_PEM_KEY: Final = re.compile(
    r"(-----BEGIN (?:[A-Z]+ )?PRIVATE KEY-----)(.*?)(-----END (?:[A-Z]+ )?PRIVATE KEY-----)", re.DOTALL
)
_PEM_CERTIFICATE: Final = re.compile(
    r"(-----BEGIN CERTIFICATE-----)(.*?)(-----END CERTIFICATE-----)", re.DOTALL
)
_CONVERT: Final = (
    "keytool -importkeystore -srckeystore {file} -srcstoretype {kind} "
    "-destkeystore {file}.p12 -deststoretype PKCS12"
)


class KeyStore(NamedTuple):
    """A private key and the chain of certificates for it, the own one first; objects of `cryptography`."""

    key: Any
    chain: tuple[Any, ...]


def read_key_store(store: StoreSettings) -> KeyStore | None:
    """The key store, or None if none is configured. Raises TlsError."""
    text_keys = ("ssl.keystore.key", "ssl.keystore.certificate.chain")
    given = [key for key, text in zip(text_keys, (store.key, store.certificates), strict=True) if text]
    if len(given) == 1:
        missing = next(key for key in text_keys if key not in given)
        raise TlsError(missing, f"must be set together with {given[0]}")
    if given and store.location:
        raise TlsError(given[0], "is set, and so is ssl.keystore.location: keep one of them")
    if given:
        _require_pem("ssl.keystore.type", store, given[0])
        return _pem_key_store(store, str(store.key), str(store.certificates), text_keys)
    if not store.location:
        return None
    key = "ssl.keystore.location"
    if store.kind == "PEM":
        _refuse_pem_password("ssl.keystore.password", store)
        text = _pem_text(key, store.location)
        return _pem_key_store(store, text, text, (f"{key}:{store.location}",) * 2)
    return _pkcs12_key_store(store, store.location, _read(key, "ssl.keystore.type", store))


def read_trust_store(store: StoreSettings) -> tuple[Any, ...] | None:
    """The trusted certificates, or None if no trust store is configured. Raises TlsError."""
    if store.certificates and store.location:
        raise TlsError(
            "ssl.truststore.certificates", "is set, and so is ssl.truststore.location: keep one of them"
        )
    if store.certificates:
        _require_pem("ssl.truststore.type", store, "ssl.truststore.certificates")
        return _pem_certificates("ssl.truststore.certificates", store.certificates, "its text")
    if not store.location:
        return None
    key = "ssl.truststore.location"
    if store.kind == "PEM":
        _refuse_pem_password("ssl.truststore.password", store)
        return _pem_certificates(key, _pem_text(key, store.location), store.location)
    data = _read(key, "ssl.truststore.type", store)
    found = _load_pkcs12(data, store, "ssl.truststore.password")
    certificates = [found.cert, *found.additional_certs]
    trusted = tuple(each.certificate for each in certificates if each is not None)
    if not trusted:
        raise TlsError(key, f"{store.location} has no certificates")
    return trusted


# -- PEM


def _require_pem(type_key: str, store: StoreSettings, text_key: str) -> None:
    if store.kind != "PEM":
        raise TlsError(type_key, f"is {store.kind}, but {text_key} holds PEM text: set it to PEM")


def _refuse_pem_password(key: str, store: StoreSettings) -> None:
    if store.password:
        raise TlsError(
            key, f"is set, but {store.location} is PEM, which has none: a key has ssl.key.password"
        )


def _pem_text(key: str, location: str) -> str:
    data = _bytes_of(key, location)
    if data.startswith((_JKS_MAGIC, _JCEKS_MAGIC, b"\x30")):
        kind = "PKCS12" if data[:1] == b"\x30" else "JKS"
        raise TlsError(key, f"{location} is no PEM file but {kind}: set {key.replace('location', 'type')}")
    return data.decode("latin-1")


def _pem(match: re.Match[str]) -> bytes:
    """A key or certificate with line ends. In a properties file it may be on one line, or on lines that are
    continued and so have lost their ends.
    """
    begin, body, end = match.groups()
    if "Proc-Type" not in body:  # an old encrypted key has headers, whose lines are as they must be
        body = "\n".join(re.findall(r".{1,64}", re.sub(r"\s", "", body)))
    return f"{begin}\n{body.strip()}\n{end}\n".encode("latin-1")


def _pem_key_store(store: StoreSettings, key_text: str, chain_text: str, keys: Sequence[str]) -> KeyStore:
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    key_name, _, where = keys[0].partition(":")
    where = where or "its text"
    match = _PEM_KEY.search(key_text)
    if match is None:
        raise TlsError(key_name, f"{where} has no private key: -----BEGIN PRIVATE KEY----- is expected")
    password = store.key_password.encode() if store.key_password else None
    try:
        private = load_pem_private_key(_pem(match), password)
    except TypeError as error:  # a password for a plain key, or none for an encrypted one
        if password is None:
            raise TlsError(
                "ssl.key.password", f"must be set: the key in {where} of {key_name} is encrypted"
            ) from error
        private = _plain_key(_pem(match), key_name, where)
    except Exception as error:
        if password is not None:
            raise TlsError(
                "ssl.key.password", f"does not open the key in {where} of {key_name}: is it the right one?"
            ) from error
        raise TlsError(key_name, f"{where} has no usable private key: {error}") from error
    return KeyStore(private, _pem_certificates(keys[1].partition(":")[0], chain_text, where))


def _plain_key(pem: bytes, key_name: str, where: str) -> Any:
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        return load_pem_private_key(pem, None)
    except Exception as error:
        raise TlsError(key_name, f"{where} has no usable private key: {error}") from error


def _pem_certificates(key: str, text: str, where: str) -> tuple[Any, ...]:
    from cryptography.x509 import load_pem_x509_certificate

    found = list(_PEM_CERTIFICATE.finditer(text))
    if not found:
        raise TlsError(key, f"{where} has no certificate: -----BEGIN CERTIFICATE----- is expected")
    certificates = []
    for number, each in enumerate(found, 1):
        try:
            certificates.append(load_pem_x509_certificate(_pem(each)))
        except ValueError as error:
            raise TlsError(key, f"certificate {number} in {where} cannot be read: {error}") from error
    return tuple(certificates)


# -- PKCS#12


def _read(key: str, type_key: str, store: StoreSettings) -> bytes:
    """The bytes of a PKCS#12 file. Type JKS is Java's default, and Java reads PKCS#12 with it too."""
    location = str(store.location)
    data = _bytes_of(key, location)
    if data.startswith((_JKS_MAGIC, _JCEKS_MAGIC)):
        kind = "JKS" if data.startswith(_JKS_MAGIC) else "JCEKS"
        raise TlsError(
            key,
            f"{location} is a {kind} file, Java's own format, which is not supported. Convert it by "
            f"{_CONVERT.format(file=location, kind=kind)} and set {type_key}=PKCS12",
        )
    if b"-----BEGIN " in data[:4096]:
        raise TlsError(type_key, f"is {store.kind}, but {location} is a PEM file: set it to PEM")
    return data


def _pkcs12_key_store(store: StoreSettings, location: str, data: bytes) -> KeyStore:
    found = _load_pkcs12(data, store, "ssl.keystore.password")
    key = "ssl.keystore.location"
    if found.key is None or found.cert is None:
        raise TlsError(key, f"{location} has no private key with its certificate")
    if store.key_password and store.key_password != store.password:
        raise TlsError(
            "ssl.key.password",
            f"differs from ssl.keystore.password, but a PKCS#12 file such as {location} has one password: remove it",
        )
    chain = _chain(found.cert.certificate, [each.certificate for each in found.additional_certs])
    return KeyStore(found.key, chain)


def _load_pkcs12(data: bytes, store: StoreSettings, password_key: str) -> Any:
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

    try:
        return load_pkcs12(data, store.password.encode() if store.password else None)
    except Exception as error:
        if not data.startswith(b"\x30"):
            raise TlsError(
                password_key.replace("password", "location"), f"{store.location} is no PKCS#12 file"
            ) from error
        reason = "does not open" if store.password else "must be set: it opens"
        raise TlsError(password_key, f"{reason} {store.location}: {error}") from error


def _chain(own: Any, others: Sequence[Any]) -> tuple[Any, ...]:
    """The certificates in the order of a chain: each was issued by the next one."""
    chain = [own]
    left = list(others)
    while chain[-1].issuer != chain[-1].subject:
        found = next((each for each in left if each.subject == chain[-1].issuer), None)
        if found is None:
            break
        left.remove(found)
        chain.append(found)
    return tuple(chain)


def _bytes_of(key: str, location: str) -> bytes:
    try:
        with Path(location).open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except FileNotFoundError as error:
        raise TlsError(key, f"{location} does not exist: create it, or correct the path") from error
    except OSError as error:
        raise TlsError(
            key, f"{location} cannot be read: {error.strerror}; the broker's user needs to"
        ) from error
    if not data:
        raise TlsError(key, f"{location} is empty")
    if len(data) > _MOST_BYTES:
        raise TlsError(key, f"{location} is larger than {_MOST_BYTES} bytes: no key store is")
    return data
