"""How the load calls a library that may not keep its own timeout."""

from __future__ import annotations

import threading

import pytest
from confluent_kafka import KafkaError, KafkaException

from chaos.transacting import bounded


def test_a_call_that_does_not_heed_its_timeout_raises_as_one_that_timed_out() -> None:
    released = threading.Event()
    try:
        with pytest.raises(KafkaException, match="hangs") as raised:
            bounded(lambda _: released.wait(), timeout_s=0.01, hangs_s=0.01)
    finally:
        released.set()
    assert raised.value.args[0].code() == KafkaError._TIMED_OUT
    assert not raised.value.args[0].retriable()


def test_a_call_gets_its_timeout_and_raises_to_who_made_it() -> None:
    given: list[float] = []

    def call(timeout_s: float) -> None:
        given.append(timeout_s)
        raise BufferError

    with pytest.raises(BufferError):
        bounded(call, timeout_s=2.0)
    assert given == [2.0]
