"""Which changes of a properties file a running broker takes up, and which wait for a restart."""

import pytest

from broker.config.broker_config import BrokerConfig
from broker.config.keys import BROKER_KEYS, DYNAMIC_ONLY_KEYS
from broker.config.live_keys import LIVE_KEYS, differences, is_live, reloaded
from broker.config.problems import ConfigError
from broker.config.topic_config import SYNONYMS
from tests.support.deploy_code import load

BASE = {"zookeeper.connect": "zk", "broker.id": "1", "log.dirs": "/d", "num.partitions": "1"}


def test_what_kafka_changes_cluster_wide_is_live_and_so_is_the_same_in_hours():
    for name in ("log.retention.ms", "log.retention.hours", "log.roll.hours", "message.max.bytes"):
        assert is_live(name)
    for name in ("num.partitions", "log.dirs", "broker.rack", "listeners", "ssl.keystore.location", "x"):
        assert not is_live(name)
    assert is_live("listener.name.plaintext.max.connections")
    assert not is_live("listener.name.plaintext.ssl.keystore.location")


# What takes each of them up is `BrokerServer._on_broker_config`, or it is read at each use.
TAKEN_UP = {
    "background.threads",
    "follower.replication.throttled.rate",
    "leader.replication.throttled.rate",
    "log.cleaner.backoff.ms",
    "log.cleaner.dedupe.buffer.size",
    "log.cleaner.io.max.bytes.per.second",
    "max.connection.creation.rate",
    "max.connections",
    "max.connections.per.ip",
    "max.connections.per.ip.overrides",
    "num.io.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
    "producer.id.expiration.ms",
    "replica.alter.log.dirs.io.max.bytes.per.second",
    "transaction.partition.verification.enable",
}


def test_each_key_that_may_be_altered_is_taken_up_or_is_a_topics_default():
    defaults = {synonym.key for group in SYNONYMS.values() for synonym in group}
    keys = [*BROKER_KEYS.values(), *DYNAMIC_ONLY_KEYS.values()]
    assert {key.name for key in keys if key.alterable} - defaults == TAKEN_UP


def test_passwords_and_what_is_refused_are_not_live():
    assert not [name for name in LIVE_KEYS if BROKER_KEYS[name].sensitive]
    assert "log.preallocate" not in LIVE_KEYS


def test_the_playbooks_know_the_same_keys():
    deployed = load("plugins/module_utils/live_keys.py")
    assert sorted(LIVE_KEYS) == list(deployed.LIVE_KEYS)
    for name in ("listener.name.x.max.connections", "listener.name.x.ssl.client.auth", *BROKER_KEYS):
        assert deployed.is_live(name) == is_live(name), name


def test_a_changed_file_is_told_apart_by_what_needs_a_restart():
    after = {**BASE, "num.partitions": "2", "log.retention.hours": "24", "broker.id": " 1 "}
    assert differences(BASE, after) == (["log.retention.hours"], ["num.partitions"])
    assert differences(after, BASE) == (["log.retention.hours"], ["num.partitions"])
    assert differences(BASE, dict(BASE)) == ([], [])


def test_a_reload_takes_live_keys_alone_and_leaves_dynamic_ones_above_them():
    running = BrokerConfig.from_properties({**BASE, "log.roll.hours": "2"}).with_dynamic(
        {"log.retention.bytes": "5"}
    )
    file = BrokerConfig.from_properties(
        {**BASE, "num.partitions": "7", "log.retention.hours": "1", "log.retention.bytes": "9"}
    )
    config = reloaded(running, file)
    assert config.log_retention_ms == 3_600_000
    assert config.int("num.partitions") == 1
    assert config.int("log.retention.bytes") == 5
    assert config.log_roll_ms == 168 * 3_600_000
    assert config.static_values["log.retention.bytes"] == 9


def test_a_reload_that_contradicts_a_dynamic_config_is_refused(monkeypatch):
    low, high = "log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"
    running = BrokerConfig.from_properties(BASE).with_dynamic({high: "10"})
    with pytest.raises(ConfigError, match=low):
        reloaded(running, BrokerConfig.from_properties({**BASE, low: "20"}))
