"""The znodes' JSON is Kafka 3.9's: byte for byte where Kafka's was seen, and whatever order Kafka writes
is read.
"""

from __future__ import annotations

import uuid
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.config.endpoint import Endpoint
from broker.utils.topic_partition import TopicPartition
from broker.zookeeper import admin_requests, znodes
from broker.zookeeper.znodes import (
    BadZnodeError,
    BrokerRegistration,
    LeaderAndIsr,
    LeaderRecoveryState,
    MemberEpochs,
    TopicAssignment,
)

T0 = TopicPartition("t", 0)


def test_a_broker_is_written_as_kafka_writes_it():
    broker = BrokerRegistration(
        1, (Endpoint("h", 9092, "PLAINTEXT", "PLAINTEXT"),), rack="r1", timestamp_ms=17
    )
    assert znodes.encode_broker(broker) == (
        b'{"features":{},"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},'
        b'"endpoints":["PLAINTEXT://h:9092"],"rack":"r1","jmx_port":-1,"port":9092,"host":"h","version":5,'
        b'"timestamp":"17"}'
    )


def test_a_broker_says_by_which_of_its_listeners_it_speaks_behind_what_kafka_writes():
    endpoints = (Endpoint("h", 9092, "CLIENT", "PLAINTEXT"), Endpoint("h", 9091, "BROKER", "PLAINTEXT"))
    broker = BrokerRegistration(1, endpoints, speaks_by="BROKER")
    written = znodes.encode_broker(broker)
    assert written.endswith(b',"version":5,"timestamp":"0","landline_inter_broker_listener":"BROKER"}')
    assert znodes.decode_broker(1, written) == broker


def test_a_broker_without_a_plaintext_endpoint_has_no_host_and_port():
    broker = BrokerRegistration(1, (Endpoint("h", 9093, "INTERNAL", "SSL"),))
    written = znodes.encode_broker(broker)
    assert b'"port":-1,"host":null' in written
    assert b'"rack"' not in written
    assert znodes.decode_broker(1, written) == broker


def test_an_ipv6_endpoint_survives():
    broker = BrokerRegistration(1, (Endpoint("::1", 9092, "PLAINTEXT", "PLAINTEXT"),))
    assert b'"PLAINTEXT://[::1]:9092"' in znodes.encode_broker(broker)
    assert znodes.decode_broker(1, znodes.encode_broker(broker)).endpoints == broker.endpoints


def test_a_topic_is_written_as_kafka_writes_it():
    topic_id = uuid.UUID(bytes=bytes(range(16)))
    assignment = TopicAssignment({0: (1, 2)}, topic_id)
    assert znodes.encode_topic(assignment) == (
        b'{"partitions":{"0":[1,2]},"topic_id":"AAECAwQFBgcICQoLDA0ODw","adding_replicas":{},'
        b'"removing_replicas":{},"version":3}'
    )


def test_a_topic_of_an_old_broker_has_no_id():
    assignment = znodes.decode_topic("t", b'{"version":1,"partitions":{"1":[2],"0":[1]}}', 4)
    assert assignment == TopicAssignment({0: (1,), 1: (2,)}, None, version=4)


def test_a_partition_state_is_written_as_kafka_writes_it():
    state = LeaderAndIsr(leader=1, leader_epoch=0, isr=(1, 2), controller_epoch=2)
    assert znodes.encode_state(state) == (
        b'{"controller_epoch":2,"leader":1,"version":1,"leader_epoch":0,"isr":[1,2]}'
    )


def test_only_a_recovering_partition_says_its_recovery_state():
    state = LeaderAndIsr(1, 5, (1,), 2, LeaderRecoveryState.RECOVERING)
    assert znodes.encode_state(state).endswith(b'"isr":[1],"leader_recovery_state":1}')


def test_the_controller_node_is_written_as_kafka_writes_it():
    written = znodes.encode_controller(3, 1700000000000)
    assert written == b'{"version":2,"brokerid":3,"timestamp":"1700000000000","kraftControllerEpoch":-1}'
    assert znodes.decode_controller(written) == 3


