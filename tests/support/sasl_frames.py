"""A SASL client's frames, and the offer of a listener where alice's password is alice-secret."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from broker.protocol import codec
from broker.protocol.api_keys import ApiKey
from broker.protocol.framing import request_prefix, response_body_offset
from broker.sasl.credential import Known
from broker.sasl.decoys import Decoys
from broker.sasl.exchange import Tokens
from broker.sasl.login import Offer
from broker.sasl.plain import PlainUsers
from broker.sasl.scram import ScramExchange, new_credential
from rig.raw_client import RawClient

SCRAM = "SCRAM-SHA-256"
USERS = {"alice": "alice-secret", "bob": "bob-secret"}
CREDENTIALS = {user: new_credential(SCRAM, password) for user, password in USERS.items()}

DECOYS = Decoys(b"the cluster's secret", lambda _mechanism: [])


def find(user: str, _by_token: bool) -> Known | None:
    credential = CREDENTIALS.get(user)
    return None if credential is None else Known(credential, user)


def make_offer(max_session_ms: int = 0) -> Offer:
    return Offer(
        {"PLAIN": PlainUsers(USERS).exchange, SCRAM: partial(ScramExchange, SCRAM, find, DECOYS)},
        {"PLAIN": max_session_ms, SCRAM: max_session_ms},
    )


def request(key: int, version: int, fields: Mapping[str, Any], number: int = 7) -> bytes:
    """A frame with its length."""
    body = codec.encode(key, version, "request", dict(fields))
    return request_prefix(key, version, number, "test", len(body)) + body


def handshake(mechanism: str = "PLAIN", version: int = 1) -> bytes:
    return request(ApiKey.SASL_HANDSHAKE, version, {"mechanism": mechanism})


def authenticate(token: bytes, version: int = 2) -> bytes:
    return request(ApiKey.SASL_AUTHENTICATE, version, {"auth_bytes": token})


def plain(user: str = "alice", password: str = "alice-secret") -> bytes:
    return f"\0{user}\0{password}".encode()


def metadata() -> bytes:
    return request(ApiKey.METADATA, 5, {"topics": None, "allow_auto_topic_creation": False})


def log_in(raw: RawClient, mechanism: str, tokens: Tokens) -> Any:
    """The last answer of an authentication; the first one with an error."""
    assert raw.ask(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": mechanism}).error_code == 0
    said, challenge = None, b""
    while (token := tokens.next(challenge)) is not None:
        said = raw.ask(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": token})
        if said.error_code:
            break
        challenge = said.auth_bytes
    return said


def answer(key: int, version: int, frame: bytes) -> Any:
    """The decoded answer in a frame without its length."""
    view = memoryview(frame)
    return codec.decode(key, version, "response", view[response_body_offset(key, version, view) :])
