"""WriteTxnMarkers to a leader over a real connection: in batches, again after every failure, never twice at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from broker.coordinator.transaction import marker_sender
from broker.protocol import codec
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors
from broker.replication.broker_channel import BrokerChannel
from broker.replication.cluster_view import BrokerAddress
from broker.server import admission
from broker.utils.topic_partition import TopicPartition
from rig.wait import wait_until
from tests.support.scripted_leader import ScriptedLeader
from tests.support.transaction_fakes import BROKER, T0, T1, Harness


def channel(address: BrokerAddress, client_id: str) -> BrokerChannel:
    return BrokerChannel(address.host, address.port, client_id=client_id, request_timeout_ms=10_000)


@pytest.fixture
def leader() -> Iterator[ScriptedLeader]:
    scripted = ScriptedLeader()
    yield scripted
    scripted.close()


@pytest.fixture
def h(leader: ScriptedLeader) -> Iterator[Harness]:
    harness = Harness(make_channel=channel)
    harness.cluster.port = leader.port
    yield harness
    harness.markers.shutdown()


def end(h: Harness, name: str, *, commit: bool = True) -> None:
    producer = h.producer(name=name)
    h.add(producer, T0, T1, name=name)
    assert h.end(producer, name=name, commit=commit) is Errors.NONE


def receive(leader: ScriptedLeader) -> tuple[int, Any]:
    """The correlation id and the message of the next request."""
    correlation_id, rest = leader.request_and_body()
    client_id_size = int.from_bytes(rest[:2], "big")
    body = memoryview(rest)[2 + client_id_size + 1 :]
    return correlation_id, codec.decode(ApiKey.WRITE_TXN_MARKERS, 1, "request", body)


def answer(leader: ScriptedLeader, correlation_id: int, message: Any, *errors: int) -> None:
    """The errors of each marker's partitions, in order; the last one for all that follow."""
    rows = []
    for marker in message.markers:
        numbers = marker.topics[0].partition_indexes
        told = [*errors, *[(errors or (Errors.NONE,))[-1]] * len(numbers)]
        partitions = [
            {"partition_index": number, "error_code": error}
            for number, error in zip(numbers, told, strict=False)
        ]
        rows.append({"producer_id": marker.producer_id, "topics": [{"name": "t", "partitions": partitions}]})
    leader.answer(correlation_id, codec.encode(ApiKey.WRITE_TXN_MARKERS, 1, "response", {"markers": rows}))


def test_a_leader_gets_the_marker_of_all_its_partitions_in_one_request(
    h: Harness, leader: ScriptedLeader
) -> None:
    end(h, "tx", commit=False)
    leader.accept()
    correlation_id, message = receive(leader)
    (marker,) = message.markers
    assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (1000, 0, 0)
    assert marker.transaction_result is False
    assert [(topic.name, topic.partition_indexes) for topic in marker.topics] == [("t", (0, 1))]
    assert h.state() == "PrepareAbort"
    answer(leader, correlation_id, message)
    wait_until(lambda: h.state() == "CompleteAbort", what="the end is stored")


def test_what_ends_during_a_request_goes_into_the_next_one(h: Harness, leader: ScriptedLeader) -> None:
    end(h, "first")
    leader.accept()
    correlation_id, message = receive(leader)
    for number in range(20):
        end(h, f"tx-{number}")
    answer(leader, correlation_id, message)
    correlation_id, message = receive(leader)
    assert [marker.producer_id for marker in message.markers] == [1001 + number for number in range(20)]
    answer(leader, correlation_id, message)
    wait_until(lambda: {h.state(f"tx-{n}") for n in range(20)} == {"CompleteCommit"}, what="all end")


def test_a_refused_partition_alone_is_asked_again(h: Harness, leader: ScriptedLeader) -> None:
    end(h, "tx")
    leader.accept()
    correlation_id, message = receive(leader)
    answer(leader, correlation_id, message, Errors.NONE, Errors.NOT_LEADER_OR_FOLLOWER)
    wait_until(h.scheduler.run, what="the next try is scheduled")
    correlation_id, message = receive(leader)
    assert message.markers[0].topics[0].partition_indexes == (1,)
    answer(leader, correlation_id, message)
    wait_until(lambda: h.state() == "CompleteCommit", what="the end is stored")


