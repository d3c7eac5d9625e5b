"""The PLAIN mechanism (RFC 4616): user name and password in one token. Pure.

Passwords are compared as keyed digests, so that a comparison takes the same time whatever is wrong.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable, Mapping
from typing import Final

from broker.sasl.exchange import LoginFailed, LoginIdentity

MECHANISM: Final = "PLAIN"
_REFUSED: Final = "Authentication failed: Invalid username or password"
_NO_DIGEST: Final = bytes(32)


class PlainUsers:
    """The users of a listener; Kafka's PlainServerCallbackHandler. Keeps a digest of each password, with a key
    of this process.
    """

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._key = secrets.token_bytes(32)
        self._digests = {user: self._digest(password) for user, password in passwords.items()}

    def has(self, user: str, password: str) -> bool:
        """Whether the password is the user's."""
        known = self._digests.get(user, _NO_DIGEST)
        return hmac.compare_digest(known, self._digest(password)) and user in self._digests

    def exchange(self) -> PlainExchange:
        return PlainExchange(self.has)

    def _digest(self, password: str) -> bytes:
        return hmac.digest(self._key, password.encode("utf-8", "surrogatepass"), hashlib.sha256)


class PlainExchange:
    """An authentication by PLAIN; Kafka's PlainSaslServer. See :class:`~broker.sasl.exchange.Exchange`."""

    def __init__(self, has: Callable[[str, str], bool]) -> None:
        self.identity: LoginIdentity | None = None
        self.claimed = ""
        self._has = has

    def answer(self, token: bytes) -> bytes:
        try:
            parts = token.decode().split("\0")
        except UnicodeDecodeError as error:
            raise LoginFailed("the token is not UTF-8") from error
        if len(parts) != 3:
            raise LoginFailed(f"the token has {len(parts)} parts instead of 3")
        authorization, self.claimed, password = parts
        if not self.claimed or not password:
            raise LoginFailed("no user name or no password was given", _REFUSED)
        if not self._has(self.claimed, password):
            raise LoginFailed("wrong user name or password", _REFUSED)
        if authorization not in ("", self.claimed):
            raise LoginFailed("another authorization id than the user name was asked for", _REFUSED)
        self.identity = LoginIdentity(self.claimed)
        return b""


class PlainTokens:
    """The client's side of PLAIN, a single token. See :class:`~broker.sasl.exchange.Tokens`."""

    def __init__(self, user: str, password: str) -> None:
        self._token: bytes | None = f"\0{user}\0{password}".encode()

    def next(self, _challenge: bytes) -> bytes | None:
        token, self._token = self._token, None
        return token