def test_small_nodes_are_written_as_kafka_writes_them():
    assert znodes.encode_cluster_id("abc") == b'{"version":"1","id":"abc"}'
    assert znodes.encode_config({"k": "v"}) == b'{"version":1,"config":{"k":"v"}}'
    assert znodes.encode_config_change("topics/t1") == b'{"version":2,"entity_path":"topics/t1"}'
    block = znodes.encode_producer_id_block(2, 0, 999)
    assert block == b'{"version":1,"broker":2,"block_start":"0","block_end":"999"}'
    assert znodes.decode_producer_id_block_end(block) == 999


def test_the_first_version_of_a_config_change_is_understood():
    old = b'{"version":1,"entity_type":"topics","entity_name":"t1"}'
    assert znodes.decode_config_change("/config/changes/x", old) == "topics/t1"


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b'{"leader":1}', b'{"leader":"x","isr":1}'])
def test_what_is_no_partition_state_is_refused_with_its_path(data):
    with pytest.raises(BadZnodeError, match="/brokers/topics/t/partitions/0/state"):
        znodes.decode_state(T0, data, 0)


def test_an_empty_config_node_is_no_config():
    assert znodes.decode_config("/config/users/u", b"") == {}


def test_names_are_sanitized_as_kafka_does_but_for_the_default_entity():
    assert znodes.sanitize("User A/ü*~") == "User%20A%2F%C3%BC%2A~"
    assert znodes.sanitize("<default>") == "<default>"
    assert znodes.entity_config_path(znodes.entity_path("topics", "t.a_b-c")) == "/config/topics/t.a_b-c"


@given(st.text())
def test_a_sanitized_name_is_one_path_element_and_comes_back(name):
    assert "/" not in znodes.sanitize(name)
    if name != "<default>":
        assert znodes.desanitize(znodes.sanitize(name)) == name


@given(st.uuids())
def test_a_topic_id_comes_back_from_its_22_characters(value):
    text = znodes.encode_uuid(value)
    assert len(text) == 22
    assert znodes.decode_uuid(text) == value


def test_random_ids_never_look_like_an_option():
    assert not any(znodes.encode_uuid(znodes.random_uuid()).startswith("-") for _ in range(500))


_ids = st.lists(st.integers(0, 2**31 - 1), unique=True, max_size=4).map(tuple)


@given(
    st.integers(-1, 2**31 - 1),
    st.integers(0, 2**31 - 1),
    _ids,
    st.integers(0, 2**31 - 1),
    st.sampled_from(LeaderRecoveryState),
    st.integers(0, 2**31 - 1),
)
def test_every_partition_state_comes_back(leader, epoch, isr, controller_epoch, recovery, version):
    state = LeaderAndIsr(leader, epoch, isr, controller_epoch, recovery, version)
    assert znodes.decode_state(T0, znodes.encode_state(state), version) == state


@given(st.dictionaries(st.integers(0, 1000), _ids), st.uuids())
def test_every_assignment_comes_back(partitions, topic_id):
    assignment = TopicAssignment(partitions, topic_id, version=3)
    assert znodes.decode_topic("t", znodes.encode_topic(assignment), 3) == assignment


