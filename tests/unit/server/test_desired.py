"""Topics and dynamic configs by a list: what is refused, which steps are taken, and what is shown as drift."""

import json

import pytest

from broker.server.desired.document import CLUSTER, DocumentError, read_document
from broker.server.desired.plan import AlterEntity, CreateTopic, Existing, GrowTopic, Topic, make_plan, table

ORDERS = {"name": "orders", "partitions": 6, "replication_factor": 3, "configs": {"retention.ms": 100}}


def topic(name="orders", partitions=6, factors=(3,), configs=(("retention.ms", "100"),), **more):
    return Topic(name, partitions, frozenset(factors), dict(configs), **more)


def plan(*topics, **document):
    existing = Existing({each.name: each for each in topics}, {CLUSTER: {}, "1": {}})
    return make_plan(read_document(json.dumps(document)), existing)


def words(found):
    return [line for step in found.steps for line in step.words()]


def drift(found):
    return [(row.where, row.found, row.listed) for row in found.drift]


def problem(**document):
    with pytest.raises(DocumentError) as caught:
        read_document(json.dumps(document))
    return str(caught.value)


# -- the plan


def test_a_listed_topic_that_is_missing_is_created_with_the_defaults():
    defaults = {"replication_factor": "3", "configs": {"min.insync.replicas": 2, "retention.ms": 5}}
    found = plan(topics=[{**ORDERS, "replication_factor": None}, {"name": "plain"}], defaults=defaults)
    orders = "6 partitions, the brokers' number of replicas, min.insync.replicas=2, retention.ms=100"
    plain = "the brokers' number of partitions, replication factor 3, min.insync.replicas=2, retention.ms=5"
    assert words(found) == [f"topic orders: created with {orders}", f"topic plain: created with {plain}"]
    assert [type(step) for step in found.steps] == [CreateTopic, CreateTopic]


def test_what_is_as_listed_gets_no_step():
    assert plan(topic(), topics=[ORDERS]) == ([], [], [])
    ratio = {
        "name": "orders",
        "configs": {"min.cleanable.dirty.ratio": "0.50", "cleanup.policy": ["compact", "delete"]},
    }
    same = {"min.cleanable.dirty.ratio": "0.5", "cleanup.policy": "compact,delete"}
    assert plan(topic(configs=same.items()), topics=[ratio]) == ([], [], [])


def test_a_changed_config_is_shown_as_before_and_after():
    found = plan(topic(), topics=[{**ORDERS, "configs": {"retention.ms": 200, "compression.type": "zstd"}}])
    assert words(found) == [
        "topic orders: compression.type (not set) -> zstd",
        "topic orders: retention.ms 100 -> 200",
    ]
    assert words(plan(topic(), topics=[{**ORDERS, "configs": {"retention.ms": None}}])) == [
        "topic orders: retention.ms 100 -> (not set)"
    ]


def test_partitions_are_added_and_never_taken_away():
    found = plan(topic(), topics=[{**ORDERS, "partitions": 8}])
    assert found.steps == [GrowTopic("orders", 6, 8)]
    fewer = plan(topic(), topic("b"), topics=[{**ORDERS, "partitions": 4}, {"name": "new"}])
    (why,) = fewer.refused
    assert why.startswith("topic orders has 6 partitions, and 4 are listed: partitions are never taken away.")


def test_another_replication_factor_is_drift_with_the_command_to_change_it():
    found = plan(topic(factors=(1, 3)), topics=[ORDERS])
    assert drift(found) == [("topic orders: replication factor", "1, 3", "3")]
    assert "kafka-reassign-partitions.sh" in found.drift[0].do
    assert found.steps == []


def test_what_exists_and_is_not_listed_stays_and_is_shown():
    internal = topic("__consumer_offsets", is_internal=True)
    own = topic("landline.journal")
    found = plan(
        topic(configs={"retention.ms": "100", "retention.bytes": "7"}.items()),
        topic("old", 1),
        internal,
        own,
        topics=[ORDERS],
    )
    assert found.steps == []
    assert drift(found) == [
        ("topic orders: retention.bytes", "7", "not listed"),
        ("topic old", "1 partition, replication factor 3", "not listed"),
    ]


def test_no_topic_is_called_unlisted_where_none_is_listed():
    assert plan(topic("old")).drift == []


