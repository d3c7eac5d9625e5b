"""CreateTopics, DeleteTopics and CreatePartitions in every version: errors per topic, answers when it
is done.
"""

from __future__ import annotations

import threading
import uuid
from types import SimpleNamespace

import pytest

from broker.config.broker_config import BrokerConfig
from broker.config.endpoint import Endpoint
from broker.controller.topic_admin import NewTopic, TopicAdmin
from broker.protocol import codec
from broker.protocol.api_keys import APIS, ApiKey
from broker.protocol.control_messages import BrokerInfo, MetadataUpdate, PartitionInfo
from broker.protocol.errors import Errors, KafkaError
from broker.security.acls import AclOperation
from broker.server.apis import create_partitions, create_topics, delete_topics
from broker.server.apis.told_configs import ToldConfigs
from broker.server.metadata_cache import MetadataCache
from broker.server.quotas import QuotaManagers
from broker.utils.clock import SYSTEM_CLOCK
from broker.utils.timer import Timer
from broker.zookeeper import znodes
from broker.zookeeper.cluster_store import ClusterStore
from broker.zookeeper.embedded import EmbeddedStore
from broker.zookeeper.znodes import BrokerRegistration

MODULES = {
    ApiKey.CREATE_TOPICS: create_topics,
    ApiKey.DELETE_TOPICS: delete_topics,
    ApiKey.CREATE_PARTITIONS: create_partitions,
}
CREATE_VERSIONS = range(8)


class Cluster:
    """One broker's context, whose controller the test plays."""

    def __init__(self, **properties):
        embedded = EmbeddedStore()
        embedded.connect()
        self.store = ClusterStore(embedded)
        self.store.create_top_level_paths()
        self.store.register_broker(BrokerRegistration(1, (Endpoint("h", 9092, "PLAINTEXT"),)))
        props = {"broker.id": "1", "zookeeper.connect": "z:2181"}
        props |= {key.replace("_", "."): value for key, value in properties.items()}
        config = BrokerConfig.from_properties(props)
        self.controller = SimpleNamespace(is_active=True, is_deleting=lambda _: False)
        self.timer = Timer("test")
        self.cache = MetadataCache("PLAINTEXT")
        self.answers = []
        self.answered = threading.Event()
        self.gone = False  # the client of the next request has hung up
        self.ctx = SimpleNamespace(
            config=config,
            broker_id=1,
            clock=SYSTEM_CLOCK,
            timer=self.timer,
            store=self.store,
            metadata_cache=self.cache,
            controller=self.controller,
            topic_admin=TopicAdmin(config, self.store),
            dynamic_config=SimpleNamespace(config=config),
            respond=self._respond,
            access=None,
            quotas=QuotaManagers(),
        )

    def _respond(self, request, fields):
        self.answers.append(fields)
        self.answered.set()

    def lead(self, *topics):
        """What UpdateMetadata does once the topics' partitions have leaders."""
        assignments = self.store.topic_assignments(topics)
        partitions = [
            (topic, PartitionInfo(index, 1, 0, (1,), (1,)))
            for topic, assignment in assignments.items()
            for index in assignment.partitions
        ]
        ids = {topic: assignment.topic_id for topic, assignment in assignments.items()}
        brokers = [BrokerInfo(1, {"PLAINTEXT": ("h", 9092)})]
        self.cache.update(MetadataUpdate(1, brokers, ids, partitions))

    def forget(self, topic, count):
        partitions = [(topic, PartitionInfo(index, -2, 0, (), ())) for index in range(count)]
        self.cache.update(MetadataUpdate(1, [], {}, partitions))

    def send(self, api, version, fields):
        """Through the wire format there and back; None while the answer waits."""
        wire = codec.encode(api, version, "request", fields)
        self.request = SimpleNamespace(
            api_key=api, api_version=version, on_abandon=None, connection=SimpleNamespace(gone=self.gone)
        )
        message = codec.decode(api, version, "request", wire)
        answer = MODULES[api].handle(self.request, message, self.ctx)
        return None if answer is None else self.decoded(answer)

    def decoded(self, answer):
        api, version = self.request.api_key, self.request.api_version
        return codec.decode(api, version, "response", codec.encode(api, version, "response", answer))

    def answer(self):
        assert self.answered.wait(30)
        assert len(self.answers) == 1
        return self.decoded(self.answers[0])


