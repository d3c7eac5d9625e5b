"""What DescribeConfigs tells of configs, and what IncrementalAlterConfigs makes of them."""

import pytest

from broker.config.alter import AlterError, Change, Operation, alter_broker, alter_topic
from broker.config.broker_config import BrokerConfig
from broker.config.describe import Source, broker_entries, default_broker_entries, topic_entries
from broker.config.keys import BROKER_KEYS, TOPIC_KEYS

SET, DELETE, APPEND, SUBTRACT = Operation


@pytest.fixture
def config():
    return BrokerConfig.from_properties(
        {
            "zookeeper.connect": "zk",
            "broker.id": "1",
            "log.dirs": "/d",
            "log.retention.hours": "2",
            "ssl.keystore.password": "hunter2",
        }
    )


def by_name(entries):
    return {entry.key.name: entry for entry in entries}


def test_only_keys_that_take_effect_at_run_time_are_told_as_alterable(config):
    entries = by_name(broker_entries(config, None))
    for name in ("num.io.threads", "log.retention.ms", "log.cleaner.io.max.bytes.per.second"):
        assert not entries[name].read_only
    for name in ("num.network.threads", "log.cleaner.threads", "metric.reporters", "broker.id"):
        assert entries[name].read_only


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("num.network.threads", "2", "restart"),
        ("log.cleaner.threads", "2", "no effect in Landline"),
        ("log.preallocate", "true", "not allocated in full"),
    ],
)
def test_a_key_that_would_not_take_effect_is_not_altered(config, name, value, reason):
    with pytest.raises(AlterError, match=f"{name}: .*{reason}"):
        alter_broker(config, {}, [Change(name, SET, value)], cluster_wide=True)


def test_all_topic_configs_are_told_with_the_brokers_values(config):
    entries = by_name(topic_entries(config, {"cleanup.policy": "compact"}, None))
    assert entries.keys() == TOPIC_KEYS.keys()
    policy = entries["cleanup.policy"]
    assert (policy.value, policy.source, policy.read_only) == ("compact", Source.DYNAMIC_TOPIC, False)
    assert policy.synonyms == (
        ("cleanup.policy", "compact", Source.DYNAMIC_TOPIC),
        ("log.cleanup.policy", "delete", Source.DEFAULT),
    )


def test_a_topics_default_shows_which_broker_key_it_comes_from(config):
    (retention,) = topic_entries(config.with_dynamic({"log.retention.ms": "5"}), {}, ["retention.ms"])
    assert (retention.value, retention.source) == ("5", Source.DYNAMIC_BROKER)
    assert retention.synonyms == (
        ("log.retention.ms", "5", Source.DYNAMIC_BROKER),
        ("log.retention.hours", "2", Source.STATIC_BROKER),
        ("log.retention.hours", "168", Source.DEFAULT),
    )


def test_a_value_that_only_a_coarser_key_gives_is_told_without_source_as_in_kafka(config):
    (retention,) = topic_entries(config, {}, ["retention.ms"])
    assert (retention.value, retention.source, retention.synonyms) == ("7200000", Source.DEFAULT, ())


def test_a_topic_config_without_broker_key_is_default(config):
    (entry,) = topic_entries(config, {}, ["remote.storage.enable"])
    assert (entry.value, entry.source, entry.synonyms) == ("false", Source.DEFAULT, ())


def test_a_topics_unusable_override_is_not_told_as_if_it_were_in_force(config):
    (entry,) = topic_entries(config, {"segment.bytes": "x"}, ["segment.bytes"])
    assert entry.value == "1073741824"


def test_broker_configs_are_told_with_their_layers(config):
    changed = config.with_dynamic({"log.retention.ms": "3"}, {"log.retention.ms": "4"})
    entries = by_name(broker_entries(changed, None))
    assert entries.keys() == BROKER_KEYS.keys()
    retention = entries["log.retention.ms"]
    assert (retention.value, retention.source, retention.read_only) == ("3", Source.DYNAMIC_BROKER, False)
    assert retention.synonyms == (
        ("log.retention.ms", "3", Source.DYNAMIC_BROKER),
        ("log.retention.ms", "4", Source.DYNAMIC_DEFAULT_BROKER),
        ("log.retention.hours", "2", Source.STATIC_BROKER),
        ("log.retention.hours", "168", Source.DEFAULT),
    )
    assert entries["broker.id"].read_only
    assert entries["broker.id"].source is Source.STATIC_BROKER


