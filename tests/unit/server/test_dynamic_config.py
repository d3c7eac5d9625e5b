"""DynamicConfigManager over the embedded store: changes reach those that use them, once, and bad ones nobody."""

import os
import threading

import pytest
from structlog.testing import capture_logs

from broker.config.broker_config import BrokerConfig
from broker.config.problems import ConfigError
from broker.server.config_file import ConfigFile, version_of
from broker.server.dynamic_config import DynamicConfigManager
from broker.zookeeper.cluster_store import ClusterStore
from broker.zookeeper.store import SessionEvent
from rig.wait import wait_until
from tests.support.faulty_store import Faults, FaultySession


class Recorder:
    """What the manager told."""

    def __init__(self):
        self.topics = []
        self.brokers = []

    def on_topic(self, topic, config):
        self.topics.append((topic, config))

    def retentions(self, topic):
        return [config.retention_ms for name, config in self.topics if name == topic]


@pytest.fixture
def heard():
    return Recorder()


PROPERTIES = {"zookeeper.connect": "zk", "broker.id": "1", "log.dirs": "/d"}


def make_manager(store, heard, file=None):
    config = BrokerConfig.from_properties(PROPERTIES)
    return DynamicConfigManager(
        config,
        1,
        store,
        on_topic_config=heard.on_topic,
        on_broker_config=heard.brokers.append,
        local_topics=lambda: ["t1", "t2"],
        file=file,
    )


@pytest.fixture
def manager(store, heard):
    made = make_manager(store, heard)
    yield made
    made.shutdown()


def alter(store, kind, name, config):
    store.set_entity_config(kind, name, config)
    store.create_config_change(f"{kind}/{name}")


def test_a_topic_change_is_handed_on(store, manager, heard):
    manager.startup()
    alter(store, "topics", "t1", {"retention.ms": "5"})
    wait_until(lambda: heard.retentions("t1") == [5])
    alter(store, "topics", "t1", {})
    wait_until(lambda: heard.retentions("t1") == [5, 604_800_000])


def test_a_change_announced_before_the_start_is_taken_up(store, manager, heard):
    alter(store, "topics", "t1", {"retention.ms": "5"})
    manager.startup()
    wait_until(lambda: heard.retentions("t1") == [5])


def test_no_announcement_is_taken_up_twice(store, manager, heard):
    manager.startup()
    for number in range(20):
        alter(store, "topics", "t1", {"retention.ms": str(number)})
    alter(store, "topics", "t2", {"retention.ms": "7"})
    wait_until(lambda: heard.retentions("t2") == [7])
    assert len(heard.retentions("t1")) <= 20
    assert heard.retentions("t1")[-1] == 19


def test_of_many_announcements_of_a_topic_one_is_taken_up(store, manager, heard):
    """A script that sets a config ten thousand times does not have it read ten thousand times at the next start."""
    for number in range(20):
        alter(store, "topics", "t1", {"retention.ms": str(number)})
        alter(store, "topics", "t2", {"retention.ms": "7"})
    manager.startup()
    wait_until(lambda: heard.retentions("t2") == [7])
    assert heard.retentions("t1") == [19]


def test_configs_that_cannot_be_used_are_left_out_alone(store, manager, heard):
    manager.startup()
    alter(store, "topics", "t1", {"retention.ms": "5", "from.the.future": "1", "segment.bytes": "x"})
    wait_until(lambda: heard.retentions("t1") == [5])
    assert heard.topics[-1][1].segment_bytes == 1 << 30


def test_topics_of_segments_smaller_than_clients_may_make_them_work_and_are_told_of(store, manager, heard):
    store.set_entity_config("topics", "t1", {"segment.bytes": "100"})
    store.set_entity_config("topics", "t2", {"segment.bytes": "1048576"})
    with capture_logs() as lines:
        manager.load_topics()
    assert [(line["topics"], line["count"]) for line in lines] == [(["t1"], 1)]
    assert manager.topic_log_config("t1").segment_bytes == 100


def test_this_brokers_dynamic_configs_are_in_force_when_startup_returns(store, manager, heard):
    store.set_entity_config("brokers", "<default>", {"log.retention.ms": "4"})
    store.set_entity_config("brokers", "1", {"log.retention.bytes": "6"})
    manager.startup()
    assert manager.config.log_retention_ms == 4
    assert manager.config.int("log.retention.bytes") == 6
    assert heard.brokers == [manager.config]
    assert sorted(topic for topic, _ in heard.topics) == ["t1", "t2"]
    assert heard.retentions("t1") == [4]