@pytest.fixture
def cluster():
    cluster = Cluster()
    yield cluster
    cluster.timer.stop()


def topic(name, partitions=1, replicas=1, **changes):
    fields = {"name": name, "num_partitions": partitions, "replication_factor": replicas}
    return {**fields, "assignments": [], "configs": [], **changes}


def create(*topics, timeout=30_000, validate_only=False):
    return {"topics": list(topics), "timeout": timeout, "validate_only": validate_only}


def codes(rows):
    return [Errors(row.error_code) for row in rows]


def test_a_refused_topic_says_as_by_kafka_whether_its_configs_may_be_seen(cluster):
    described = {"shown"}
    cluster.ctx.access = SimpleNamespace(
        allows=lambda _request, operation, _kind, name, **_: (
            operation is AclOperation.DESCRIBE_CONFIGS and name in described
        )
    )
    rows = cluster.send(ApiKey.CREATE_TOPICS, 7, create(topic("shown"), topic("hidden"))).topics
    assert codes(rows) == [Errors.TOPIC_AUTHORIZATION_FAILED] * 2
    told = [row.topic_config_error_code for row in rows]
    assert told == [Errors.NONE, Errors.TOPIC_AUTHORIZATION_FAILED]


@pytest.mark.parametrize("version", CREATE_VERSIONS)
def test_a_created_topic_is_answered_once_it_has_leaders(cluster, version):
    assert cluster.send(ApiKey.CREATE_TOPICS, version, create(topic("t", 2))) is None
    assert cluster.answers == []
    cluster.lead("t")
    (row,) = cluster.answer().topics
    assert (row.name, row.error_code) == ("t", 0)
    if version >= 5:
        assert (row.num_partitions, row.replication_factor) == (2, 1)
        assert {"retention.ms", "cleanup.policy"} <= {config.name for config in row.configs}
    if version >= 7:
        assert row.topic_id == cluster.store.topic_assignment("t").topic_id


def test_each_topic_has_its_own_error(cluster):
    cluster.store.create_topic("old", {0: (1,)}, {})
    wanted = create(
        topic("old"), topic("bad name"), topic("wide", 1, 3), topic("none", 0), topic("twice"), topic("twice")
    )
    rows = cluster.send(ApiKey.CREATE_TOPICS, 7, wanted).topics
    assert {row.name: Errors(row.error_code) for row in rows} == {
        "old": Errors.TOPIC_ALREADY_EXISTS,
        "bad name": Errors.INVALID_TOPIC_EXCEPTION,
        "wide": Errors.INVALID_REPLICATION_FACTOR,
        "none": Errors.INVALID_PARTITIONS,
        "twice": Errors.INVALID_REQUEST,
    }
    assert [row.name for row in rows].count("twice") == 2
    assert "live brokers, 1" in next(row for row in rows if row.name == "wide").error_message


@pytest.mark.parametrize("validate_only", [False, True])
def test_no_topic_gets_the_name_of_krafts_log(cluster, validate_only):
    wanted = {**create(*[topic("__cluster_metadata")] * 2), "validate_only": validate_only}
    rows = cluster.send(ApiKey.CREATE_TOPICS, 7, wanted).topics
    assert {row.error_code for row in rows} == {Errors.INVALID_REQUEST}
    assert all("KRaft" in row.error_message for row in rows)
    assert "__cluster_metadata" not in cluster.store.topics()


def test_one_request_makes_no_more_partitions_over_all_its_topics_than_over_one(cluster):
    wanted = create(*(topic(f"t{number}", 101) for number in range(100)))
    with pytest.raises(
        KafkaError, match="10100 partitions"
    ) as raised:  # told for every topic by the table of APIs
        cluster.send(ApiKey.CREATE_TOPICS, 7, wanted)
    assert raised.value.error_code is Errors.POLICY_VIOLATION
    assert not cluster.store.topic_exists("t0")


def test_an_answer_that_waits_too_long_is_a_time_out(cluster):
    cluster.send(ApiKey.CREATE_TOPICS, 7, create(topic("t"), timeout=30))
    assert codes(cluster.answer().topics) == [Errors.REQUEST_TIMED_OUT]
    assert cluster.store.topic_exists("t")
    assert cluster.cache._listeners == []


def test_without_time_nothing_is_waited_for(cluster):
    cluster.send(ApiKey.CREATE_TOPICS, 7, create(topic("t"), timeout=0))
    (row,) = cluster.answer().topics
    assert row.error_code == Errors.REQUEST_TIMED_OUT
    assert row.topic_id == cluster.store.topic_assignment("t").topic_id


