"""PLAIN: one token, right or wrong, and nothing else learnt."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.sasl.exchange import LoginFailed, LoginIdentity
from broker.sasl.plain import PlainTokens, PlainUsers

USERS = PlainUsers({"alice": "secret", "élodie": "pass\u0301wört"})


def told(token: bytes) -> str | None:
    with pytest.raises(LoginFailed) as failure:
        USERS.exchange().answer(token)
    return failure.value.told


@pytest.mark.parametrize(
    "token", [b"\0alice\0secret", b"alice\0alice\0secret", "\0élodie\0pass\u0301wört".encode()]
)
def test_the_right_password_proves_the_user(token: bytes) -> None:
    exchange = USERS.exchange()
    assert exchange.answer(token) == b""
    assert exchange.identity == LoginIdentity(token.split(b"\0")[1].decode())


def test_a_wrong_password_and_an_unknown_user_are_answered_alike() -> None:
    answers = {told(token) for token in (b"\0alice\0wrong", b"\0nobody\0secret", b"\0\0secret", b"\0alice\0")}
    assert answers == {"Authentication failed: Invalid username or password"}


@pytest.mark.parametrize("token", [b"", b"alice", b"\0alice", b"\0alice\0secret\0more", b"\0\xff\0secret"])
def test_a_malformed_token_fails(token: bytes) -> None:
    told(token)


def test_nobody_may_act_for_another() -> None:
    told(b"bob\0alice\0secret")


def test_an_unknown_user_with_an_empty_digest_is_not_let_in() -> None:
    assert not USERS.has("nobody", "")


@given(st.binary(max_size=200))
def test_any_bytes_fail_or_prove_somebody(token: bytes) -> None:
    exchange = USERS.exchange()
    try:
        exchange.answer(token)
    except LoginFailed:
        assert exchange.identity is None


def test_the_client_sends_one_token() -> None:
    tokens = PlainTokens("alice", "secret")
    assert tokens.next(b"") == b"\0alice\0secret"
    assert tokens.next(b"") is None
