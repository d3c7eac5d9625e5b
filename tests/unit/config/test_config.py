"""BrokerConfig: what a server.properties means, and why one is refused."""

import re
from pathlib import Path

import pytest

from broker.config.broker_config import BrokerConfig
from broker.config.docs import configuration_page
from broker.config.key import Use
from broker.config.keys import BROKER_GROUPS, BROKER_KEYS, TOPIC_KEYS
from broker.config.problems import ConfigError
from broker.config.properties import parse_properties
from broker.config.topic_config import SYNONYMS
from broker.config.types import render
from tests.support.broker_configs import BASE, make, problems_of

REPOSITORY = Path(__file__).resolve().parents[3]


def test_the_table_has_all_of_kafkas_keys():
    landline = [name for name in BROKER_KEYS if name.startswith("landline.")]
    of_the_authorizer = {"super.users", "allow.everyone.if.no.acl.found"}  # Kafka's table leaves them to it
    assert len(BROKER_KEYS.keys() - of_the_authorizer) - len(landline) == 328
    assert len(TOPIC_KEYS) == 36


def test_no_key_is_in_two_groups():
    names = [key.name for group in BROKER_GROUPS for key in group.KEYS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("key", [*BROKER_KEYS.values(), *TOPIC_KEYS.values()], ids=lambda key: key.name)
def test_every_default_is_valid_text_for_its_own_key(key):
    if key.default is not None and not (key.name == "process.roles" or "quorum" in key.name):
        assert key.parse(render(key.default)) == key.default
    assert len(key.doc) > 10


def test_every_synonym_is_a_key_and_every_topic_key_without_one_is_known():
    assert {synonym.key for group in SYNONYMS.values() for synonym in group} <= BROKER_KEYS.keys()
    assert TOPIC_KEYS.keys() - SYNONYMS.keys() == {
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
    }


_READERS = ("broker_config.py", "cross_checks.py", "http_keys.py", "kerberos.py", "listeners.py", "sasl.py")


def _names_in_the_code():
    """Config names that stand in the code as strings, apart from the tables and what refuses keys."""
    tables = REPOSITORY / "broker" / "config"
    readers = [path for path in (REPOSITORY / "broker").rglob("*.py") if tables not in path.parents]
    readers += [tables / name for name in _READERS]
    strings = {name for path in readers for name in re.findall(r'"([a-z][a-z0-9.]+)"', path.read_text())}
    return strings & BROKER_KEYS.keys()


def test_the_keys_marked_used_are_those_that_the_code_reads():
    through_topics = {synonym.key for group in SYNONYMS.values() for synonym in group}
    marked = {name for name, key in BROKER_KEYS.items() if key.use is Use.USED}
    assert marked - through_topics - _names_in_the_code() == set()
    assert _names_in_the_code() - marked == set()


def test_the_configuration_page_is_what_the_tables_say():
    committed = (REPOSITORY / "docs" / "configuration.md").read_text()
    assert committed == configuration_page(), "run: python -m broker.config.docs > docs/configuration.md"


def test_getters_give_set_values_and_kafkas_defaults():
    config = make(
        props={
            "num.io.threads": " 4 ",
            "auto.create.topics.enable": "FALSE",
            "log.cleanup.policy": "compact, delete",
        }
    )
    assert config.int("num.io.threads") == 4
    assert config.bool("auto.create.topics.enable") is False
    assert config.list("log.cleanup.policy") == ["compact", "delete"]
    assert config.float("log.cleaner.min.cleanable.ratio") == 0.5
    assert config.int("num.network.threads") == 1
    assert config.opt_int("log.retention.ms") is None
    assert config.opt_str("broker.rack") is None
    assert config.log_dirs == ["/data"]


def test_a_getter_of_the_wrong_type_fails():
    with pytest.raises(TypeError, match="is 8, no str"):
        make().str("num.io.threads")
    with pytest.raises(KeyError):
        make().int("no.such.key")


def test_an_override_stands_above_the_file():
    config = BrokerConfig.from_properties({**BASE, "num.io.threads": "4"}, [("num.io.threads", "5")])
    assert config.int("num.io.threads") == 5


def test_all_problems_are_told_at_once_with_lines_and_nearest_keys():
    text = "num.io.thread=3\nbroker.id=abc\nretention.ms=5\nlog.roll.ms=5h\nport=9092\n"
    with pytest.raises(ConfigError) as refusal:
        BrokerConfig.from_properties(parse_properties(text, "s.properties"), [("frobnicate.zzz", "1")])
    assert str(refusal.value).splitlines() == [
        "s.properties:1: num.io.thread: is no known config. Did you mean num.io.threads?",
        "s.properties:2: broker.id: 'abc' is not valid: a whole number is expected",
        (
            "s.properties:3: retention.ms: is a topic config, not a broker config; the broker's default for it "
            "is log.retention.ms or log.retention.minutes or log.retention.hours"
        ),
        "s.properties:4: log.roll.ms: '5h' is not valid: a whole number is expected without a unit",
        "s.properties:5: port: was removed in Kafka 3.0: use listeners",
        "s.properties: frobnicate.zzz: is no known config.",
        (
            "s.properties: zookeeper.connect: must be set, such as zk1:2181,zk2:2181/kafka. "
            "To run without ZooKeeper: landline standalone"
        ),
    ]


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("num.io.threads", "0", "of at least 1"),
        ("num.io.threads", "99999999999", "between -2147483648 and 2147483647"),
        ("num.io.threads", "1_0", "whole number"),
        ("auto.create.topics.enable", "yes", "true or false"),
        ("compression.type", "lzma", "one of uncompressed"),
        ("log.cleanup.policy", "", "list of compact, delete"),
        ("log.cleaner.min.cleanable.ratio", "nan", "a number"),
        ("log.cleaner.min.cleanable.ratio", "1.5", "between 0 and 1"),
        ("compression.gzip.level", "0", "between 1 and 9 or -1"),
        ("log.retention.ms", "0", "keeps nothing"),
        ("log.dirs", " , ", "is empty"),
        ("log.dirs", "/a,/b,/a", "names /a twice"),
        ("log.dirs", "/a/b-0,/a", "names /a/b-0, which lies in /a"),
        ("broker.id", "-2", "negative"),
        ("broker.id", "1001", "above reserved.broker.max.id 1000"),
        ("listeners", "", "is empty"),
        ("listeners", "localhost:9092", "is no listener"),
        ("listeners", "PLAINTEXT://:99999", "above 65535"),
        ("ssl.client.auth", "required", "no client is asked"),
        ("listener.name.plaintext.ssl.client.auth", "requested", "no client is asked"),
        ("listener.name.SSL.ssl.client.auth", "none", "in lower case, listener.name.ssl.ssl.client.auth"),
        ("ssl.enabled.protocols", "TLSv1.1,TLSv1.2", "a list of TLSv1.2, TLSv1.3"),
        ("ssl.engine.factory.class", "a.B", "Java classes cannot be used"),
        ("listeners", "FAST://:9093", "add FAST:PLAINTEXT"),
        ("listeners", "PLAINTEXT://0.0.0.0:9092", "no client can reach 0.0.0.0"),
        ("listeners", "PLAINTEXT://a:1,PLAINTEXT://b:2", "two listeners named PLAINTEXT"),
        ("advertised.listeners", "PLAINTEXT://0.0.0.0:9092", "no client can reach"),
        ("advertised.listeners", "PLAINTEXT://h:1,OTHER://h:2", "add OTHER:PLAINTEXT"),
        ("listener.security.protocol.map", "PLAINTEXT:HTTP", "'HTTP' is no security protocol"),
        ("inter.broker.listener.name", "INTERNAL", "not among the listeners (PLAINTEXT)"),
        ("security.inter.broker.protocol", "SSL", "SSL is not among the listeners"),
        ("group.min.session.timeout.ms", "1800001", "larger than group.max.session.timeout.ms"),
        ("inter.broker.protocol.version", "0.10.2", "is not spoken"),
        ("process.roles", "broker", "ZooKeeper mode only"),
        ("log.preallocate", "true", "grow with what is written"),
        ("node.id", "3", "set broker.id instead"),
        ("controller.quorum.voters", "1@a:9093", "ZooKeeper mode only"),
        ("authorizer.class.name", "kafka.security.auth.SimpleAclAuthorizer", "or a Python class"),
        ("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer", "AclAuthorizer"),
        ("authorizer.class.name", "NoModule", "package.module:Class"),
        ("super.users", "User:a", "there is no authorizer"),
        ("allow.everyone.if.no.acl.found", "false", "there is no authorizer"),
        ("authorizer.zookeeper.url", "z:2181", "there is no authorizer"),
        ("zookeeper.connect", " ", "must be set"),
        ("leader.replication.throttled.rate", "5", "only as a dynamic config"),
        ("max.connections.per.ip.overrides", "1.2.3.4", "is not address:count"),
        ("max.connections", "0", "lets nobody in, and the brokers neither"),
        ("max.connections.per.ip", "0", "lets in only the addresses of max.connections.per.ip.overrides"),
        ("log.cleaner.dedupe.buffer.size", "1048576", "more than 1048576 is expected"),
        ("log.roll.ms", "0", "0 is too small: at least 1 is expected"),
        ("log.roll.jitter.ms", "-5", "-5 is negative: at least 0 is expected"),
    ],
)
def test_a_value_that_cannot_work_is_refused(key, text, message):
    assert message in problems_of({key: text})[key]