def test_validation_alone_is_answered_at_once(cluster):
    (row,) = cluster.send(ApiKey.CREATE_TOPICS, 7, create(topic("t", 3), validate_only=True)).topics
    assert (row.error_code, row.num_partitions, row.topic_id) == (0, 3, None)
    assert not cluster.store.topic_exists("t")


def test_the_response_tells_configs_that_were_set(cluster):
    wanted = topic("t", configs=[{"name": "retention.ms", "value": "7"}])
    (row,) = cluster.send(ApiKey.CREATE_TOPICS, 7, create(wanted, validate_only=True)).topics
    config = next(config for config in row.configs if config.name == "retention.ms")
    assert (config.value, config.config_source) == ("7", 1)


@pytest.mark.parametrize("api", MODULES)
def test_only_the_controller_serves(cluster, api):
    cluster.controller.is_active = False
    bodies = {
        ApiKey.CREATE_TOPICS: create(topic("t")),
        ApiKey.DELETE_TOPICS: {"topics": [{"name": "t"}], "timeout": 1},
        ApiKey.CREATE_PARTITIONS: partitions("t", 2),
    }
    answer = cluster.send(api, APIS[api].max_version, bodies[api])
    rows = next(getattr(answer, name) for name in ("topics", "responses", "results") if hasattr(answer, name))
    assert codes(rows) == [Errors.NOT_CONTROLLER]


@pytest.mark.parametrize("version", range(7))
def test_a_deleted_topic_is_answered_once_it_is_gone(cluster, version):
    cluster.store.create_topic("t", {0: (1,)}, {})
    cluster.lead("t")
    deleting = {"t"}
    cluster.controller.is_deleting = deleting.__contains__
    by_name = {"topic_names": ["t"], "topics": [{"name": "t"}], "timeout": 30_000}
    assert cluster.send(ApiKey.DELETE_TOPICS, version, by_name) is None
    assert cluster.store.is_marked_for_deletion("t")
    cluster.forget("t", 1)
    assert cluster.answers == []
    deleting.clear()
    (row,) = cluster.answer().responses
    assert (row.name, row.error_code) == ("t", 0)


def test_a_topic_is_deleted_by_its_id(cluster):
    cluster.store.create_topic("t", {0: (1,)}, {})
    cluster.lead("t")
    topic_id = cluster.store.topic_assignment("t").topic_id
    cluster.send(
        ApiKey.DELETE_TOPICS, 6, {"topics": [{"name": None, "topic_id": topic_id}], "timeout": 30_000}
    )
    cluster.forget("t", 1)
    (row,) = cluster.answer().responses
    assert (row.name, row.topic_id, row.error_code) == ("t", topic_id, 0)


def test_deletions_are_refused_one_by_one(cluster):
    cluster.store.create_topic("t", {0: (1,)}, {})
    wanted = [
        {"name": "x"},
        {"name": "x"},
        {"name": "t/partitions"},
        {"name": ""},
        {"name": None, "topic_id": uuid.uuid4()},
        {"name": "t", "topic_id": uuid.uuid4()},
        {"name": None},
    ]
    answer = cluster.send(ApiKey.DELETE_TOPICS, 6, {"topics": wanted, "timeout": 30_000})
    assert codes(answer.responses) == [
        Errors.UNKNOWN_TOPIC_OR_PARTITION,
        Errors.UNKNOWN_TOPIC_OR_PARTITION,
        Errors.UNKNOWN_TOPIC_OR_PARTITION,
        Errors.UNKNOWN_TOPIC_OR_PARTITION,
        Errors.UNKNOWN_TOPIC_ID,
        Errors.INVALID_REQUEST,
        Errors.INVALID_REQUEST,
    ]
    assert not cluster.store.is_marked_for_deletion("t")


def test_a_topic_that_is_named_twice_is_deleted_once(cluster):
    cluster.store.create_topic("t", {0: (1,)}, {})
    cluster.send(ApiKey.DELETE_TOPICS, 6, {"topics": [{"name": "t"}, {"name": "t"}], "timeout": 30_000})
    cluster.forget("t", 1)
    assert codes(cluster.answer().responses) == [Errors.NONE, Errors.NONE]


