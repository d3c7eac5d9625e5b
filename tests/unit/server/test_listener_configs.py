"""Configs of one listener, changed while the broker runs: checked, kept encoded where they are secret, taken up."""

import threading

import pytest
from structlog.testing import capture_logs

from broker.config.broker_config import BrokerConfig
from broker.config.problems import ConfigError, Problem
from broker.network.connection_quotas import ListenerLimits
from broker.protocol.errors import Errors
from broker.server.assembly import connection_limits
from broker.server.config_secrets import decoded
from broker.server.dynamic_config import DynamicConfigManager
from broker.zookeeper.cluster_store import ClusterStore
from broker.zookeeper.embedded import EmbeddedStore
from tests.unit.server.test_config_apis import Context, KnownTopics, alter, describe

BROKER, SET, DELETE, APPEND = 4, 0, 1, 2
LOCATION = "listener.name.outside.ssl.keystore.location"
PASSWORD = "listener.name.outside.ssl.keystore.password"
SUITES = "listener.name.outside.ssl.cipher.suites"
SECRET = "password.encoder.secret"


class Site:
    """A broker's dynamic configs, with what was told of them."""

    def __init__(self, **props):
        self.embedded = EmbeddedStore()
        self.embedded.connect(1000, threading.Event())
        self.store = ClusterStore(self.embedded)
        self.store.create_top_level_paths()
        self.read = []
        self.checked = []
        config = BrokerConfig.from_properties(
            {
                "zookeeper.connect": "zk",
                "broker.id": "1",
                "log.dirs": "/d",
                "listeners": "PLAINTEXT://:0,OUTSIDE://:0",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUTSIDE:SSL",
                "ssl.cipher.suites": "A",
                SECRET: "s3cret",
                **{name.replace("_", "."): text for name, text in props.items()},
            }
        )
        self.manager = DynamicConfigManager(
            config,
            1,
            self.store,
            on_topic_config=lambda _topic, _config: None,
            on_broker_config=lambda _: None,
            local_topics=list,
            on_broker_read=self.read.append,
        )
        self.ctx = Context(self.store, self.manager, KnownTopics(), check_broker_config=self.check)

    def check(self, config):
        self.checked.append(config)
        if config.set_values.get(LOCATION) == "/bad":
            raise ConfigError([Problem(LOCATION, None, "/bad does not exist")])

    def alter(self, *changes, name="1"):
        answer = alter(self.ctx, BROKER, name, *changes)
        self.manager._take_up("brokers/1")
        return answer

    @property
    def config(self):
        return self.manager.config

    def close(self):
        self.manager.shutdown()
        self.embedded.close()


@pytest.fixture
def site():
    made = Site()
    yield made
    made.close()


def test_a_change_is_checked_written_and_taken_up(site):
    assert site.alter((LOCATION, SET, "/k"), (SUITES, APPEND, "B")).error_code.value == Errors.NONE
    listener = site.config.for_listener("OUTSIDE")
    assert listener.str("ssl.keystore.location") == "/k"
    assert listener.list("ssl.cipher.suites") == ["A", "B"]
    assert site.config.for_listener("PLAINTEXT").list("ssl.cipher.suites") == ["A"]
    assert site.checked[-1].set_values[LOCATION] == "/k"
    site.alter((LOCATION, DELETE, None))
    assert site.config.for_listener("OUTSIDE").opt_str("ssl.keystore.location") is None


def test_what_the_broker_could_not_use_is_refused_and_not_written(site):
    answer = site.alter((LOCATION, SET, "/bad"))
    assert answer.error_code.value == Errors.INVALID_CONFIG
    assert answer.error_message == f"{LOCATION}: /bad does not exist"
    assert site.store.entity_config("brokers", "1") == {}


def test_the_same_value_once_more_is_told_too_because_its_file_may_be_new(site):
    site.alter((LOCATION, SET, "/k"))
    site.alter((LOCATION, SET, "/k"))
    assert len(site.read) == 2


def test_a_password_is_encoded_in_the_store_and_plain_here(site):
    with capture_logs() as logs:
        assert site.alter((PASSWORD, SET, "hunter2")).error_code.value == Errors.NONE
        site.alter((LOCATION, SET, "/k"))  # leaves the password as it is
    stored = site.store.entity_config("brokers", "1")
    assert "hunter2" not in stored[PASSWORD]
    assert stored[PASSWORD].startswith("keyFactoryAlgorithm:")
    assert site.config.for_listener("OUTSIDE").str("ssl.keystore.password") == "hunter2"
    assert site.checked[-1].set_values[PASSWORD] == "hunter2"
    assert "hunter2" not in str(logs)
    assert "[hidden]" in str(logs)
    described = {config.name: config for config in describe(site.ctx, BROKER, "1").configs}
    assert (described[PASSWORD].value, described[PASSWORD].is_sensitive) == (None, True)
    assert (described[LOCATION].value, described[LOCATION].read_only) == ("/k", False)


