"""The state machine of SASL: a client that does anything in any order, with and without the right password.

An input is a script. The oracle: each frame has a reply of bounded size, is served, or ends the connection with at
most one line; nobody is served before an authentication, and nobody is authenticated without a proof.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from broker.network.request_channel import ConnectionInfo
from broker.network.sasl import SaslListeners
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ProtocolError
from broker.sasl.exchange import LoginFailed, Tokens
from broker.sasl.jwt_tokens import (
    ClaimRules,
    SignedTokens,
    SigningKeys,
    UnsecuredRules,
    UnsecuredTokens,
)
from broker.sasl.login import Offer
from broker.sasl.oauthbearer import OAuthBearerExchange, TokenRefused
from broker.sasl.plain import PlainTokens
from broker.sasl.scram_client import ScramTokens
from tests.fuzz.target import Script, Target
from tests.support.sasl_frames import SCRAM, USERS, authenticate, handshake, make_offer, metadata, request

_SECOND: Final = 1_000_000_000
_NOW_MS: Final = 1_700_000_000_000
_MOST_REPLY: Final = 1 << 16
_MECHANISMS: Final = ("PLAIN", SCRAM, "OAUTHBEARER", "GSSAPI", "")
_BEARER: Final = "carol"
_JWKS: Final = (
    b'{"keys":[{"kty":"EC","crv":"P-256","kid":"k","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",'
    b'"y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}]}'
)
# What the steps of a script are called.
HANDSHAKE, TOKEN, RIGHT, WRONG, RAW, VERSIONS, OTHER, LATER, CHANGED = range(9)


def _unsigned(claims: object, header: object = None) -> str:
    parts = (header or {"alg": "none"}, claims)
    texts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
    return ".".join([*texts, ""])


@functools.cache
def _listeners() -> SaslListeners:
    offer = make_offer(max_session_ms=3_000)
    bearer = UnsecuredTokens(UnsecuredRules(), lambda: _NOW_MS).check
    mechanisms = {**offer.mechanisms, "OAUTHBEARER": partial(OAuthBearerExchange, bearer)}
    sessions = {**offer.max_session_ms, "OAUTHBEARER": 0}

    def later(_ms: int, _answer: Callable[[], None]) -> None:
        raise AssertionError("only a Processor delays")

    return SaslListeners(
        {"SASL": Offer(mechanisms, sessions)},
        later,
        failure_delay_ms=100,
        max_newcomers=10,
        max_login_ms=10_000,
    )


class _Client:
    """One connection and its client, as a script has them behave."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._info = ConnectionInfo("1", "127.0.0.1", "SASL", "SASL_PLAINTEXT")
        self._nobody = self._info.principal
        login = _listeners().open(self._info, 0)
        assert login is not None
        self.login = login
        self._now_ns = _SECOND
        self._mechanism, self._version = "PLAIN", 1
        self._tokens: Tokens | None = None
        self._user = ""
        self._challenge = b""
        self._proved: set[str] = set()

    def run(self) -> None:
        """Raises ProtocolError where the broker closes the connection."""
        while self._script and self._step():
            pass

    def _step(self) -> bool:
        """Does the next thing; returns whether the connection goes on."""
        script, step = self._script, self._script.byte() % 9
        match step:
            case 0:
                self._mechanism = _MECHANISMS[script.byte() % len(_MECHANISMS)]
                self._version, self._tokens, self._challenge = script.byte() % 2, None, b""
                return self._send(handshake(self._mechanism, self._version)[4:])
            case 1:
                return self._send_token(script.take(script.byte()))
            case 2 | 3 | 8:
                return self._send_token(self._right(step))
            case 4:
                return self._send(script.take(script.byte() * 4))
            case 5:
                return self._send(request(ApiKey.API_VERSIONS, script.byte() % 3, {})[4:])
            case 6:
                return self._send(metadata()[4:])
            case _:
                self._now_ns += script.byte() * _SECOND // 10
                self.login.is_overdue(self._now_ns // 1_000_000)
        return True

    def _right(self, step: int) -> bytes:
        """The next token of a client that knows alice's password, or bob's; or that token with a byte changed."""
        if self._tokens is None:
            user = self._user = "bob" if step == WRONG else "alice"
            if self._mechanism == "OAUTHBEARER":
                claims = {"sub": _BEARER, "iat": _NOW_MS // 1000, "exp": _NOW_MS // 1000 + 60}
                token = f"n,,\x01auth=Bearer {_unsigned(claims)}\x01\x01".encode()
                return self._changed(token) if step == CHANGED else token
            self._tokens = (
                ScramTokens(SCRAM, user, USERS[user])
                if self._mechanism == SCRAM
                else PlainTokens(user, USERS[user])
            )
        try:
            token = self._tokens.next(self._challenge) or b""
        except LoginFailed:
            token = b""
        sent = self._changed(token) if step == CHANGED else token
        if sent == token:
            self._proved.add(self._user)
        return sent

    def _changed(self, token: bytes) -> bytes:
        at, found = self._script.byte(), bytearray(token)
        if found:
            found[at % len(found)] ^= self._script.byte()
        return bytes(found)

    def _send_token(self, token: bytes) -> bool:
        self._proved |= {user for user, password in USERS.items() if password.encode() in token}
        return self._send(authenticate(token, self._script.byte() % 3)[4:] if self._version else token)

    def _send(self, frame: bytes) -> bool:
        self._proved |= {user for user, password in USERS.items() if password.encode() in frame}
        reply = self.login.receive(memoryview(frame), self._now_ns)
        if reply is None:
            assert not self.login.is_new or frame[:2] == ApiKey.API_VERSIONS.to_bytes(2, "big"), (
                "a stranger is served"
            )
            return True
        if reply.payload is not None:
            assert len(reply.payload) <= _MOST_REPLY
            assert int.from_bytes(reply.payload[:4], "big") == len(reply.payload) - 4
            self._challenge = self._answered(reply.api_key, reply.payload)
        name = self._info.principal.partition(":")[2]
        if self._info.principal != self._nobody and name in USERS:
            assert name in self._proved or self._mechanism == "OAUTHBEARER", f"{name} was not proved"
        return reply.failure is None

    def _answered(self, api_key: int, payload: bytes) -> bytes:
        """The challenge for a client that goes on; it is near enough, as what is not right is fuzzed too."""
        if not self._version:
            return payload[4:]
        start = payload.find(b"r=") if api_key == ApiKey.SASL_AUTHENTICATE else -1
        end = payload.find(b",i=", start)
        return payload[start : end + 7] if start >= 0 else b""


def _sasl(data: bytes) -> None:
    listeners = _listeners()
    client = _Client(Script(data))
    try:
        client.run()
    finally:
        client.login.leave()
        assert len(listeners.newcomers["SASL"]) == 0, "a connection is counted for ever"


def _sasl_seeds() -> Sequence[bytes]:
    def shake(mechanism: str, version: int = 1) -> bytes:
        return bytes([HANDSHAKE, _MECHANISMS.index(mechanism), version])

    right, wrong, later = bytes([RIGHT, 2]), bytes([WRONG, 2]), bytes([LATER, 40])
    plain, other = shake("PLAIN") + right, bytes([OTHER])
    return [
        bytes([VERSIONS, 0]) + plain + other,
        plain + later + other,
        plain + bytes([LATER, 20]) + plain + other + bytes([LATER, 20]) + shake("PLAIN") + wrong,
        plain + bytes([LATER, 20]) + shake(SCRAM) + right,
        shake("PLAIN", 0) + bytes([RIGHT]) + other,
        shake(SCRAM) + right + right + other + bytes([LATER, 20]) + shake(SCRAM) + right + right,
        shake(SCRAM, 0) + bytes([RIGHT, RIGHT]) + other,
        shake(SCRAM) + right + bytes([CHANGED, 90, 1, 2]),
        shake("OAUTHBEARER") + right + other,
        shake("OAUTHBEARER") + bytes([CHANGED, 90, 1, 2]) + bytes([TOKEN, 1, 1, 2]),
        shake("GSSAPI"),
        bytes([RAW, 4, 0, 17, 0, 1, 0, 0, 0, 1, 255, 255, 0, 5]) + b"PLAIN",
        bytes([TOKEN, 5]) + b"\0a\0bc",
    ]


@functools.cache
def _keys() -> SigningKeys:
    keys = SigningKeys()
    keys.replace(_JWKS)
    return keys


def _web_token(data: bytes) -> None:
    """The first part of an input is the header, what follows a NUL the claims; or the text as it came."""
    header, nul, claims = data.partition(b"\0")
    text = data.decode("latin-1")
    if nul:
        texts = [base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in (header, claims)]
        text = ".".join([*texts, "c2lnbmF0dXJl"])
        unsigned = ".".join([*texts, ""])
        with contextlib.suppress(TokenRefused):
            UnsecuredTokens(UnsecuredRules(), lambda: _NOW_MS).check(unsigned)
    SignedTokens(_keys(), ClaimRules(), lambda: _NOW_MS).check(text)
    raise AssertionError("nobody has the key that signs")


def _web_token_seeds() -> Sequence[bytes]:
    claims = b'{"sub":"a","iat":1699999999,"exp":1700000100,"aud":["x"],"scope":["s"],"nbf":1}'
    return [
        b'{"alg":"none"}\0' + claims,
        b'{"alg":"ES256","kid":"k"}\0' + claims,
        b'{"alg":"ES256","crit":["b64"],"b64":false}\0' + claims,
        b"eyJhbGciOiJFUzI1NiJ9.e30.AA",
        b'{"keys":[]}',
    ]


def _jwks(data: bytes) -> None:
    SigningKeys().replace(data)


def _jwks_seeds() -> Sequence[bytes]:
    return [
        _JWKS,
        b'{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB","use":"sig"},{"kty":"oct","k":"AA"}]}',
        b'{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}',
    ]


TARGETS: Sequence[Target] = (
    Target("sasl", _sasl, (ProtocolError,), _sasl_seeds, most_lines=1),
    Target("web-token", _web_token, (TokenRefused,), _web_token_seeds),
    Target("jwks", _jwks, (ValueError,), _jwks_seeds),
)