@pytest.mark.parametrize(
    ("version", "code"), [(2, Errors.INVALID_REQUEST), (6, Errors.TOPIC_DELETION_DISABLED)]
)
def test_disabled_deletion_is_told_in_the_words_of_the_version(version, code):
    cluster = Cluster(delete_topic_enable="false")
    cluster.store.create_topic("t", {0: (1,)}, {})
    body = {"topic_names": ["t"], "topics": [{"name": "t"}], "timeout": 1}
    assert codes(cluster.send(ApiKey.DELETE_TOPICS, version, body).responses) == [code]
    cluster.timer.stop()


def test_a_deletion_that_takes_too_long_is_a_time_out(cluster):
    cluster.store.create_topic("t", {0: (1,)}, {})
    cluster.lead("t")
    cluster.send(ApiKey.DELETE_TOPICS, 6, {"topics": [{"name": "t"}], "timeout": 20})
    assert codes(cluster.answer().responses) == [Errors.REQUEST_TIMED_OUT]


def partitions(name, count, assignments=None, *, validate_only=False):
    rows = None if assignments is None else [{"broker_ids": replicas} for replicas in assignments]
    topics = [{"name": name, "count": count, "assignments": rows}]
    return {"topics": topics, "timeout": 30_000, "validate_only": validate_only}


@pytest.mark.parametrize("version", range(4))
def test_added_partitions_are_answered_once_they_have_leaders(cluster, version):
    cluster.store.create_topic("t", {0: (1,)}, {})
    cluster.lead("t")
    assert cluster.send(ApiKey.CREATE_PARTITIONS, version, partitions("t", 3, [[1], [1]])) is None
    assert cluster.answers == []
    cluster.lead("t")
    (row,) = cluster.answer().results
    assert (row.name, row.error_code) == ("t", 0)


def test_impossible_partitions_are_refused_with_a_reason(cluster):
    cluster.store.create_topic("t", {0: (1,)}, {})
    (row,) = cluster.send(ApiKey.CREATE_PARTITIONS, 3, partitions("t", 1)).results
    assert (Errors(row.error_code), row.error_message) == (
        Errors.INVALID_PARTITIONS,
        "the topic has 1 partitions already",
    )
    (row,) = cluster.send(ApiKey.CREATE_PARTITIONS, 3, partitions("x", 2)).results
    assert Errors(row.error_code) is Errors.UNKNOWN_TOPIC_OR_PARTITION
    (row,) = cluster.send(ApiKey.CREATE_PARTITIONS, 3, partitions("t", 2, validate_only=True)).results
    assert row.error_code == 0
    assert len(cluster.store.topic_assignment("t").partitions) == 1


@pytest.mark.parametrize("api", MODULES)
def test_an_unforeseen_error_is_told_for_every_topic(cluster, api):
    bodies = {
        ApiKey.CREATE_TOPICS: create(topic("t")),
        ApiKey.DELETE_TOPICS: {"topics": [{"name": "t"}], "timeout": 1},
        ApiKey.CREATE_PARTITIONS: partitions("t", 2),
    }
    version = APIS[api].max_version
    wire = codec.encode(api, version, "request", bodies[api])
    message = codec.decode(api, version, "request", wire)
    error = KafkaError(Errors.UNKNOWN_SERVER_ERROR, "no")
    fields = MODULES[api].error_response(message, error)
    codec.encode(api, version, "response", fields)
    rows = next(fields[name] for name in ("topics", "responses", "results") if name in fields)
    assert [row["error_code"] for row in rows] == [Errors.UNKNOWN_SERVER_ERROR]


@pytest.mark.parametrize("version", range(1, 8))
def test_many_topics_are_validated_by_one_look_and_their_configs_told_once(cluster, monkeypatch, version):
    told, looks = [], []

    def entries(config, overrides, names):
        told.append(dict(overrides))
        return topic_entries(config, overrides, names)

    def topics():
        looks.append(1)
        return store_topics()

    topic_entries, store_topics = create_topics.topic_entries, cluster.store.topics
    monkeypatch.setattr(create_topics, "topic_entries", entries)
    monkeypatch.setattr(cluster.store, "topics", topics)
    own = {"configs": [{"name": "retention.ms", "value": "77"}]}
    wanted = [topic(f"t{number}", **(own if number % 2 else {})) for number in range(400)]
    rows = cluster.send(ApiKey.CREATE_TOPICS, version, create(*wanted, validate_only=True)).topics
    assert [row.name for row in rows] == [f"t{number}" for number in range(400)]
    assert set(codes(rows)) == {Errors.NONE}
    assert len(looks) == 1
    assert len(told) <= 2
    if version >= 5:
        retention = [{c.name: c.value for c in row.configs}["retention.ms"] for row in rows]
        assert retention == ["604800000", "77"] * 200
    assert cluster.store.topics() == []