def test_a_members_session_is_longer_than_the_interval_of_its_heartbeats():
    interval = "group.consumer.heartbeat.interval.ms"
    settings = {
        "group.consumer.min.session.timeout.ms": "5000",
        "group.consumer.session.timeout.ms": "5000",
        "group.consumer.min.heartbeat.interval.ms": "1000",
    }
    BrokerConfig.from_properties({**BASE, **settings, interval: "4999"})
    for too_long in ("5000", "5001"):
        assert "group.consumer.session.timeout.ms" in problems_of({**settings, interval: too_long})[interval]


def test_a_generated_id_needs_leave():
    message = problems_of({"broker.id": "-1", "broker.id.generation.enable": "false"})["broker.id"]
    assert "broker.id.generation.enable is false" in message


def test_standalone_needs_no_zookeeper():
    config = BrokerConfig.from_properties({"landline.standalone": "true", "log.dirs": "/d"})
    assert config.is_standalone


def test_keys_that_are_not_used_are_accepted_with_one_warning():
    config = make(
        props={
            "log.cleaner.threads": "2",
            "zookeeper.clientCnxnSocket": "a.B",
            "listener.name.internal.ssl.keystore.location": "/k",
            "listener.name.sasl_ssl.scram-sha-256.sasl.kerberos.kinit.cmd": "x",
            "rsm.config.x": "1",
        }
    )
    (warning,) = config.warnings
    assert "log.cleaner.threads" in warning
    assert "listener.name.internal.ssl.keystore.location" in warning
    assert len(config.unused) == 5