def test_a_topic_is_deleted_only_where_that_is_asked_twice():
    gone = {"name": "orders", "state": "absent"}
    once = plan(topic(), topics=[gone])
    assert once.steps == []
    assert drift(once) == [("topic orders", "6 partitions", "absent")]
    assert "landline_topics_delete=orders" in once.drift[0].do
    twice = plan(topic(), topics=[gone], delete=["orders"])
    assert words(twice) == ["topic orders: deleted, with 6 partitions"]
    assert twice.drift == []
    assert plan(topics=[gone], delete=["orders"]) == ([], [], [])  # the second run
    assert "delete: 'orders' is not listed" in problem(topics=[ORDERS], delete=["orders"])


def test_dynamic_configs_of_brokers_are_compared_and_those_that_nobody_listed_are_shown():
    listed = [{"configs": {"background.threads": 2}}, {"broker": 1, "configs": {"log.retention.ms": 5}}]
    there = {CLUSTER: {"background.threads": "1"}, "1": {"log.retention.bytes": "9"}, "2": {}}
    existing = Existing({}, there)
    found = make_plan(read_document(json.dumps({"brokers": listed})), existing)
    assert found.steps == [
        AlterEntity("broker", CLUSTER, {"background.threads": ("1", "2")}),
        AlterEntity("broker", "1", {"log.retention.ms": (None, "5")}),
    ]
    assert words(found)[0] == "all brokers: background.threads 1 -> 2"
    assert drift(found) == [("broker 1: log.retention.bytes", "9", "not listed")]
    assert "overrides log.retention.bytes of the broker's file" in found.drift[0].do


def test_a_password_that_is_set_is_shown_without_its_value():
    own = {CLUSTER: {}, "1": {"listener.name.x.ssl.key.password": None}}
    found = make_plan(read_document("{}"), Existing({}, own))
    assert drift(found) == [("broker 1: listener.name.x.ssl.key.password", "set", "not listed")]


def test_configs_of_a_broker_that_does_not_run_are_refused():
    assert plan(brokers=[{"broker": 7, "configs": {}}]).refused == [
        "broker 7 does not run, so its dynamic configs cannot be compared"
    ]


def test_the_drift_is_one_table():
    assert table([]) == []
    lines = table(plan(topic(), topic("a-long-name"), topics=[{"name": "orders"}]).drift)
    assert [line.split("  ")[0] for line in lines] == [
        "not as listed, and left so",
        "topic orders: retention.ms",
        "topic a-long-name",
    ]
    assert (
        len({line.index(word) for line, word in zip(lines, ("there is", "100", "6 part"), strict=True)}) == 1
    )


# -- the document


def test_a_document_is_refused_with_all_that_is_wrong():
    told = problem(
        topics=[
            {"name": "a b"},
            {"partitions": 1},
            {"name": "c", "partitons": 1, "replication_factor": 0},
            {"name": "d", "configs": {"retention.mss": 1, "segment.bytes": "many"}},
            {"name": "d", "state": "gone"},
        ],
        defaults={"configs": {"log.retention.ms": 1}},
        brokers=[
            {"broker": "x", "configs": {"broker.id": 1}},
            {"broker": 1, "configs": {"ssl.key.password": "geheim"}},
        ],
    )
    for words_ in (
        "entry 1: 'a b' holds characters",
        "entry 2: name is missing",
        "partitons is unknown. Did you mean partitions?",
        "replication_factor is 0, no number of at least 1",
        "retention.mss: is no topic config. Did you mean retention.ms?",
        "segment.bytes: 'many' is not valid",
        "d is listed twice",
        "state is 'gone', neither present nor absent",
        "defaults: log.retention.ms: is a broker config; the topic's name for it is retention.ms",
        "broker is 'x', neither an id nor <default>",
        "broker.id: cannot be changed while the broker runs",
        "ssl.key.password: is a password, which nobody can compare",
    ):
        assert words_ in told
    assert "geheim" not in told


@pytest.mark.parametrize(
    "text", ["", "[]", '{"topic": []}', '{"topics": {}}', '{"topics": [7]}', '{"delete": 7}']
)
def test_what_is_no_document_is_refused(text):
    with pytest.raises(DocumentError):
        read_document(text)


@pytest.mark.parametrize(
    "configs", [7, ["retention.ms"], {"retention.ms": {"a": 1}}, {"retention.mss": None}]
)
def test_configs_that_are_none_are_refused(configs):
    assert "entry 1" in problem(topics=[{"name": "a", "configs": configs}])
