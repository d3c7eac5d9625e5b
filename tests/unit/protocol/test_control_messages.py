"""The messages between controller and brokers: what is sent arrives as the same rows, but for what a version lacks."""

from __future__ import annotations

import uuid

import pytest

from broker.protocol import codec
from broker.protocol.alter_partition_messages import (
    AlteredPartition,
    AlteredTopic,
    AlterPartitionRequest,
    AlterPartitionResponse,
    IsrChange,
    IsrChangesOfTopic,
)
from broker.protocol.api_keys import APIS, ApiKey
from broker.protocol.control_messages import (
    BrokerInfo,
    ControlResponse,
    LeaderAndIsrRequest,
    MetadataUpdate,
    PartitionInfo,
    PartitionRole,
    ReplicaError,
    StopReplicaRequest,
    StopState,
)
from broker.protocol.epochs import EPOCH_DURING_DELETE, NO_EPOCH, NO_LEADER
from broker.protocol.errors import Errors
from broker.utils.topic_partition import TopicPartition
from tests.support import valid_requests
from tests.support.valid_requests import World

ID, OTHER_ID = uuid.UUID(int=7), uuid.UUID(int=8)
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def over_the_wire(key: ApiKey, version: int, kind, fields):
    return codec.decode(key, version, kind, codec.encode(key, version, kind, fields))


def versions(key: ApiKey) -> range:
    return range(APIS[key].min_version, APIS[key].max_version + 1)


@pytest.mark.parametrize("version", [5, 6, 7])
def test_roles_arrive_as_they_were_sent(version) -> None:
    roles = [
        PartitionRole(T0, ID, 5, 1, 3, (1, 2), 9, (1, 2, 3), (3,), (2,), True, int(version >= 6)),
        PartitionRole(T1, ID, 4, NO_LEADER, 4, (2,), 1, (2, 1)),
        PartitionRole(U0, OTHER_ID, 5, 2, 0, (2,), 0, (2,)),
    ]
    sent = LeaderAndIsrRequest(8, 5, roles, is_full=True, leaders={1: ("h1", 9092), 2: ("h2", 9093)})
    message = over_the_wire(ApiKey.LEADER_AND_ISR, version, "request", {**sent.fields(), "broker_epoch": 77})
    assert [(leader.broker_id, leader.host_name, leader.port) for leader in message.live_leaders] == [
        (1, "h1", 9092),
        (2, "h2", 9093),
    ]
    assert LeaderAndIsrRequest.of(message) == LeaderAndIsrRequest(8, 5, roles, broker_epoch=77)


@pytest.mark.parametrize("version", versions(ApiKey.LEADER_AND_ISR))
def test_a_role_of_every_version_is_read(version) -> None:
    body = valid_requests.body(ApiKey.LEADER_AND_ISR, version, World(topic="t", topic_id=ID, broker_epoch=6))
    order = LeaderAndIsrRequest.of(codec.decode(ApiKey.LEADER_AND_ISR, version, "request", body))
    assert order.roles == [PartitionRole(T0, ID if version >= 5 else None, 1, 0, 0, (0,), 0, (0,))]
    assert (order.controller_epoch, order.broker_epoch) == (1, 6 if version >= 2 else NO_EPOCH)


@pytest.mark.parametrize("version", [3, 4])
def test_stops_arrive_as_they_were_sent(version) -> None:
    states = [
        StopState(T0, 3, True),
        StopState(T1, NO_EPOCH, False),
        StopState(U0, EPOCH_DURING_DELETE, True),
    ]
    sent = StopReplicaRequest(8, 5, states)
    fields = {**sent.fields(), "broker_epoch": 77}
    message = over_the_wire(ApiKey.STOP_REPLICA, version, "request", fields)
    assert StopReplicaRequest.of(message) == sent._replace(broker_epoch=77)
    assert sent.deletes
    assert not StopReplicaRequest(8, 5, states[1:2]).deletes


@pytest.mark.parametrize("version", versions(ApiKey.STOP_REPLICA))
def test_a_stop_of_every_version_is_read(version) -> None:
    body = valid_requests.body(ApiKey.STOP_REPLICA, version, World())
    order = StopReplicaRequest.of(codec.decode(ApiKey.STOP_REPLICA, version, "request", body))
    epoch = 0 if version >= 3 else NO_EPOCH
    assert order.states == [StopState(TopicPartition("nowhere", 7), epoch, False)]


@pytest.mark.parametrize("version", [7, 8])
def test_metadata_arrive_as_they_were_sent(version) -> None:
    partitions = [
        ("t", PartitionInfo(0, 1, 3, (1, 2), (1, 2, 3), (3,), 5, 9)),
        ("t", PartitionInfo(1, -2, 0, (), (2,), (), 4, 1)),
        ("u", PartitionInfo(0, NO_LEADER, 1, (2,), (2,), (2,), 5, 0)),
    ]
    brokers = [
        BrokerInfo(1, {"CLIENT": ("h1", 9092), "BROKER": ("h1", 9093)}, "r1", {"CLIENT": "SSL"}),
        BrokerInfo(2, {"CLIENT": ("h2", 9092)}),
    ]
    sent = MetadataUpdate(8, brokers, {"t": ID, "u": OTHER_ID}, partitions, 5, is_full=True)
    fields = {**sent.fields(), "broker_epoch": 77}
    message = over_the_wire(ApiKey.UPDATE_METADATA, version, "request", fields)
    assert [e.security_protocol for broker in message.live_brokers for e in broker.endpoints] == [1, 0, 0]
    assert MetadataUpdate.of(message, "ANY") == sent._replace(
        brokers=[brokers[0]._replace(protocols={}), brokers[1]], broker_epoch=77, is_full=version >= 8
    )


