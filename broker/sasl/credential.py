"""A SCRAM credential, and its text in ``/config/users``. Pure, and without hashes, which take time to import."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What a server knows of a user's password; Kafka's ScramCredential. ``str()`` is its text in the znode."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __str__(self) -> str:
        return (
            f"salt={to_base64(self.salt)},stored_key={to_base64(self.stored_key)},"
            f"server_key={to_base64(self.server_key)},iterations={self.iterations}"
        )

    def __repr__(self) -> str:
        return f"<ScramCredential of {self.iterations} iterations>"

    @classmethod
    def parse(cls, text: str) -> ScramCredential:
        """Raises ValueError, without the text."""
        fields = dict(part.partition("=")[::2] for part in text.split(","))
        if fields.keys() != {"salt", "stored_key", "server_key", "iterations"}:
            raise ValueError(
                "is no SCRAM credential: salt, stored_key, server_key and iterations are expected"
            )
        try:
            keys = [from_base64(fields[name]) for name in ("salt", "stored_key", "server_key")]
            return cls(keys[0], keys[1], keys[2], int(fields["iterations"]))
        except ValueError:
            raise ValueError(
                "has a SCRAM credential that is not base64, or no number of iterations"
            ) from None


class Known(NamedTuple):
    """A credential, whose it is, and when it expires by the wall clock (None: never)."""

    credential: ScramCredential
    name: str
    expires_ms: int | None = None


Lookup = Callable[[str, bool], Known | None]
"""Finds the credential of a name; with True, that of the delegation token with this id."""


def to_base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from error