def test_a_java_class_for_principals_is_refused_and_what_to_use_is_said():
    problem = problems_of({"principal.builder.class": "a.B"})["principal.builder.class"]
    assert "ssl.principal.mapping.rules" in problem


@pytest.mark.parametrize(
    "name", ["", "kafka.security.authorizer.AclAuthorizer", "my_rules:Rules", "company.rules.Rules"]
)
def test_an_authorizer_is_named_by_kafkas_name_or_by_a_python_class(name):
    config = make(props={"authorizer.class.name": name})
    assert config.str("authorizer.class.name") == name


def test_an_authorizer_of_ones_own_gets_its_settings_and_no_others():
    settings = {"authorizer.file": "/rules", "super.users": "root", "allow.everyone.if.no.acl.found": "false"}
    config = make(props={"authorizer.class.name": "my_rules:Rules", **settings, "num.io.threads": "2"})
    assert config.authorizer_settings == settings
    assert config.with_dynamic({}).authorizer_settings == settings


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("super.users", "User:a;alice", "'alice' is no principal"),
        ("authorizer.zookeeper.url", "z:2181", "where zookeeper.connect says"),
    ],
)
def test_settings_that_the_built_in_authorizer_cannot_use_are_refused(key, text, message):
    name = "kafka.security.authorizer.AclAuthorizer"
    assert message in problems_of({"authorizer.class.name": name, key: text})[key]


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("super.users", ""),
        ("ssl.client.auth", "none"),
        ("listener.name.internal.ssl.client.auth", "none"),
        ("allow.everyone.if.no.acl.found", "True"),
    ],
)
def test_the_same_keys_are_taken_where_they_promise_nothing(key, text):
    assert make(props={key: text})


def test_a_prefixed_key_with_a_wrong_end_is_refused():
    assert (
        "no known config"
        in problems_of({"listener.name.x.ssl.keystore.locatoin": "/k"})[
            "listener.name.x.ssl.keystore.locatoin"
        ]
    )


def test_a_duplicate_and_missing_log_dirs_are_warned_of():
    config = BrokerConfig.from_properties(parse_properties("zookeeper.connect=z\nbroker.id=1\nbroker.id=2"))
    assert config.broker_id == 2
    assert config.warnings[0] == "broker.id is set on lines 2, 3: the last one counts"
    assert "/tmp/kafka-logs" in config.warnings[1]


def test_a_bad_password_is_not_printed():
    key = BROKER_KEYS["zookeeper.ssl.keystore.password"]
    assert make(props={key.name: "hunter2"}).text(key.name) == "hunter2"
    assert "hunter2" not in repr(make(props={key.name: "hunter2"}).warnings)


# --- retention and the like: several keys make one value


@pytest.mark.parametrize(
    ("props", "expected_ms"),
    [
        ({}, 604_800_000),
        ({"log.retention.hours": "1"}, 3_600_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "2"}, 120_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "2", "log.retention.ms": "3"}, 3),
        ({"log.retention.ms": "-1"}, -1),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_the_finest_retention_key_counts(props, expected_ms):
    config = make(props=props)
    assert config.log_retention_ms == expected_ms
    assert config.log_config().retention_ms == expected_ms


