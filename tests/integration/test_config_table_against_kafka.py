"""The tables of config keys, and what DescribeConfigs makes of them, against Apache Kafka 3.9.1 itself."""

import pytest

from broker.config.broker_config import BrokerConfig
from broker.config.describe import broker_entries, topic_entries
from broker.config.keys import BROKER_KEYS
from broker.config.properties import read_properties
from broker.protocol.api_keys import ApiKey
from broker.replication.broker_channel import BrokerChannel
from rig.kafka_broker import KafkaBroker
from rig.wait import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
TOPIC, BROKER, SET = 2, 4, 0
TOPIC_CONFIGS = {"retention.ms": "5000", "cleanup.policy": "compact,delete"}
OWN = {"log.retention.ms": "7000"}
CLUSTER = {"log.retention.bytes": "8000", "log.retention.ms": "9000"}
DIFFERENT = {
    "num.network.threads",  # the default is our own
    "socket.send.buffer.bytes",  # likewise
    "socket.receive.buffer.bytes",  # likewise
    "node.id",  # in Kafka another name for broker.id; here refused
    "log.retention.hours",  # Kafka tells the default once log.retention.ms was changed at run time
}


@pytest.fixture(scope="module")
def kafka(zookeeper, tmp_path_factory):
    log_dir = tmp_path_factory.mktemp("kafka") / "data"
    extra = {"log.retention.hours": 2, "log.roll.hours": 3}
    with KafkaBroker(1, zookeeper.chroot("configs"), log_dir, extra) as broker:
        channel = BrokerChannel("127.0.0.1", broker.port, client_id="test")
        topic = {
            "name": "t1",
            "num_partitions": 1,
            "replication_factor": 1,
            "assignments": [],
            "configs": [{"name": name, "value": value} for name, value in TOPIC_CONFIGS.items()],
        }
        channel.request(
            ApiKey.CREATE_TOPICS, 5, {"topics": [topic], "timeout": 30_000, "validate_only": False}
        )
        for name, configs in (("1", OWN), ("", CLUSTER)):
            changes = [
                {"name": key, "config_operation": SET, "value": value} for key, value in configs.items()
            ]
            resource = {"resource_type": BROKER, "resource_name": name, "configs": changes}
            answer = channel.request(
                ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource], "validate_only": False}
            )
            assert [response.error_code.value for response in answer.responses] == [0]
        yield broker, channel
        channel.close()


def kafkas_configs(channel, kind, name):
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": None}
    fields = {"resources": [resource], "include_synonyms": True, "include_documentation": False}
    (result,) = channel.request(ApiKey.DESCRIBE_CONFIGS, 4, fields).results
    assert result.error_code.value == 0, result.error_message
    return {config.name: config for config in result.configs}


@pytest.fixture
def ours(kafka):
    broker, _ = kafka
    return BrokerConfig.from_properties(read_properties(broker._properties)).with_dynamic(OWN, CLUSTER)


def told(config):
    synonyms = [(synonym.name, synonym.value, synonym.source) for synonym in config.synonyms]
    return config.value, config.config_source, config.config_type, config.is_sensitive, synonyms


def ours_told(entry):
    synonyms = [(synonym.name, synonym.value, int(synonym.source)) for synonym in entry.synonyms]
    return entry.value, int(entry.source), int(entry.key.type), entry.key.sensitive, synonyms


def test_a_topics_configs_are_told_as_kafka_tells_them(kafka, ours):
    mine = {entry.key.name: entry for entry in topic_entries(ours, TOPIC_CONFIGS, None)}
    assert mine.keys() == kafkas_configs(kafka[1], TOPIC, "t1").keys()

    def differing():
        theirs = kafkas_configs(kafka[1], TOPIC, "t1")
        return [
            f"{name}: ours {ours_told(mine[name])}, Kafka {told(theirs[name])}"
            for name in mine
            if ours_told(mine[name]) != told(theirs[name])
        ]

    # Kafka takes a broker's dynamic configs up after it has answered, the topics' defaults last.
    wait_until(lambda: not differing(), 30, what=lambda: "\n".join(differing()))


def test_a_brokers_configs_are_told_as_kafka_tells_them(kafka, ours):
    theirs = kafkas_configs(kafka[1], BROKER, "1")
    mine = {entry.key.name: entry for entry in broker_entries(ours, None)}
    assert theirs.keys() - mine.keys() == set()
    differing = {
        name: (ours_told(mine[name]), told(config))
        for name, config in theirs.items()
        if name not in DIFFERENT and ours_told(mine[name]) != told(config)
    }
    assert not differing, "\n".join(f"{name}: ours {a}, Kafka {b}" for name, (a, b) in differing.items())


def test_what_changes_at_run_time_does_so_in_kafka(kafka):
    theirs = kafkas_configs(kafka[1], BROKER, "1")
    alterable = {name for name, config in theirs.items() if not config.read_only}
    assert {name for name in theirs if BROKER_KEYS[name].mode.value != "read-only"} == alterable
