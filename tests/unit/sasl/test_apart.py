"""Exchanges whose answers are computed on another thread."""

from __future__ import annotations

import pytest

from broker.sasl.apart import ApartExchange, AskLater
from broker.sasl.exchange import LoginFailed
from broker.sasl.plain import PlainUsers
from tests.support.sasl_frames import USERS, plain


class Broken:
    identity, claimed = None, ""

    def answer(self, token: bytes) -> bytes:
        raise RuntimeError("a defect")


def test_an_answer_is_there_once_it_is_computed() -> None:
    exchange = ApartExchange(PlainUsers(USERS).exchange())
    with pytest.raises(AskLater) as later:
        exchange.answer(plain())
    later.value.compute()
    assert (exchange.identity, exchange.claimed) == (None, "")
    assert exchange.answer(plain()) == b""
    assert exchange.identity is not None
    assert (exchange.identity.name, exchange.claimed) == ("alice", "alice")


def test_a_failure_is_too_and_shows_the_claimed_name() -> None:
    exchange = ApartExchange(PlainUsers(USERS).exchange())
    with pytest.raises(AskLater) as later:
        exchange.answer(plain(password="x"))
    later.value.compute()
    with pytest.raises(LoginFailed):
        exchange.answer(plain(password="x"))
    assert (exchange.identity, exchange.claimed) == (None, "alice")


def test_a_defect_is_raised_by_whom_asks_and_not_on_the_other_thread() -> None:
    exchange = ApartExchange(Broken())
    with pytest.raises(AskLater) as later:
        exchange.answer(b"token")
    later.value.compute()
    with pytest.raises(RuntimeError):
        exchange.answer(b"token")