def test_a_change_of_the_clusters_default_reaches_topics_that_do_not_override_it(store, manager, heard):
    store.set_entity_config("topics", "t2", {"retention.ms": "9"})
    manager.startup()
    alter(store, "brokers", "<default>", {"log.retention.ms": "4"})
    wait_until(lambda: heard.retentions("t1") == [4] and heard.retentions("t2") == [9])


def test_another_brokers_configs_are_not_ours(store, manager, heard):
    manager.startup()
    alter(store, "brokers", "2", {"log.retention.ms": "4"})
    alter(store, "topics", "t1", {})
    wait_until(lambda: heard.topics)
    assert heard.brokers == []


def test_dynamic_broker_configs_that_cannot_be_used_are_left_out_alone(store, manager):
    store.set_entity_config(
        "brokers", "1", {"listeners": "PLAINTEXT://:1", "log.retention.ms": "4", "x": "y"}
    )
    manager.startup()
    assert manager.config.log_retention_ms == 4


def test_a_part_that_cannot_follow_does_not_stop_the_others(store, manager, heard):
    def fail(_):
        raise RuntimeError("planned")

    manager._listeners.insert(0, fail)
    manager.startup()
    alter(store, "brokers", "1", {"log.retention.ms": "4"})
    wait_until(lambda: heard.brokers)
    alter(store, "topics", "t1", {"retention.ms": "5"})
    wait_until(lambda: heard.retentions("t1")[-1:] == [5])


def test_garbage_in_an_announcement_or_config_does_not_stop_the_manager(store, manager, heard):
    manager.startup()
    store.store.ensure_path("/config/topics")
    store.store.create("/config/topics/bad", b"no json")
    store.create_config_change("topics/bad")
    alter(store, "topics", "t1", {"retention.ms": "5"})
    wait_until(lambda: heard.retentions("t1") == [5])


def test_client_configs_are_kept(store, manager):
    manager.startup()
    alter(store, "clients", "c1", {"producer_byte_rate": "1000"})
    wait_until(lambda: manager.entity_config("clients/c1") == {"producer_byte_rate": "1000"})


def test_what_was_announced_and_purged_while_the_session_was_gone_is_taken_up(store, manager, heard):
    alter(
        store,
        "users",
        "alice",
        {"SCRAM-SHA-512": "salt=eA==,stored_key=eA==,server_key=eA==,iterations=4096"},
    )
    alter(store, "clients", "c1", {"producer_byte_rate": "1000"})
    manager.startup()
    # Nothing tells of these any more.
    store.set_entity_config("users", "alice", {})
    store.set_entity_config("clients", "c1", {"producer_byte_rate": "7"})
    store.set_entity_config("topics", "t1", {"retention.ms": "5"})
    store.set_entity_config("brokers", "<default>", {"log.retention.bytes": "6"})
    manager._on_session_event(SessionEvent.CONNECTED)  # after a short loss nothing is read
    wait_until(lambda: not manager._follower.is_awake)
    assert heard.retentions("t1") == []
    manager._on_session_event(SessionEvent.EXPIRED)
    manager._on_session_event(SessionEvent.CONNECTED)
    wait_until(lambda: heard.retentions("t1")[-1:] == [5])
    wait_until(lambda: manager.entity_config("users/alice") == {})
    wait_until(lambda: manager.entity_config("clients/c1") == {"producer_byte_rate": "7"})
    assert manager.config.int("log.retention.bytes") == 6


def test_shutdown_can_be_repeated_and_ends_the_thread(manager):
    manager.startup()
    manager.shutdown()
    manager.shutdown()
    assert "dynamic-config" not in [thread.name for thread in threading.enumerate()]


@pytest.mark.parametrize("length", [1, 4])
def test_no_change_is_lost_whichever_of_the_stores_answers_fails(store, monkeypatch, length):
    monkeypatch.setattr("broker.zookeeper.change_follower.RETRY_S", 0.01)
    for nth in range(1, 12):
        heard, session = Recorder(), FaultySession(store.store, {}, Faults())
        manager = make_manager(ClusterStore(session), heard)
        manager.startup()
        wait_until(lambda m=manager: not m._follower.is_awake)
        session._faults = Faults(nth, length=length)
        manager.topic_log_config("t2")
        alter(store, "topics", "t1", {"retention.ms": str(1000 + nth)})
        alter(store, "brokers", "<default>", {"log.retention.ms": str(2000 + nth)})
        wait_until(lambda n=nth, h=heard: h.brokers and h.brokers[-1].int("log.retention.ms") == 2000 + n)
        wait_until(lambda n=nth, h=heard: h.retentions("t2")[-1:] == [2000 + n])
        wait_until(lambda n=nth, h=heard: h.retentions("t1")[-1:] == [1000 + n])
        manager.shutdown()