def test_topic_defaults_come_from_the_brokers_keys():
    config = make(
        props={
            "log.segment.bytes": "1000",
            "log.roll.hours": "2",
            "message.max.bytes": "77",
            "log.cleanup.policy": "compact",
            "log.flush.scheduler.interval.ms": "9",
            "min.insync.replicas": "2",
        }
    )
    log = config.log_config()
    assert (log.segment_bytes, log.segment_ms, log.max_message_bytes, log.flush_ms) == (
        1000,
        7_200_000,
        77,
        9,
    )
    assert log.cleanup_policy == frozenset({"compact"})
    assert log.min_insync_replicas == 2


def test_a_topic_overrides_the_broker():
    log = make(props={"log.retention.ms": "5"}).topic_log_config(
        {
            "retention.ms": "7",
            "cleanup.policy": "compact,delete",
            "leader.replication.throttled.replicas": "0:1,1:2",
        }
    )
    assert log.retention_ms == 7
    assert log.compact
    assert log.delete
    assert log.leader_replication_throttled_replicas == ("0:1", "1:2")


def test_the_older_timestamp_limit_counts_where_its_successors_are_unset():
    log = make().topic_log_config({"message.timestamp.difference.max.ms": "5"})
    assert (log.message_timestamp_before_max_ms, log.message_timestamp_after_max_ms) == (5, 5)
    log = make().topic_log_config(
        {"message.timestamp.difference.max.ms": "5", "message.timestamp.before.max.ms": "6"}
    )
    assert (log.message_timestamp_before_max_ms, log.message_timestamp_after_max_ms) == (6, 5)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"retention.sm": "1"}, "Did you mean retention.ms?"),
        ({"log.retention.ms": "1"}, "the topic's name for it is retention.ms"),
        ({"retention.ms": "-2"}, "of at least -1"),
        ({"cleanup.policy": "shred"}, "list of compact, delete"),
        ({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"}, "larger than max.compaction.lag.ms"),
        ({"remote.storage.enable": "true"}, "no tiered storage"),
        ({"remote.log.copy.disable": "true"}, "no tiered storage"),
        ({"remote.log.delete.on.disable": "true"}, "no tiered storage"),
        ({"message.format.version": "9.9"}, "Kafka version from 0.8.0 to 4.0"),
        ({"message.format.version": "0.10"}, "Kafka version from 0.8.0 to 4.0"),
        ({"preallocate": "true"}, "grow with what is written"),
        ({"follower.replication.throttled.replicas": "x"}, "partition:broker"),
        ({"segment.bytes": "13"}, "of at least 14"),
    ],
)
def test_a_topic_config_that_cannot_work_is_refused(overrides, message):
    with pytest.raises(ConfigError, match=message.replace("?", r"\?").replace("*", r"\*")):
        make().topic_log_config(overrides)


@pytest.mark.parametrize(
    "version", ["0.8.0", "0.10.0-IV0", "0.11.0.3", "1.0", "1.0.2-cp3", "2.8-IV1", "3.9-IV0", "3.9.0.1"]
)
def test_a_format_version_of_any_release_of_kafka_is_accepted(version):
    make(props={"log.message.format.version": version}).topic_log_config({"message.format.version": version})


# --- dynamic layers


def test_this_brokers_dynamic_config_stands_above_the_clusters_and_the_file():
    config = make(props={"log.retention.ms": "1"})
    assert config.with_dynamic({}, {"log.retention.ms": "2"}).log_retention_ms == 2
    assert config.with_dynamic({"log.retention.ms": "3"}, {"log.retention.ms": "2"}).log_retention_ms == 3
    assert config.with_dynamic({"log.retention.ms": "3"}).with_dynamic({}).log_retention_ms == 1
    assert config.log_retention_ms == 1


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"broker.id": "2"}, "cannot be changed while the broker runs"),
        ({"listeners": "PLAINTEXT://:1"}, "cannot be changed while the broker runs"),
        ({"log.retention.sm": "2"}, "Did you mean log.retention.ms"),
        ({"log.retention.ms": "x"}, "whole number"),
        ({"log.retention.ms": "0"}, "keeps nothing"),
    ],
)
def test_a_dynamic_config_that_cannot_work_is_refused(overrides, message):
    with pytest.raises(ConfigError, match=message):
        make().with_dynamic(overrides)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None), (True, "true"), (("a", "b"), "a,b"), (0.5, "0.5"), (1e7, "1.0E7"), (1e-5, "1.0E-5"),
        (1.7976931348623157e308, "1.7976931348623157E308"), (524288.0, "524288.0"), (-1, "-1"), ("x", "x"),
        (12345678.0, "1.2345678E7"),
    ],
)  # fmt: skip
def test_values_are_rendered_as_java_does(value, text):
    assert render(value) == text
