"""The OAUTHBEARER mechanism (RFC 7628): a JSON web token proves the user. Pure.

`jwt_tokens` checks the token. One that is refused is answered with an error in JSON; the client acknowledges
it, and then the authentication fails.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Final

from broker.sasl.exchange import LoginFailed, LoginIdentity

# To parse a longer one would take the network thread longer than anybody's turn.
_MOST_BYTES: Final = 64 * 1024
_NAME: Final = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_FIRST: Final = re.compile(
    rf"n,(?:a=(?P<authorization>{_NAME}))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01"
)
_BEARER: Final = re.compile(r"[Bb][Ee][Aa][Rr][Ee][Rr] +(?P<token>[-_~+/.a-zA-Z0-9]+=*)")
_ACKNOWLEDGED: Final = b"\x01"


class TokenRefused(Exception):
    """A token that proves nobody. ``str()`` is for the log. ``scope`` is what it lacks, if that is all."""

    def __init__(self, reason: str, scope: str | None = None) -> None:
        super().__init__(reason)
        self.scope = scope

    def as_json(self) -> str:
        """What the client is told, as by Kafka: no reason but a missing scope."""
        if self.scope is None:
            return '{"status":"invalid_token"}'
        return json.dumps({"status": "insufficient_scope", "scope": self.scope})


class OAuthBearerExchange:
    """An authentication by OAUTHBEARER; Kafka's OAuthBearerSaslServer. ``check`` returns the user of a token, or
    raises :class:`TokenRefused`. See :class:`~broker.sasl.exchange.Exchange`.
    """

    def __init__(self, check: Callable[[str], LoginIdentity]) -> None:
        self.identity: LoginIdentity | None = None
        self.claimed = ""
        self._check = check
        self._refused: TokenRefused | None = None

    def answer(self, token: bytes) -> bytes:
        if self._refused is not None:
            told = self._refused.as_json() if token == _ACKNOWLEDGED else None
            raise LoginFailed(str(self._refused), told)
        authorization, jwt = _parts(token)
        try:
            identity = self._check(jwt)
        except TokenRefused as refused:
            self._refused = refused
            return refused.as_json().encode()
        self.claimed = identity.name
        if authorization not in ("", identity.name):
            raise LoginFailed("another authorization id than the token's principal was asked for")
        self.identity = identity
        return b""


def _parts(token: bytes) -> tuple[str, str]:
    """The authorization id and the web token of the client's first message."""
    if len(token) > _MOST_BYTES:
        raise LoginFailed(f"the client's first message has more than {_MOST_BYTES} bytes")
    try:
        match = _FIRST.fullmatch(token.decode())
    except UnicodeDecodeError:
        match = None
    if match is None:
        raise LoginFailed("the client's first message is malformed")
    pairs = dict(pair.split("=", 1) for pair in match["pairs"].split("\x01") if pair)
    bearer = _BEARER.fullmatch(pairs.get("auth", ""))
    if bearer is None:
        raise LoginFailed("the client's first message has no bearer token")
    authorization = (match["authorization"] or "").replace("=2C", ",").replace("=3D", "=")
    return authorization, bearer["token"]