def test_a_password_without_a_secret_is_refused():
    site = Site(password_encoder_secret="")
    answer = site.alter((PASSWORD, SET, "hunter2"))
    assert answer.error_code.value == Errors.INVALID_CONFIG
    assert "password.encoder.secret must be set" in answer.error_message
    assert site.store.entity_config("brokers", "1") == {}
    site.close()


def test_a_password_that_cannot_be_decoded_is_left_out_with_a_line(site):
    site.store.set_entity_config("brokers", "1", {PASSWORD: "hunter2", LOCATION: "/k"})
    with capture_logs() as logs:
        site.manager._take_up("brokers/1")
    assert site.config.for_listener("OUTSIDE").opt_str("ssl.keystore.password") is None
    assert site.config.for_listener("OUTSIDE").str("ssl.keystore.location") == "/k"
    (line,) = [log for log in logs if log["event"] == "dynamic_configs_ignored"]
    assert "damaged" in line["problems"]
    assert "hunter2" not in str(line)
    assert decoded(site.config, {"num.io.threads": "3"}) == ({"num.io.threads": "3"}, [])


@pytest.mark.parametrize(
    ("name", "key", "words"),
    [
        (
            "1",
            "listener.name.inside.ssl.keystore.location",
            "names no listener of this broker that speaks SSL",
        ),
        ("1", "listener.name.plaintext.ssl.keystore.location", "names no listener of this broker"),
        ("1", "listener.name.OUTSIDE.ssl.keystore.location", "in lower case"),
        ("", LOCATION, "set it for each broker"),
        ("1", "listener.name.outside.ssl.principal.mapping.rules", "restart"),
        ("1", "listener.name.outside.ssl.keystore.locatoin", "is no broker config"),
        ("1", "ssl.keystore.location", f"or set {LOCATION.replace('outside', '<listener>')}"),
    ],
)
def test_a_change_that_has_no_effect_is_refused(site, name, key, words):
    answer = site.alter((key, SET, "DEFAULT"), name=name)
    assert answer.error_code.value == Errors.INVALID_CONFIG
    assert words in answer.error_message


OUTSIDES_MOST, PLAINTEXTS_MOST = (
    f"listener.name.{name}.max.connections" for name in ("outside", "plaintext")
)
RATE = "max.connection.creation.rate"


def test_the_connections_of_a_listener_are_limited_by_its_own_keys(site):
    assert connection_limits(site.config).listeners == {
        "PLAINTEXT": ListenerLimits(),
        "OUTSIDE": ListenerLimits(),
    }
    site.alter((OUTSIDES_MOST, SET, "7"), (f"listener.name.plaintext.{RATE}", SET, "3"), (RATE, SET, "5"))
    limits = connection_limits(site.config)
    assert limits.creation_rate == 5
    assert limits.listeners == {
        "PLAINTEXT": ListenerLimits(creation_rate=3),
        "OUTSIDE": ListenerLimits(max_connections=7),
    }


def test_the_connections_of_a_listener_are_limited_on_all_brokers_at_once(site):
    assert site.alter((PLAINTEXTS_MOST, SET, "4"), name="").error_code == Errors.NONE
    assert connection_limits(site.config).listeners["PLAINTEXT"] == ListenerLimits(4)
    described = {config.name: config.value for config in describe(site.ctx, BROKER, "").configs}
    assert described == {PLAINTEXTS_MOST: "4"}
    assert site.alter((PLAINTEXTS_MOST, SET, "-1")).error_code == Errors.INVALID_CONFIG
    answer = site.alter(("listener.name.other.max.connections", SET, "4"))
    assert answer.error_code == Errors.INVALID_CONFIG
    assert "names no listener of this broker; its name" in answer.error_message


def test_limits_of_connections_are_in_the_properties_file_too():
    made = Site(**{PLAINTEXTS_MOST: "4", "listener.name.other.max.connections": "4"})
    assert connection_limits(made.config).listeners["PLAINTEXT"] == ListenerLimits(4)
    assert made.config.unused == ("listener.name.other.max.connections",)
    made.close()


def overrides_of(text):
    made = Site(**{"max.connections.per.ip": "2", "max.connections.per.ip.overrides": text})
    try:
        return connection_limits(made.config).overrides
    finally:
        made.close()


def test_an_address_is_excepted_however_it_is_written():
    told = "10.0.0.1:7, 2001:DB8:0::1:8,::ffff:10.0.0.2:9"
    assert overrides_of(told) == {"10.0.0.1": 7, "2001:db8::1": 8, "10.0.0.2": 9}


def test_the_addresses_of_a_host_are_excepted_by_its_name():
    assert overrides_of("localhost:7,10.0.0.1:3").items() >= {"127.0.0.1": 7, "10.0.0.1": 3}.items()


def test_a_host_that_nobody_knows_is_told_and_the_others_are_excepted(capsys):
    assert overrides_of("no..such..host:7,10.0.0.1:3") == {"10.0.0.1": 3}
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "unknown_host" in line]
    assert "no..such..host" in line