def test_configs_of_a_new_log_that_could_not_be_read_reach_it_later(store, heard, monkeypatch):
    monkeypatch.setattr("broker.zookeeper.change_follower.RETRY_S", 0.01)
    session = FaultySession(store.store, {}, Faults())
    manager = make_manager(ClusterStore(session), heard)
    manager.startup()
    try:
        store.set_entity_config("topics", "t2", {"cleanup.policy": "compact"})
        session._faults = Faults(1, length=3)
        assert not manager.topic_log_config("t2").compact
        wait_until(lambda: any(name == "t2" and config.compact for name, config in heard.topics))
    finally:
        manager.shutdown()


# --- the properties file


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "server.properties"
    write(path)
    return path


def write(path, **more):
    texts = PROPERTIES | {key.replace("_", "."): value for key, value in more.items()}
    path.write_text("".join(f"{key}={value}\n" for key, value in texts.items()))


def version(path):
    return version_of(str(path))


@pytest.fixture
def file(path):
    return ConfigFile(str(path))


@pytest.fixture
def reloading(store, heard, file):
    made = make_manager(store, heard, file)
    made.startup()
    yield made
    made.shutdown()


def test_a_reload_changes_the_defaults_of_topics_and_is_seen(store, path, file, reloading, heard):
    assert file.status()["version"] == version(path)
    write(path, log_retention_hours="1", num_partitions="9")
    assert file.status()["version"] != version(path)
    reloading.reload()
    wait_until(lambda: heard.retentions("t1") == [3_600_000])
    wait_until(lambda: file.status()["version"] == version(path))
    assert file.status()["needs_restart"] == ["num.partitions"]
    assert heard.brokers == [reloading.config]
    assert reloading.config.int("num.partitions") == 1
    write(path)
    reloading.reload()
    wait_until(lambda: heard.retentions("t1") == [3_600_000, 604_800_000])
    wait_until(lambda: file.status()["needs_restart"] == [])


def test_dynamic_configs_stay_above_a_reloaded_file(store, path, file, reloading):
    alter(store, "brokers", "1", {"log.retention.ms": "4"})
    wait_until(lambda: reloading.config.log_retention_ms == 4)
    write(path, log_retention_hours="1")
    reloading.reload()
    wait_until(lambda: file.status()["version"] == version(path))
    assert reloading.config.log_retention_ms == 4
    alter(store, "brokers", "1", {})
    wait_until(lambda: reloading.config.log_retention_ms == 3_600_000)


def test_a_file_that_cannot_be_used_changes_nothing_and_says_why(path, file, reloading, heard):
    in_force = version(path)
    write(path, log_retention_hours="soon", log_retention_bytes="5")
    reloading.reload()
    wait_until(lambda: file.status()["refused"])
    refused = file.status()
    assert refused["version"] == in_force
    assert refused["refused"]["version"] == version(path)
    assert "log.retention.hours" in refused["refused"]["reason"]
    assert heard.brokers == []
    write(path, log_retention_bytes="5")
    reloading.reload()
    wait_until(lambda: file.status()["version"] == version(path))
    assert file.status()["refused"] is None
    assert reloading.config.int("log.retention.bytes") == 5


def test_a_pipe_is_not_read_again(tmp_path):
    """To open it would block until somebody writes, and the broker could not stop."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(ConfigError, match="no regular file"):
        ConfigFile(str(pipe)).read()


def test_a_reload_that_the_store_did_not_let_through_is_made_later(store, path, file, heard, monkeypatch):
    monkeypatch.setattr("broker.zookeeper.change_follower.RETRY_S", 0.01)
    session = FaultySession(store.store, {}, Faults())
    manager = make_manager(ClusterStore(session), heard, file)
    manager.startup()
    try:
        wait_until(lambda: not manager._follower.is_awake)
        write(path, log_retention_hours="1")
        session._faults = Faults(1, length=3)
        manager.reload()
        wait_until(lambda: heard.retentions("t1") == [3_600_000])
        assert len(heard.brokers) == 1
    finally:
        manager.shutdown()
