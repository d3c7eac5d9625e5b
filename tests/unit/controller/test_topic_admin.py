"""Topics are created, extended and deleted with Kafka's checks and codes."""

from __future__ import annotations

import threading

import pytest

from broker.config.broker_config import BrokerConfig
from broker.config.endpoint import Endpoint
from broker.controller.topic_admin import NewTopic, TopicAdmin
from broker.protocol.errors import Errors, KafkaError
from broker.zookeeper.cluster_store import ClusterStore
from broker.zookeeper.embedded import EmbeddedStore
from broker.zookeeper.store import ConnectionLossError
from broker.zookeeper.znodes import BrokerRegistration


@pytest.fixture
def store():
    embedded = EmbeddedStore()
    embedded.connect()
    store = ClusterStore(embedded)
    store.create_top_level_paths()
    for broker_id in (1, 2, 3):
        endpoint = Endpoint("h", 9092, "PLAINTEXT")
        store.register_broker(BrokerRegistration(broker_id, (endpoint,), rack=f"r{broker_id}"))
    return store


def admin_of(store, **properties):
    props = {"broker.id": "1", "zookeeper.connect": "z:2181"}
    props |= {key.replace("_", "."): value for key, value in properties.items()}
    return TopicAdmin(BrokerConfig.from_properties(props), store)


@pytest.fixture
def admin(store):
    return admin_of(store)


def refusal(call, *args, **kwargs):
    with pytest.raises(KafkaError) as refused:
        call(*args, **kwargs)
    return refused.value


def test_a_topic_is_written_with_assignment_id_and_config(store, admin):
    created = admin.create_topic(NewTopic("t", 4, 3, configs={"retention.ms": "1000"}))
    assignment = store.topic_assignment("t")
    assert (created.partitions, created.replication_factor) == (4, 3)
    assert assignment.topic_id == created.topic_id
    assert all(sorted(replicas) == [1, 2, 3] for replicas in assignment.partitions.values())
    assert store.topic_configs("t") == {"retention.ms": "1000"}


def test_minus_one_takes_the_brokers_defaults(store):
    admin = admin_of(store, num_partitions="5", default_replication_factor="2")
    created = admin.create_topic(NewTopic("t"))
    assert (created.partitions, created.replication_factor) == (5, 2)


def test_an_assignment_by_hand_is_taken_as_it_is(store, admin):
    admin.create_topic(NewTopic("t", assignment={1: (2, 3), 0: (3, 1)}))
    assert store.topic_assignment("t").partitions == {0: (3, 1), 1: (2, 3)}


def test_validation_writes_nothing(store, admin):
    created = admin.create_topic(NewTopic("t", 2, 2), validate_only=True)
    assert (created.topic_id, created.partitions) == (None, 2)
    assert not store.topic_exists("t")
    assert store.topic_configs("t") == {}


@pytest.mark.parametrize("name", ["", ".", "..", "a" * 250, "a/b", "ä", "a b", "a\x00"])
def test_illegal_names_are_refused(admin, name):
    assert refusal(admin.create_topic, NewTopic(name, 1, 1)).error_code is Errors.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("name", ["a" * 249, "A-Z.0_9", "__consumer_offsets"])
def test_legal_names_are_taken(store, admin, name):
    admin.create_topic(NewTopic(name, 1, 1))
    assert store.topic_exists(name)


def test_names_that_differ_only_in_dots_and_underscores_collide(admin):
    admin.create_topic(NewTopic("a.b_c", 1, 1))
    error = refusal(admin.create_topic, NewTopic("a_b.c", 1, 1))
    assert error.error_code is Errors.INVALID_TOPIC_EXCEPTION
    assert "collides with existing topics: a.b_c" in error.message


