"""Encoded Metadata answers are given for the snapshot they were made of, and for no other."""

from __future__ import annotations

import uuid

import pytest

from broker.protocol import codec
from broker.protocol.api_keys import APIS, ApiKey
from broker.protocol.control_messages import BrokerInfo, PartitionInfo
from broker.server.apis.metadata_bodies import MetadataBodies, MetadataTopics
from broker.server.metadata_cache import Snapshot

KEY = (12, "PLAINTEXT", ("orders",))


def test_a_body_is_found_again_for_its_snapshot():
    bodies, snapshot = MetadataBodies(), Snapshot(version=1)
    bodies.put(snapshot, KEY, b"one")
    assert bodies.get(snapshot, KEY) == b"one"


def test_another_snapshot_of_the_same_version_does_not_get_it():
    """Two brokers in one process count their snapshots alike."""
    bodies, one, other = MetadataBodies(), Snapshot(version=1), Snapshot(version=1)
    bodies.put(one, KEY, b"one")
    assert bodies.get(other, KEY) is None


def test_a_late_body_of_an_older_snapshot_is_never_given_for_the_newer():
    bodies, older, newer = MetadataBodies(), Snapshot(version=1), Snapshot(version=2)
    bodies.put(newer, KEY, b"newer")
    bodies.put(older, KEY, b"older")  # by a thread that began before the update
    assert bodies.get(newer, KEY) in (None, b"newer")


def test_names_that_clients_make_up_do_not_fill_the_memory():
    bodies, snapshot = MetadataBodies(), Snapshot(version=1)
    keys = [(12, "PLAINTEXT", (f"t{number}",)) for number in range(1000)]
    for key in keys:
        bodies.put(snapshot, key, b"x")
    assert sum(bodies.get(snapshot, key) is not None for key in keys) <= 64


BROKERS = {1: BrokerInfo(1, {"PLAINTEXT": ("one", 9092)})}


class Encoder:
    """Stands for the encoding of a topic, and counts how often it was done."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> bytes:
        self.times += 1
        return b"topic %d" % self.times


def snapshot_of(topics, brokers=BROKERS, topic_ids=None):
    return Snapshot(1, 1, dict(brokers), topics, topic_ids or {})


def partitions(leader=1):
    return {0: PartitionInfo(0, leader, 0, (1,), (1,))}


def test_a_topic_is_encoded_once_for_all_who_ask_for_it_and_for_all_snapshots_that_have_it_unchanged():
    topics, encode, wide = MetadataTopics(), Encoder(), partitions()
    first = topics.get(snapshot_of({"wide": wide}), (12, "PLAINTEXT", "wide"), encode)
    again = topics.get(snapshot_of({"wide": wide, "other": partitions()}), (12, "PLAINTEXT", "wide"), encode)
    assert first is again
    assert encode.times == 1


def test_a_topic_is_encoded_anew_when_it_or_the_brokers_changed():
    topics, encode, same = MetadataTopics(), Encoder(), partitions()
    key = (12, "PLAINTEXT", "wide")
    topics.get(snapshot_of({"wide": same}), key, encode)
    topics.get(snapshot_of({"wide": same}, topic_ids={"wide": uuid.UUID(int=5)}), key, encode)
    assert encode.times == 2
    topics.get(snapshot_of({"wide": partitions()}), key, encode)
    assert encode.times == 3
    topics.get(snapshot_of({"wide": same}, brokers={}), key, encode)
    assert encode.times == 4


def test_brokers_that_are_equal_are_compared_once():
    class Compared(dict):
        times = 0

        def __eq__(self, other):
            Compared.times += 1
            return dict.__eq__(self, other)

        def __ne__(self, other):
            return not self == other

        __hash__ = None

    topics, encode, same = MetadataTopics(), Encoder(), partitions()
    for _ in range(2):
        snapshot = Snapshot(1, 1, Compared(BROKERS), {"wide": same}, {})
        Compared.times = 0
        for _ in range(5):
            topics.get(snapshot, (12, "PLAINTEXT", "wide"), encode)
        assert Compared.times <= 2  # once, and by Python once more for the other side
    assert encode.times == 1


def test_versions_and_listeners_have_bytes_of_their_own():
    topics, encode, snapshot = MetadataTopics(), Encoder(), snapshot_of({"wide": partitions()})
    kept = {topics.get(snapshot, (version, at, "wide"), encode) for version in (9, 12) for at in ("A", "B")}
    assert len(kept) == 4


def test_topics_bytes_do_not_fill_the_memory():
    topics = MetadataTopics()
    snapshot = snapshot_of({str(number): partitions() for number in range(100)})
    for number in range(100):
        topics.get(snapshot, (12, "PLAINTEXT", str(number)), lambda: bytes(1 << 20))
    assert sum(len(topic.body) for topic in topics._kept[1].values()) <= 32 << 20


@pytest.mark.parametrize("version", range(APIS[ApiKey.METADATA].max_version + 1))
def test_an_answer_put_together_is_the_answer_encoded_whole(version):
    partition = {"error_code": 0, "partition_index": 0, "leader_id": 1, "leader_epoch": 3}
    lists = {"replica_nodes": (1, 2), "isr_nodes": (1,), "offline_replicas": ()}
    topic = {"error_code": 0, "topic_id": uuid.UUID(int=9), "is_internal": False}
    topic |= {"partitions": [partition | lists] * 3, "topic_authorized_operations": 5}
    topics = [topic | {"name": f"topic-{number}"} for number in range(200)]
    broker = {"node_id": 1, "host": "one", "port": 9092, "rack": None}
    around = {"throttle_time": 0, "brokers": [broker], "cluster_id": "c", "controller_id": 1}
    around |= {"topics": (), "cluster_authorized_operations": 7}
    for some in (topics, topics[:1], []):
        whole = codec.encode(ApiKey.METADATA, version, "response", around | {"topics": some})
        pieces = [codec.encode_element(ApiKey.METADATA, version, "topics", each) for each in some]
        assert codec.encode_around(ApiKey.METADATA, version, around, "topics", pieces) == whole
