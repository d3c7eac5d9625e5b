"""The exchange of tokens that a SASL mechanism is: it ends with an identity, or fails. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol


class LoginFailed(Exception):
    """A failed authentication. ``str()`` is the reason, for the log alone. ``told`` is the message for the
    client if it needs one of its own; it must reveal nothing about users.
    """

    def __init__(self, reason: str, told: str | None = None) -> None:
        super().__init__(reason)
        self.told = told


@dataclass(frozen=True, slots=True)
class LoginIdentity:
    """The user that a completed exchange has proved. ``expires_ms``: when the credential expires, by the wall
    clock; None if never. ``by_token``: proved by a delegation token.
    """

    name: str
    expires_ms: int | None = None
    by_token: bool = False


class Exchange(Protocol):
    """One authentication by one mechanism; Kafka's SaslServer. ``identity`` is None until it is complete.
    ``claimed`` is the name that the client gave, proved or not; empty until it gave one.
    """

    identity: LoginIdentity | None
    claimed: str

    def answer(self, token: bytes) -> bytes:
        """The answer to the client's next token. Raises :class:`LoginFailed`."""
        ...


class Tokens(Protocol):
    """The client's side of an exchange; Kafka's SaslClient."""

    def next(self, challenge: bytes) -> bytes | None:
        """The token after the server's ``challenge``, which is empty at first. None: the exchange is complete.
        Raises :class:`LoginFailed` if the server's answer is wrong.
        """
        ...


Mechanisms = Mapping[str, Callable[[], Exchange]]
