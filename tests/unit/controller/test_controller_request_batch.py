"""What the controller tells many brokers is made once, and each of them reads its own epoch in it."""

from __future__ import annotations

import threading

import pytest

from broker.config.endpoint import Endpoint
from broker.controller.channel_manager import ChannelManager
from broker.controller.context import ControllerContext
from broker.controller.request_batch import BrokerRequestBatch
from broker.protocol import codec
from broker.protocol.api_keys import ApiKey
from broker.protocol.control_messages import TYPE_FULL, TYPE_INCREMENTAL
from broker.protocol.one_body import OneBody
from broker.utils.topic_partition import TopicPartition
from broker.zookeeper.znodes import BrokerRegistration, LeaderAndIsr, LiveBroker, TopicAssignment
from rig.wait import wait_until
from tests.support.fake_brokers import FakeBrokers

BROKERS = 60
T = [TopicPartition("t", number) for number in range(4)]


class Site:
    """A batch over real senders to brokers that decode what they get. Broker N has the epoch 1000 + N."""

    def __init__(self) -> None:
        self.brokers = FakeBrokers()
        self.context = ControllerContext(5)
        self.channels = ChannelManager(0, "PLAINTEXT", self.brokers.make_channel)
        for broker_id in range(BROKERS):
            endpoints = (Endpoint(f"host{broker_id}", 9092, "PLAINTEXT"),)
            live = LiveBroker(BrokerRegistration(broker_id, endpoints), epoch=1000 + broker_id)
            self.context.brokers[broker_id] = live
            self.channels.add(live)
        self.context.put_topic("t", TopicAssignment({tp.partition: (0, 1, 2) for tp in T}, None))
        self.context.leaders = {tp: LeaderAndIsr(0, 0, (0, 1, 2), 5) for tp in T}
        self.batch = BrokerRequestBatch(self.context, self.channels, 0, "PLAINTEXT", lambda *_: None)

    def sent(self, api: ApiKey, count: int) -> dict[int, object]:
        """The message of each broker, when ``count`` of them have one."""
        wait_until(lambda: len(self.brokers.requests(api)) >= count)
        return {recorded.broker_id: recorded.message for recorded in self.brokers.requests(api)}


@pytest.fixture
def site():
    site = Site()
    yield site
    site.channels.shutdown()


@pytest.fixture
def written(monkeypatch) -> list[ApiKey]:
    """Every request that is encoded, as it is written field by field."""
    written: list[ApiKey] = []
    lock, encode = threading.Lock(), codec._encode

    def counted(api_key, version, kind, values):
        if kind == "request":
            with lock:
                written.append(ApiKey(api_key))
        return encode(api_key, version, kind, values)

    monkeypatch.setattr(codec, "_encode", counted)
    return written


def test_metadata_is_encoded_once_however_many_brokers_are_told(site, written) -> None:
    site.batch.update_metadata_everywhere(T)
    site.batch.flush()
    messages = site.sent(ApiKey.UPDATE_METADATA, BROKERS)
    assert written == [ApiKey.UPDATE_METADATA]
    assert {broker_id: m.broker_epoch for broker_id, m in messages.items()} == {
        broker_id: 1000 + broker_id for broker_id in range(BROKERS)
    }
    assert all(len(m.live_brokers) == BROKERS for m in messages.values())
    assert all(m.topic_states == messages[0].topic_states for m in messages.values())


def test_brokers_that_are_told_more_get_it_in_one_message_of_their_own(site, written) -> None:
    site.batch.update_metadata_everywhere()
    site.context.knows_all_topics = True
    site.batch.add_full_metadata([3, 4])
    site.batch.update_metadata_everywhere(T[:1])
    site.batch.flush()
    messages = site.sent(ApiKey.UPDATE_METADATA, BROKERS)
    partitions = {
        broker_id: sum(len(topic.partition_states) for topic in m.topic_states)
        for broker_id, m in messages.items()
    }
    assert {broker_id for broker_id, count in partitions.items() if count == 4} == {3, 4}
    assert {broker_id for broker_id, m in messages.items() if m.type_ == TYPE_FULL} == {3, 4}
    assert set(partitions.values()) == {1, 4}
    assert len(site.brokers.requests(ApiKey.UPDATE_METADATA)) == BROKERS
    assert written == [ApiKey.UPDATE_METADATA] * 2


def test_nothing_is_sent_when_nothing_was_gathered(site) -> None:
    site.batch.flush()
    site.batch.add_update_metadata([1])
    site.batch.flush()
    assert list(site.sent(ApiKey.UPDATE_METADATA, 1)) == [1]


def test_leaders_are_named_with_their_addresses_and_full_is_said_of_all_replicas_alone(site) -> None:
    for tp in T:
        site.batch.add_leader_and_isr([0, 1], tp, site.context.leaders[tp])
    site.batch.add_leader_and_isr([2], T[0], site.context.leaders[T[0]])
    site.batch.mark_full([0, 2])
    site.batch.flush()
    messages = site.sent(ApiKey.LEADER_AND_ISR, 3)
    assert {b: m.type_ for b, m in messages.items()} == {
        0: TYPE_FULL,
        1: TYPE_INCREMENTAL,
        2: TYPE_INCREMENTAL,
    }
    assert [(x.broker_id, x.host_name) for x in messages[1].live_leaders] == [(0, "host0")]
    assert messages[2].broker_epoch == 1002


@pytest.mark.parametrize(
    ("api", "version", "fields"),
    [
        (ApiKey.LEADER_AND_ISR, 7, {"type_": 1, "topic_states": (), "live_leaders": ()}),
        (ApiKey.STOP_REPLICA, 4, {"topic_states": ()}),
        (ApiKey.UPDATE_METADATA, 8, {"topic_states": (), "live_brokers": ()}),
    ],
)
@pytest.mark.parametrize("epoch", [-1, 0, (1 << 63) - 1])
def test_a_number_set_in_place_is_what_encoding_it_gives(api, version, fields, epoch) -> None:
    all_fields = {"controller_id": 1, "is_k_raft_controller": False, "controller_epoch": 2, **fields}
    addressed = OneBody(all_fields, "broker_epoch").to(epoch)
    assert dict(addressed) == {**all_fields, "broker_epoch": epoch}
    assert codec.encode(api, version, "request", addressed) == codec.encode(
        api, version, "request", {**all_fields, "broker_epoch": epoch}
    )


@pytest.mark.parametrize(("name", "api", "version"), [("client_id", 5, 4), ("max_bytes", 1, 12)])
def test_a_field_without_a_fixed_place_cannot_be_set(name, api, version) -> None:
    with pytest.raises(ValueError, match="has no fixed place"):
        codec.encode(api, version, "request", OneBody({}, name).to(1))
