"""Encodes passwords that are dynamic configs, so that ZooKeeper holds none in plain text.

The form is Kafka's PasswordEncoder (KIP-226): pairs of name and value with all that decoding needs besides
`password.encoder.secret`. A key is derived from that secret by PBKDF2, and encrypts the password by AES.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

_SALT_BYTES: Final = 256
_HASHES: Final[Mapping[str, str]] = {
    "PBKDF2WithHmacSHA512": "sha512",
    "PBKDF2WithHmacSHA384": "sha384",
    "PBKDF2WithHmacSHA256": "sha256",
    "PBKDF2WithHmacSHA224": "sha224",
    "PBKDF2WithHmacSHA1": "sha1",
}
_CIPHERS: Final = ("AES/CBC/PKCS5Padding", "AES/GCM/NoPadding")
_BLOCK_BITS: Final = 128
_TAG_BYTES: Final = 16


class PasswordError(Exception):
    """A password that cannot be encoded or decoded; the message names the config to look at."""


@dataclass(frozen=True, slots=True)
class EncoderSettings:
    """The configs ``password.encoder.*``. ``old_secret`` also decodes, while the secret is being changed."""

    secret: str | None
    old_secret: str | None = None
    cipher: str = "AES/CBC/PKCS5Padding"
    key_factory: str | None = None
    key_bits: int = 128
    iterations: int = 4096


class PasswordEncoder:
    """Kafka's PasswordEncoder, for one broker's settings."""

    def __init__(self, settings: EncoderSettings, random: Callable[[int], bytes] = os.urandom) -> None:
        self._settings = settings
        self._random = random

    def encode(self, password: str) -> str:
        """Raises PasswordError without a secret, and for algorithms that are not known here."""
        settings = self._settings
        if not settings.secret:
            raise PasswordError(
                "password.encoder.secret must be set: passwords are kept encoded in ZooKeeper"
            )
        factory = settings.key_factory or "PBKDF2WithHmacSHA512"
        salt = self._random(_SALT_BYTES)
        key = _key(settings.secret, factory, salt, settings.iterations, settings.key_bits)
        iv = self._random(12 if "GCM" in settings.cipher else 16)
        pairs = {
            "keyFactoryAlgorithm": factory,
            "cipherAlgorithm": settings.cipher,
            "keyLength": str(settings.key_bits),
            "salt": _text(salt),
            "iterations": str(settings.iterations),
            "encryptedPassword": _text(_encrypt(settings.cipher, key, iv, password.encode())),
            "passwordLength": str(_java_length(password)),
            "initializationVector": _text(iv),
        }
        if "GCM" in settings.cipher:
            pairs["authenticationTagLength"] = str(_TAG_BYTES * 8)
        return ",".join(f"{name}:{value}" for name, value in pairs.items())

    def decode(self, encoded: str) -> str:
        """Raises PasswordError."""
        pairs = dict(pair.partition(":")[::2] for pair in re.split(r"\s*,\s*", encoded))
        secrets = [secret for secret in (self._settings.secret, self._settings.old_secret) if secret]
        if not secrets:
            raise PasswordError("password.encoder.secret must be set: ZooKeeper has an encoded password")
        for secret in secrets:
            password = _decoded(secret, pairs)
            if password is not None:
                return password
        raise PasswordError(
            "password.encoder.secret does not decode the password in ZooKeeper: set the secret that it was "
            "encoded with, as password.encoder.old.secret if it was changed"
        )


def _decoded(secret: str, pairs: Mapping[str, str]) -> str | None:
    """The password, or None if this is not its secret."""
    try:
        key = _key(
            secret,
            pairs["keyFactoryAlgorithm"],
            base64.b64decode(pairs["salt"]),
            int(pairs["iterations"]),
            int(pairs["keyLength"]),
        )
        iv = base64.b64decode(pairs["initializationVector"])
        data = base64.b64decode(pairs["encryptedPassword"])
        length = int(pairs["passwordLength"])
    except (KeyError, ValueError) as error:
        raise PasswordError(f"an encoded password in ZooKeeper is damaged: {error!r}") from error
    try:
        password = _decrypt(pairs["cipherAlgorithm"], key, iv, data).decode()
    except (ValueError, _invalid_tag()):  # a wrong key gives wrong padding, or a wrong tag
        return None
    return password if _java_length(password) == length else None


def _java_length(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def _key(secret: str, factory: str, salt: bytes, iterations: int, bits: int) -> bytes:
    import hashlib  # imported late: with it comes OpenSSL

    if factory not in _HASHES:
        raise PasswordError(
            f"password.encoder.keyfactory.algorithm={factory} is not known: PBKDF2WithHmac* is"
        )
    return hashlib.pbkdf2_hmac(_HASHES[factory], secret.encode(), salt, iterations, bits // 8)


def _encrypt(cipher: str, key: bytes, iv: bytes, data: bytes) -> bytes:
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    from cryptography.hazmat.primitives.padding import PKCS7

    _check(cipher, key)
    if "GCM" in cipher:
        encryptor = Cipher(algorithms.AES(key), modes.GCM(iv)).encryptor()
        return encryptor.update(data) + encryptor.finalize() + encryptor.tag
    padder = PKCS7(_BLOCK_BITS).padder()
    padded = padder.update(data) + padder.finalize()
    plain = Cipher(algorithms.AES(key), modes.CBC(iv)).encryptor()
    return plain.update(padded) + plain.finalize()


def _decrypt(cipher: str, key: bytes, iv: bytes, data: bytes) -> bytes:
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    from cryptography.hazmat.primitives.padding import PKCS7

    _check(cipher, key)
    if "GCM" in cipher:
        tag = data[-_TAG_BYTES:]
        decryptor = Cipher(algorithms.AES(key), modes.GCM(iv, tag)).decryptor()
        return decryptor.update(data[:-_TAG_BYTES]) + decryptor.finalize()
    plain = Cipher(algorithms.AES(key), modes.CBC(iv)).decryptor()
    unpadder = PKCS7(_BLOCK_BITS).unpadder()
    return unpadder.update(plain.update(data) + plain.finalize()) + unpadder.finalize()


def _check(cipher: str, key: bytes) -> None:
    if cipher not in _CIPHERS:
        raise PasswordError(
            f"password.encoder.cipher.algorithm={cipher} is not known: {' and '.join(_CIPHERS)} are"
        )
    if len(key) not in {16, 24, 32}:
        raise PasswordError(f"password.encoder.key.length={len(key) * 8} is no length of AES: 128, 192, 256")


def _invalid_tag() -> type[Exception]:
    from cryptography.exceptions import InvalidTag

    return InvalidTag


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