@pytest.mark.parametrize("version", versions(ApiKey.UPDATE_METADATA))
def test_metadata_of_every_version_are_read(version) -> None:
    body = valid_requests.body(ApiKey.UPDATE_METADATA, version, World(topic="t", topic_id=ID))
    update = MetadataUpdate.of(codec.decode(ApiKey.UPDATE_METADATA, version, "request", body), "HERE")
    listener = "HERE" if version == 0 else "PLAINTEXT"
    assert update.brokers == [BrokerInfo(0, {listener: ("127.0.0.1", 9092)})]
    assert update.partitions == [("t", PartitionInfo(0, 0, 0, (0,), (0,), (), 1, 0))]
    assert update.topic_ids == ({"t": ID} if version >= 7 else {})


def test_answers_arrive_as_they_were_sent() -> None:
    rows = [ReplicaError("t", ID, 0, Errors.NONE), ReplicaError("t", ID, 1, Errors.KAFKA_STORAGE_ERROR)]
    response = ControlResponse(Errors.NONE, rows)
    for version in versions(ApiKey.LEADER_AND_ISR):
        got = over_the_wire(ApiKey.LEADER_AND_ISR, version, "response", response.leader_and_isr_fields())
        known = [row._replace(topic="") if version >= 5 else row._replace(topic_id=None) for row in rows]
        assert ControlResponse.of(got) == ControlResponse(Errors.NONE, known)
    for version in versions(ApiKey.STOP_REPLICA):
        got = over_the_wire(ApiKey.STOP_REPLICA, version, "response", response.stop_replica_fields())
        assert ControlResponse.of(got) == ControlResponse(
            Errors.NONE, [r._replace(topic_id=None) for r in rows]
        )
    refused = ControlResponse(Errors.STALE_BROKER_EPOCH)
    for version in versions(ApiKey.UPDATE_METADATA):
        got = over_the_wire(ApiKey.UPDATE_METADATA, version, "response", refused.update_metadata_fields())
        assert ControlResponse.of(got) == ControlResponse(Errors.STALE_BROKER_EPOCH, [])


@pytest.mark.parametrize("version", [2, 3])
def test_isr_changes_arrive_as_they_were_sent(version) -> None:
    epochs = (10, NO_EPOCH) if version == 3 else (NO_EPOCH, NO_EPOCH)
    change = IsrChange(TopicPartition("", 4), ID, 3, 9, (1, 2), epochs, 1)
    sent = AlterPartitionRequest(
        1, 77, [IsrChangesOfTopic("", ID, [change]), IsrChangesOfTopic("", OTHER_ID, [])]
    )
    fields = sent.fields()
    if version == 2:  # what the broker sends is version 3
        (row,) = fields["topics"][0]["partitions"]
        fields["topics"][0]["partitions"] = [{**row, "new_isr": [1, 2]}]
    assert AlterPartitionRequest.of(over_the_wire(ApiKey.ALTER_PARTITION, version, "request", fields)) == sent


@pytest.mark.parametrize("version", versions(ApiKey.ALTER_PARTITION))
def test_isr_changes_of_every_version_are_read_and_answered(version) -> None:
    body = valid_requests.body(ApiKey.ALTER_PARTITION, version, World(topic="t", topic_id=ID, broker_epoch=6))
    request = AlterPartitionRequest.of(codec.decode(ApiKey.ALTER_PARTITION, version, "request", body))
    by_id = version >= 2
    name, topic_id = ("", ID) if by_id else ("t", None)
    change = IsrChange(TopicPartition(name, 0), topic_id, 0, 0, (0,), (6 if version == 3 else NO_EPOCH,))
    assert request == AlterPartitionRequest(0, 6, [IsrChangesOfTopic(name, topic_id, [change])], by_id)
    altered = AlteredPartition(0, Errors.NONE, 1, 2, (1, 3), int(version >= 1), 9)
    refused = AlteredPartition(1, Errors.FENCED_LEADER_EPOCH)
    response = AlterPartitionResponse(Errors.NONE, [AlteredTopic(name, topic_id, [altered, refused])])
    got = over_the_wire(ApiKey.ALTER_PARTITION, version, "response", response.fields())
    assert AlterPartitionResponse.of(got) == response


def test_an_error_of_a_later_time_is_an_unknown_one() -> None:
    fields = {"error_code": 127}
    got = over_the_wire(ApiKey.UPDATE_METADATA, 8, "response", fields)
    assert ControlResponse.of(got).error is Errors.UNKNOWN_SERVER_ERROR