def test_of_many_topics_those_that_are_refused_ask_the_store_for_nothing(cluster, monkeypatch):
    looks = []

    def topics():
        looks.append(1)
        return store_topics()

    store_topics = cluster.store.topics
    monkeypatch.setattr(cluster.store, "topics", topics)
    wanted = [topic("good"), *(topic(f"t{number}", replicas=9) for number in range(300))]
    assert cluster.send(ApiKey.CREATE_TOPICS, 5, create(*wanted)) is None
    cluster.lead("good")
    good, *bad = cluster.answer().topics
    assert (good.name, good.error_code) == ("good", 0)
    assert set(codes(bad)) == {Errors.INVALID_REPLICATION_FACTOR}
    assert len(looks) == 3, "one look for all, one before the topic is written, and one since"


@pytest.mark.parametrize("version", [2, 5, 7])
def test_what_somebody_made_long_is_not_kept(cluster, version, monkeypatch):
    """A number may stand between as many spaces as a request has room for."""
    told = ToldConfigs("topics")
    monkeypatch.setattr(create_topics, "_told", told)
    names = [
        "retention.ms",
        "segment.ms",
        "flush.ms",
        "max.message.bytes",
        "retention.bytes",
        "flush.messages",
    ]
    names += ["file.delete.delay.ms", "delete.retention.ms", "min.compaction.lag.ms", "index.interval.bytes"]
    for number in range(3):
        spaces = " " * 32_000
        configs = [{"name": name, "value": f"{spaces}{number + 7}"} for name in names]
        (row,) = cluster.send(
            ApiKey.CREATE_TOPICS, version, create(topic("t", configs=configs), validate_only=True)
        ).topics
        assert row.error_code == Errors.NONE
    assert len(repr(told._kept)) < 32_000


def test_a_topic_that_goes_while_others_are_created_is_not_said_to_exist(cluster, monkeypatch):
    cluster.ctx.topic_admin.create_topic(NewTopic("old", 1, 1))
    cluster.ctx.topic_admin.create_topic(NewTopic("kept", 1, 1))
    create_topic = cluster.ctx.topic_admin.create_topic

    def create_and_delete(new, **more):
        created = create_topic(new, **more)
        if new.name == "first":
            for path in (
                znodes.topic_path("old"),
                znodes.entity_config_path(znodes.entity_path("topics", "old")),
            ):
                cluster.store.store.delete(path)
        return created

    monkeypatch.setattr(cluster.ctx.topic_admin, "create_topic", create_and_delete)
    wanted = create(topic("first"), topic("old"), topic("kept"))
    assert cluster.send(ApiKey.CREATE_TOPICS, 5, wanted) is None
    cluster.lead("first", "old")
    rows = {row.name: Errors(row.error_code) for row in cluster.answer().topics}
    assert rows == {"first": Errors.NONE, "old": Errors.NONE, "kept": Errors.TOPIC_ALREADY_EXISTS}


@pytest.mark.parametrize("api", [ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS])
def test_nobody_waits_for_the_leaders_of_a_client_that_has_hung_up(cluster, api):
    cluster.store.create_topic("t", {0: (1,)}, {})
    cluster.lead("t")
    bodies = {
        ApiKey.CREATE_TOPICS: create(topic("new")),
        ApiKey.DELETE_TOPICS: {"topics": [{"name": "t"}], "timeout": 30_000},
        ApiKey.CREATE_PARTITIONS: partitions("t", 2),
    }
    cluster.send(api, APIS[api].max_version, bodies[api])
    assert cluster.cache._listeners
    cluster.request.on_abandon()
    assert not cluster.cache._listeners
    cluster.gone = True
    cluster.store.create_topic("u", {0: (1,)}, {})
    bodies[ApiKey.CREATE_TOPICS] = create(topic("newer"))
    bodies[ApiKey.CREATE_PARTITIONS] = partitions("u", 2)
    cluster.send(api, APIS[api].max_version, bodies[api])
    assert not cluster.cache._listeners
    assert cluster.answers == []
