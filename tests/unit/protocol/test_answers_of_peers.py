"""What brokers and controllers answer is judged before it is decoded: no more elements than an honest cluster has."""

from __future__ import annotations

import threading
import tracemalloc
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from broker.config.endpoint import Endpoint
from broker.controller.channel_manager import ChannelManager
from broker.protocol import codec
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors, ProtocolError, TooManyElements
from broker.protocol.fetch_messages import parse_fetch_response
from broker.protocol.one_body import OneBody
from broker.protocol.primitives import write_uvarint
from broker.replication.broker_channel import BrokerChannel
from broker.zookeeper.znodes import BrokerRegistration, LiveBroker
from rig.wait import wait_until
from tests.support.scripted_leader import ScriptedLeader

MOST = 400_000
MOST_OF_ISRS = 1_400_000
# Elements of a byte or a few each, as real as they come: nothing is announced that is not sent.
TINY_STOPS = b"\0\0" + write_uvarint(MOST + 2) + (b"\1" + bytes(6) + b"\0") * (MOST + 1) + b"\0"
HONEST_STOP = b"\0\0" + write_uvarint(2) + b"\2t" + bytes(6) + b"\0" + b"\0"
FETCH_HEAD = bytes(10)
FETCHED = bytes(30) + b"\0" + bytes(4) + b"\1\0"


@pytest.fixture
def peer() -> Iterator[ScriptedLeader]:
    peer = ScriptedLeader()
    yield peer
    peer.close()


def stop_replica(body: bytes) -> Any:
    return codec.decode(ApiKey.STOP_REPLICA, 4, "response", body)


def alter_partition(isr: int) -> Any:
    partition = {"partition_index": 0, "error_code": 0, "isr": range(isr), "partition_epoch": 1}
    row = {"leader_id": 1, "leader_epoch": 1, "leader_recovery_state": 0, **partition}
    fields = {"error_code": 0, "topics": [{"topic_id": uuid.UUID(int=1), "partitions": [row]}]}
    body = codec.encode(ApiKey.ALTER_PARTITION, 3, "response", fields)
    return codec.decode(ApiKey.ALTER_PARTITION, 3, "response", body)


def test_an_answer_of_more_elements_than_a_cluster_has_is_not_decoded() -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match="stop_replica v4 response of more than 400000 elements"):
            stop_replica(TINY_STOPS)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
    assert stop_replica(HONEST_STOP).partition_errors[0].topic_name == "t"


def test_the_isrs_of_the_largest_cluster_are_taken_and_no_more() -> None:
    assert len(alter_partition(MOST_OF_ISRS - 2).topics[0].partitions[0].isr) == MOST_OF_ISRS - 2
    with pytest.raises(ProtocolError, match="more than 1400000"):
        alter_partition(MOST_OF_ISRS - 1)


def fetched(partitions: int, topics: int = 1) -> memoryview:
    topic = bytes(16) + write_uvarint(partitions + 1) + FETCHED * partitions + b"\0"
    return memoryview(FETCH_HEAD + write_uvarint(topics + 1) + topic * topics + b"\0")


def test_a_leader_answers_for_no_more_partitions_than_there_are() -> None:
    assert len(parse_fetch_response(fetched(100, topics=50)).partitions) == 5_000
    tracemalloc.start()
    try:
        with pytest.raises(TooManyElements, match="Fetch response of more than 400000"):
            parse_fetch_response(fetched(MOST))
        body = fetched(0, topics=MOST)
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        with pytest.raises(TooManyElements, match="Fetch response of more than 400000"):
            parse_fetch_response(body)
        assert tracemalloc.get_traced_memory()[1] - before < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("behind", "what"),
    [
        (write_uvarint(MOST + 2) + (bytes(16) + b"\0") * (MOST + 1) + bytes(4) + b"\1\0", "aborted"),
        (b"\0" + bytes(4) + b"\1" + write_uvarint(5_000) + b"\7\0" * 5_000, "tagged fields"),
    ],
    ids=["aborted", "tags"],
)
def test_what_a_leader_adds_to_a_partition_has_a_bound(behind: bytes, what: str) -> None:
    topic = bytes(16) + b"\2" + bytes(30) + behind + b"\0"
    with pytest.raises(ProtocolError, match=what):
        parse_fetch_response(memoryview(FETCH_HEAD + b"\2" + topic + b"\0"))


def answer(peer: ScriptedLeader, *bodies: bytes) -> None:
    """A connection for each answer, which the other side closes."""
    for body in bodies:
        peer.accept()
        with peer.socket as connection:
            peer.answer(peer.request(), body)
            assert connection.recv(1) == b""


def test_nonsense_ends_the_connection_and_says_whose_it_was(peer: ScriptedLeader) -> None:
    channel = BrokerChannel("127.0.0.1", peer.port, client_id="test")
    answering = threading.Thread(target=answer, args=(peer, TINY_STOPS, HONEST_STOP), daemon=True)
    answering.start()
    stopped = {"controller_id": 1, "controller_epoch": 1, "broker_epoch": 1, "topic_states": []}
    with pytest.raises(
        ProtocolError, match=f"broker at 127.0.0.1:{peer.port} answered nonsense: a stop_replica"
    ):
        channel.request(ApiKey.STOP_REPLICA, 4, stopped)
    assert channel.request(ApiKey.STOP_REPLICA, 4, stopped).error_code == Errors.NONE
    channel.close()
    answering.join(30)
    assert not answering.is_alive()


def test_a_channel_does_not_keep_the_room_of_a_large_answer(peer: ScriptedLeader) -> None:
    channel = BrokerChannel("127.0.0.1", peer.port, client_id="test")
    many = [{"topic_name": "t" * 200, "partition_index": 0, "error_code": 0}] * 20_000
    body = codec.encode(ApiKey.STOP_REPLICA, 4, "response", {"error_code": 0, "partition_errors": many})
    answering = threading.Thread(target=answer, args=(peer, body), daemon=True)
    answering.start()
    stopped = {"controller_id": 1, "controller_epoch": 1, "broker_epoch": 1, "topic_states": []}
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        assert len(channel.request(ApiKey.STOP_REPLICA, 4, stopped).partition_errors) == 20_000
        assert tracemalloc.get_traced_memory()[0] - before < len(body)
    finally:
        tracemalloc.stop()
    channel.close()
    answering.join(30)
    assert not answering.is_alive()


def test_a_controller_goes_on_with_a_broker_that_answers_sense_again(peer: ScriptedLeader) -> None:
    answers: list[Any] = []
    senders = ChannelManager(
        1, "PLAINTEXT", lambda at, client_id: BrokerChannel(at.host, at.port, client_id=client_id)
    )
    registration = BrokerRegistration(2, (Endpoint("127.0.0.1", peer.port, "PLAINTEXT"),))
    senders.add(LiveBroker(registration, epoch=7))
    fields = {"controller_id": 1, "controller_epoch": 1, "topic_states": []}
    answering = threading.Thread(target=answer, args=(peer, TINY_STOPS, TINY_STOPS, HONEST_STOP), daemon=True)
    answering.start()
    with capture_logs() as lines:
        senders.send(2, ApiKey.STOP_REPLICA, 4, OneBody(fields, "broker_epoch"), answers.append)
        wait_until(lambda: answers, 30)
    senders.shutdown()
    answering.join(30)
    assert not answering.is_alive()
    (line,) = [line for line in lines if line["event"] == "controller_cannot_reach_broker"]
    assert (line["broker"], line["api"]) == (2, "STOP_REPLICA")
    assert f"127.0.0.1:{peer.port} answered nonsense: a stop_replica v4 response" in line["reason"]