def test_markers_whose_answer_was_lost_are_sent_again(h: Harness, leader: ScriptedLeader) -> None:
    end(h, "tx")
    leader.accept()
    receive(leader)
    leader.socket.close()
    wait_until(h.scheduler.run, what="the next try is scheduled")
    leader.accept()
    correlation_id, message = receive(leader)
    assert message.markers[0].topics[0].partition_indexes == (0, 1)
    answer(leader, correlation_id, message)
    wait_until(lambda: h.state() == "CompleteCommit", what="the end is stored")


@pytest.mark.parametrize("nonsense", [b"", b"\x01\x00", b"\xff" * 40])
def test_an_answer_that_says_nothing_is_none(h: Harness, leader: ScriptedLeader, nonsense: bytes) -> None:
    end(h, "tx")
    leader.accept()
    correlation_id, _ = receive(leader)
    leader.answer(correlation_id, nonsense)
    wait_until(h.scheduler.run, what="the next try is scheduled")
    assert h.state() == "PrepareCommit"


def test_a_stop_does_not_wait_for_a_leader_that_is_silent(h: Harness, leader: ScriptedLeader) -> None:
    end(h, "tx")
    leader.accept()
    receive(leader)
    h.markers.shutdown()
    assert h.state() == "PrepareCommit"
    assert h.scheduler.run() == []


def end_without_threads(h: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        end(h, "tx")


def test_a_sender_without_a_thread_tries_again(h: Harness, leader: ScriptedLeader, monkeypatch) -> None:
    end_without_threads(h, monkeypatch)
    assert h.scheduler.run() == ["txn-markers"]
    leader.accept()
    correlation_id, message = receive(leader)
    answer(leader, correlation_id, message)
    wait_until(lambda: h.state() == "CompleteCommit", what="the end is stored")


def test_a_sender_that_never_had_a_thread_stops(h: Harness, monkeypatch) -> None:
    end_without_threads(h, monkeypatch)
    h.markers.shutdown()
    assert h.state() == "PrepareCommit"


def test_a_sender_that_was_idle_for_a_minute_connects_again(
    h: Harness, leader: ScriptedLeader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marker_sender, "_IDLE_S", 0.01)
    for number in range(2):
        end(h, f"tx-{number}")
        leader.accept()
        correlation_id, message = receive(leader)
        answer(leader, correlation_id, message)
        wait_until(lambda name=f"tx-{number}": h.state(name) == "CompleteCommit", what="the end is stored")
        wait_until(
            lambda: not any(each.name.startswith("txn-marker-sender") for each in threading.enumerate()),
            what="the sender's thread has ended",
        )
        leader.socket.close()


def test_an_error_that_kafka_39_does_not_have_is_asked_again(h: Harness, leader: ScriptedLeader) -> None:
    end(h, "tx")
    leader.accept()
    correlation_id, message = receive(leader)
    answer(leader, correlation_id, message, Errors.NONE, ErrorCode.invalid_record_state)
    wait_until(h.scheduler.run, what="the next try is scheduled")
    correlation_id, message = receive(leader)
    assert message.markers[0].topics[0].partition_indexes == (1,), "the other answers count"
    answer(leader, correlation_id, message)
    wait_until(lambda: h.state() == "CompleteCommit", what="the end is stored")


def test_a_transaction_of_very_many_partitions_is_sent_in_requests_that_a_leader_takes(
    h: Harness, leader: ScriptedLeader
) -> None:
    partitions = [TopicPartition(f"t{number}", 0) for number in range(50_000)]
    h.cluster.leaders.update(dict.fromkeys(partitions, BROKER))
    producer = h.producer()
    h.add(producer, *partitions)
    assert h.end(producer) is Errors.NONE
    h.scheduler.run()
    leader.accept()
    most, marked = admission.RULES[ApiKey.WRITE_TXN_MARKERS].most_elements, 0
    while marked < len(partitions):
        correlation_id, message = receive(leader)
        assert h.state() == "PrepareCommit"
        (marker,) = message.markers
        assert 1 + sum(1 + len(topic.partition_indexes) for topic in marker.topics) <= most
        marked += len(marker.topics)
        rows = [
            {"name": topic.name, "partitions": [{"partition_index": 0, "error_code": Errors.NONE}]}
            for topic in marker.topics
        ]
        body = {"markers": [{"producer_id": marker.producer_id, "topics": rows}]}
        leader.answer(correlation_id, codec.encode(ApiKey.WRITE_TXN_MARKERS, 1, "response", body))
    assert marked == len(partitions), "none is sent twice"
    wait_until(lambda: h.state() == "CompleteCommit", what="the end is stored")