def test_a_password_is_never_told(config):
    (entry,) = broker_entries(config, ["ssl.keystore.password"])
    assert entry.key.sensitive
    assert entry.value is None
    assert [synonym.value for synonym in entry.synonyms] == [None]


def test_the_clusters_defaults_are_those_that_are_set(config):
    assert default_broker_entries(config, None) == []
    changed = config.with_dynamic({}, {"log.retention.ms": "4", "leader.replication.throttled.rate": "9"})
    entries = by_name(default_broker_entries(changed, None))
    assert {name: entry.value for name, entry in entries.items()} == {
        "log.retention.ms": "4",
        "leader.replication.throttled.rate": "9",
    }
    assert default_broker_entries(changed, ["log.retention.bytes"]) == []


# --- altering


def test_set_and_delete_change_what_they_name_and_nothing_else(config):
    after = alter_topic(
        config,
        {"retention.ms": "1", "segment.bytes": "100"},
        [Change("retention.ms", SET, "2"), Change("segment.bytes", DELETE, None)],
    )
    assert after == {"retention.ms": "2"}


def test_append_and_subtract_work_on_the_value_in_force(config):
    appended = alter_topic(config, {}, [Change("cleanup.policy", APPEND, "compact")])
    assert appended == {"cleanup.policy": "delete,compact"}
    assert alter_topic(config, appended, [Change("cleanup.policy", APPEND, "compact")]) == appended
    assert alter_topic(config, appended, [Change("cleanup.policy", SUBTRACT, "delete")]) == {
        "cleanup.policy": "compact"
    }


@pytest.mark.parametrize(
    ("changes", "message", "invalid_request"),
    [
        ([Change("retention.sm", SET, "1")], "Did you mean retention.ms", False),
        ([Change("retention.ms", SET, "x")], "whole number", False),
        ([Change("retention.ms", APPEND, "1")], "only lists", False),
        ([Change("no.such", APPEND, "1")], "no known config", False),
        ([Change("cleanup.policy", SUBTRACT, "delete")], "list of compact, delete", False),
        ([Change("min.compaction.lag.ms", SET, str(2**63 - 1)), Change("max.compaction.lag.ms", SET, "1")],
         "larger than", False),
        ([Change("retention.ms", SET, "1"), Change("retention.ms", SET, "2")], "more than once", True),
        ([Change("retention.ms", SET, None)], "null", True),
        ([Change("retention.ms", 7, "1")], "no operation", True),
    ],
)  # fmt: skip
def test_a_change_that_cannot_work_is_refused(config, changes, message, invalid_request):
    with pytest.raises(AlterError, match=message) as refusal:
        alter_topic(config, {}, changes)
    assert refusal.value.invalid_request is invalid_request


def test_an_old_unknown_config_does_not_stand_in_the_way(config):
    after = alter_topic(config, {"from.the.future": "1"}, [Change("retention.ms", SET, "2")])
    assert after == {"from.the.future": "1", "retention.ms": "2"}
    assert alter_topic(config, after, [Change("from.the.future", DELETE, None)]) == {"retention.ms": "2"}


@pytest.mark.parametrize("cluster_wide", [True, False])
def test_broker_configs_are_changed_where_they_may_be(config, cluster_wide):
    changes = [Change("log.retention.ms", SET, "5"), Change("leader.replication.throttled.rate", SET, "9")]
    after = alter_broker(config, {"log.segment.bytes": "99"}, changes, cluster_wide=cluster_wide)
    assert after == {
        "log.segment.bytes": "99",
        "log.retention.ms": "5",
        "leader.replication.throttled.rate": "9",
    }


def test_a_read_only_broker_config_is_refused(config):
    with pytest.raises(AlterError, match=r"listeners: cannot be changed while the broker runs"):
        alter_broker(config, {}, [Change("listeners", SET, "PLAINTEXT://:1")], cluster_wide=False)