GARBAGE = (
    b"",
    b"\xff\xfe",
    b"null",
    b"7",
    b'{"brokerid": null}',
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b'{"features":' + b"[" * 100_000,
    b"9" * 10_000,
)
STRANGE_VALUES = (
    b"null",
    b"Infinity",
    b"NaN",
    b"1e999",
    b"[]",
    b"[[]]",
    b"{}",
    b'{"0":7}',
    b'{"x":[1]}',
    b'{"0":["x"]}',
    b'"x"',
    b"99999999999999999999",
)
NUMBERS = {
    "brokerid", "broker", "block_end", "leader", "leader_epoch", "isr", "controller_epoch", "leader_recovery_state",
}  # fmt: skip
STRUCTURES = {
    "partitions",
    "adding_replicas",
    "endpoints",
    "listener_security_protocol_map",
    "timestamp",
    "config",
}
DECODERS = {
    "cluster id": znodes.decode_cluster_id,
    "broker": lambda data: znodes.decode_broker(1, data),
    "topic": lambda data: znodes.decode_topic("t", data),
    "state": lambda data: znodes.decode_state(T0, data, 1),
    "controller": znodes.decode_controller,
    "config": lambda data: znodes.decode_config("/config/topics/t", data),
    "config change": lambda data: znodes.decode_config_change("/config/changes/c", data),
    "log dir event": lambda data: znodes.decode_log_dir_event("/log_dir_event_notification/l", data),
    "producer ids": znodes.decode_producer_id_block_end,
    "reassignment": admin_requests.decode_reassignment,
    "preferred election": admin_requests.decode_preferred_election,
}


@pytest.mark.parametrize("decode", DECODERS.values(), ids=list(DECODERS))
def test_garbage_in_a_znode_is_a_bad_znode_and_nothing_else(decode):
    wholes = [
        b'{"%s":%s}' % (name.encode(), value) for name in NUMBERS | STRUCTURES for value in STRANGE_VALUES
    ]
    state = b'{"leader":%s,"leader_epoch":1,"isr":%s,"controller_epoch":1,"landline_epochs":%s}'
    wholes += [state % (value, other, value) for value in STRANGE_VALUES for other in (b"[1]", value)]
    wholes += [
        b'{"partitions":[{"topic":"t","partition":%s,"replicas":%s}]}' % (v, v) for v in STRANGE_VALUES
    ]
    for data in (*GARBAGE, *wholes):
        with suppress(BadZnodeError):
            decode(data)


def test_numbers_that_no_request_can_carry_are_refused_where_they_are_read():
    state = LeaderAndIsr(1, 1 << 31, (1,), 1)
    with pytest.raises(BadZnodeError, match="no int32"):
        znodes.decode_state(T0, znodes.encode_state(state), 1)
    for decode, data in (
        (znodes.decode_controller, b'{"brokerid":2147483648}'),
        (znodes.decode_producer_id_block_end, b'{"block_end":9223372036854775808}'),
    ):
        with pytest.raises(BadZnodeError, match="no int"):
            decode(data)


@pytest.mark.parametrize("epochs", [((1 << 31, 5),), ((1, 1 << 63),)])
def test_member_epochs_that_no_request_can_carry_are_refused(epochs):
    state = LeaderAndIsr(1, 0, (1,), 1, epochs=MemberEpochs(epochs, configs="c"))
    with pytest.raises(BadZnodeError, match="no int"):
        znodes.decode_state(T0, znodes.encode_state(state), 1)


@pytest.mark.parametrize("text", [b'"\\ud800"', b'{"a":["x\\uDFFFy"]}', b'"\xed\xa0\x80"'])
def test_half_a_surrogate_pair_which_no_response_can_carry_is_refused(text):
    with pytest.raises(BadZnodeError):
        znodes.decode_broker(1, b'{"endpoints":[],"rack":%s}' % text)


def test_a_whole_surrogate_pair_is_a_letter():
    assert znodes.decode_broker(1, b'{"endpoints":[],"rack":"\\ud83d\\ude00"}').rack == "\U0001f600"


def test_a_brokers_texts_are_texts_whatever_its_registration_has():
    data = b'{"endpoints":["A://h:1"],"rack":5,"listener_security_protocol_map":{"A":7},"features":{"f":{"max_version":"2"}}}'
    broker = znodes.decode_broker(1, data)
    assert (broker.rack, broker.endpoints[0].security_protocol) == ("5", "7")
    assert broker.features == {"f": {"max_version": 2}}
    with pytest.raises(BadZnodeError):
        znodes.decode_broker(1, b'{"endpoints":[],"features":[1]}')