def test_a_topic_is_created_once(store, admin):
    admin.create_topic(NewTopic("t", 1, 1))
    assert refusal(admin.create_topic, NewTopic("t", 1, 1)).error_code is Errors.TOPIC_ALREADY_EXISTS
    store.mark_topic_for_deletion("t")
    assert "is being deleted" in refusal(admin.create_topic, NewTopic("t", 1, 1)).message


@pytest.mark.parametrize("partitions", [0, -2])
def test_a_topic_has_a_partition(admin, partitions):
    assert refusal(admin.create_topic, NewTopic("t", partitions, 1)).error_code is Errors.INVALID_PARTITIONS


@pytest.mark.parametrize("replicas", [0, -3, 4])
def test_replicas_need_brokers(admin, replicas):
    error = refusal(admin.create_topic, NewTopic("t", 1, replicas))
    assert error.error_code is Errors.INVALID_REPLICATION_FACTOR
    if replicas == 4:
        assert "4 is larger than the number of live brokers, 3" in error.message


@pytest.mark.parametrize(
    "assignment",
    [{1: (1,)}, {0: (1,), 2: (1,)}, {0: (1, 2), 1: (1,)}, {0: (1, 1)}, {0: (9,)}, {0: ()}],
)
def test_impossible_assignments_are_refused(admin, assignment):
    error = refusal(admin.create_topic, NewTopic("t", assignment=assignment))
    assert error.error_code is Errors.INVALID_REPLICA_ASSIGNMENT


def test_an_assignment_and_numbers_exclude_each_other(admin):
    error = refusal(admin.create_topic, NewTopic("t", 1, -1, assignment={0: (1,)}))
    assert error.error_code is Errors.INVALID_REQUEST


@pytest.mark.parametrize(
    "configs", [{"retention.mss": "1"}, {"retention.ms": "soon"}, {"retention.ms": None}]
)
def test_bad_configs_are_refused_by_name(store, admin, configs):
    error = refusal(admin.create_topic, NewTopic("t", 1, 1, configs=configs))
    assert error.error_code is Errors.INVALID_CONFIG
    assert next(iter(configs)) in error.message
    assert not store.topic_exists("t")


def test_a_topic_is_marked_for_deletion(store, admin):
    admin.create_topic(NewTopic("t", 1, 1))
    admin.delete_topic("t")
    admin.delete_topic("t")
    assert store.topics_to_delete() == ["t"]
    assert refusal(admin.delete_topic, "x").error_code is Errors.UNKNOWN_TOPIC_OR_PARTITION


def test_deletion_may_be_disabled(store, admin):
    admin.create_topic(NewTopic("t", 1, 1))
    disabled = admin_of(store, delete_topic_enable="false")
    assert refusal(disabled.delete_topic, "t").error_code is Errors.TOPIC_DELETION_DISABLED
    assert store.topics_to_delete() == []


def test_partitions_are_added_behind_the_present_ones(store, admin):
    topic_id = admin.create_topic(NewTopic("t", 2, 2)).topic_id
    before = store.topic_assignment("t").partitions
    admin.create_partitions("t", 5, None)
    after = store.topic_assignment("t")
    assert after.topic_id == topic_id
    assert sorted(after.partitions) == [0, 1, 2, 3, 4]
    assert {p: after.partitions[p] for p in before} == before
    assert all(len(set(replicas)) == 2 for replicas in after.partitions.values())


def test_partitions_are_added_with_replicas_by_hand(store, admin):
    admin.create_topic(NewTopic("t", 1, 2))
    admin.create_partitions("t", 3, [(3, 1), (2, 3)])
    assert store.topic_assignment("t").partitions[1] == (3, 1)
    assert store.topic_assignment("t").partitions[2] == (2, 3)


@pytest.mark.parametrize(
    ("count", "assignments", "error"),
    [
        (2, None, Errors.INVALID_PARTITIONS),
        (1, None, Errors.INVALID_PARTITIONS),
        (0, None, Errors.INVALID_PARTITIONS),
        (3, [], Errors.INVALID_REPLICA_ASSIGNMENT),
        (3, [(1, 2), (2, 3)], Errors.INVALID_REPLICA_ASSIGNMENT),
        (3, [(1,)], Errors.INVALID_REPLICA_ASSIGNMENT),
        (3, [(1, 1)], Errors.INVALID_REPLICA_ASSIGNMENT),
        (3, [(1, 9)], Errors.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_impossible_additions_are_refused(store, admin, count, assignments, error):
    admin.create_topic(NewTopic("t", 2, 2))
    before = store.topic_assignment("t")
    assert refusal(admin.create_partitions, "t", count, assignments).error_code is error
    assert store.topic_assignment("t") == before


def test_partitions_need_a_topic_that_stays(store, admin):
    assert refusal(admin.create_partitions, "t", 2, None).error_code is Errors.UNKNOWN_TOPIC_OR_PARTITION
    admin.create_topic(NewTopic("t", 1, 1))
    admin.create_partitions("t", 2, None, validate_only=True)
    assert len(store.topic_assignment("t").partitions) == 1
    admin.delete_topic("t")
    assert refusal(admin.create_partitions, "t", 2, None).error_code is Errors.INVALID_TOPIC_EXCEPTION


class AbsentStore(EmbeddedStore):
    """A store whose server does not answer."""

    def children(self, path):
        raise ConnectionLossError(f"{path}: no answer")


def test_a_store_that_is_away_is_a_time_out_for_the_client():
    absent = AbsentStore()
    absent.connect()
    admin = admin_of(ClusterStore(absent))
    ClusterStore(absent).store.ensure_path("/brokers/topics")
    assert refusal(admin.create_topic, NewTopic("t", 1, 1)).error_code is Errors.REQUEST_TIMED_OUT


@pytest.mark.parametrize(
    ("configs", "floor"), [({"segment.bytes": "14"}, "1048576"), ({"segment.index.bytes": "4"}, "16384")]
)
def test_a_topic_of_tiny_segments_is_refused_with_what_would_do(store, admin, configs, floor):
    error = refusal(admin.create_topic, NewTopic("t", 1, 1, configs=configs))
    assert error.error_code is Errors.INVALID_CONFIG
    ((name, value),) = configs.items()
    assert error.message == f"{name}: {value} is less than {floor}, the least that clients may set it to"
    assert not store.topic_exists("t")
    admin.create_topic(NewTopic("t", 1, 1, configs={name: floor}))


def test_offsets_segments_are_as_small_as_the_operator_has_them(store):
    admin = admin_of(store, offsets_topic_segment_bytes="5000")
    configs = {"segment.bytes": "5000"}
    assert (
        refusal(admin.create_topic, NewTopic("t", 1, 1, configs=configs)).error_code is Errors.INVALID_CONFIG
    )
    assert admin.create_topic(NewTopic("__consumer_offsets", 1, 1, configs=configs)).configs == configs


def test_validation_does_not_wait_for_who_creates(store, admin):
    admin.create_topic(NewTopic("t", 1, 1))
    validated = []

    def validate():
        validated.append(admin.create_topic(NewTopic("new", 1, 1), validate_only=True).partitions)
        admin.create_partitions("t", 2, None, validate_only=True)
        validated.append("extended")

    with admin._lock:
        beside = threading.Thread(target=validate, daemon=True)
        beside.start()
        beside.join(30)
        assert validated == [1, "extended"]
    assert len(store.topic_assignment("t").partitions) == 1


def test_topic_that_is_there_when_it_is_written_is_refused_whatever_was_seen_before(store, admin):
    seen = admin.look()
    admin.create_topic(NewTopic("t", 1, 1))
    assert admin.validate(NewTopic("t", 1, 1), seen).topic_id is None
    assert refusal(admin.create_topic, NewTopic("t", 1, 1)).error_code is Errors.TOPIC_ALREADY_EXISTS
