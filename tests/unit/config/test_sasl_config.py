"""The keys about SASL: what counts for a listener, and what is refused with its key."""

from __future__ import annotations

import pytest

from broker.config.broker_config import BrokerConfig
from broker.config.problems import ConfigError
from broker.config.sasl import SIGNED, UNSECURED, BrokerLogin

PLAIN = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="b" password="s" user_b="s";'
)
SCRAM = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="b" password="s";'
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
JAAS = "listener.name.client.plain.sasl.jaas.config"
TYPO = "listener.name.client.plan.sasl.jaas.config"
OTHER = "listener.name.cliend.plain.sasl.jaas.config"
SESSION = "listener.name.client.connections.max.reauth.ms"
HANDLER = "listener.name.client.oauthbearer.sasl.server.callback.handler.class"
BASE = {
    "zookeeper.connect": "zk:2181",
    "broker.id": "1",
    "log.dirs": "/data",
    "listeners": "BROKER://h:9091,CLIENT://h:9092",
    "listener.security.protocol.map": "BROKER:PLAINTEXT,CLIENT:SASL_PLAINTEXT",
    "inter.broker.listener.name": "BROKER",
    "sasl.enabled.mechanisms": "PLAIN",
    JAAS: PLAIN,
}


def make(**texts: str) -> BrokerConfig:
    return BrokerConfig.from_properties({**BASE, **{key: text for key, text in texts.items() if text}})


def problems_of(changes: dict[str, str | None]) -> dict[str, str]:
    props = {key: text for key, text in {**BASE, **changes}.items() if text is not None}
    with pytest.raises(ConfigError) as refusal:
        BrokerConfig.from_properties(props)
    return {problem.key: problem.message for problem in refusal.value.problems}


def test_a_listener_offers_its_mechanisms_with_their_users() -> None:
    listener = make().sasl.listeners["CLIENT"]
    assert listener.mechanisms == ("PLAIN",)
    assert listener.jaas["PLAIN"].options["user_b"] == "s"
    assert make().sasl.between_brokers is None
    assert make().unused == ()


def test_a_listeners_own_keys_count_before_the_general_ones() -> None:
    config = make(
        **{
            "sasl.enabled.mechanisms": "GSSAPI",
            "listener.name.client.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            "connections.max.reauth.ms": "1000",
            "listener.name.client.connections.max.reauth.ms": "2000",
            "listener.name.client.plain.connections.max.reauth.ms": "3000",
        }
    )
    listener = config.sasl.listeners["CLIENT"]
    assert listener.mechanisms == ("PLAIN", "SCRAM-SHA-512")
    assert listener.max_session_ms == {"PLAIN": 3000, "SCRAM-SHA-512": 2000}


def test_a_jaas_text_for_all_listeners_counts_for_the_mechanisms_of_its_login_module() -> None:
    config = BrokerConfig.from_properties(
        {key: text for key, text in BASE.items() if key != JAAS}
        | {"sasl.jaas.config": PLAIN, "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256"}
    )
    assert set(config.sasl.listeners["CLIENT"].jaas) == {"PLAIN"}


def test_brokers_log_in_to_each_other_as_the_login_module_says() -> None:
    config = make(
        **{
            "inter.broker.listener.name": "CLIENT",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
            "listener.name.client.scram-sha-256.sasl.jaas.config": SCRAM,
        }
    )
    assert config.sasl.between_brokers == BrokerLogin("SCRAM-SHA-256", "b", "s")
    assert "'s'" not in repr(config.sasl.between_brokers)


@pytest.mark.parametrize(
    ("changes", "key", "message"),
    [
        (
            {"sasl.enabled.mechanisms": None},
            "sasl.enabled.mechanisms",
            "GSSAPI (Kerberos, the default) needs the Python package gssapi",
        ),
        (
            {
                "inter.broker.listener.name": "CLIENT",
                "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
            },
            "sasl.mechanism.inter.broker.protocol",
            "OAUTHBEARER is not possible between brokers",
        ),
        ({"sasl.enabled.mechanisms": "PLAN"}, "sasl.enabled.mechanisms", "PLAN is no mechanism: PLAIN, "),
        ({"sasl.enabled.mechanisms": ""}, "sasl.enabled.mechanisms", "is empty"),
        ({JAAS: None}, JAAS, "PLAIN has no users"),
        ({JAAS: SCRAM}, JAAS, "is not the login module for PLAIN"),
        ({JAAS: PLAIN[:-1]}, JAAS, "does not end with a semicolon"),
        ({JAAS: PLAIN.replace("user_b", "users")}, JAAS, "users is no option"),
        ({OTHER: PLAIN}, OTHER, "Did you mean client?"),
        ({TYPO: PLAIN}, TYPO, "Did you mean plain?"),
        (
            {"inter.broker.listener.name": "CLIENT"},
            "sasl.mechanism.inter.broker.protocol",
            "GSSAPI is not in sasl.enabled.mechanisms",
        ),
        (
            {"inter.broker.listener.name": "CLIENT", "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256"},
            "sasl.mechanism.inter.broker.protocol",
            "is not in sasl.enabled.mechanisms",
        ),
        (
            {
                "inter.broker.listener.name": "CLIENT",
                "sasl.mechanism.inter.broker.protocol": "PLAIN",
                JAAS: PLAIN.replace("username", "user_x"),
            },
            JAAS,
            "needs the options username and password",
        ),
        (
            {"sasl.server.callback.handler.class": "a.B"},
            "sasl.server.callback.handler.class",
            "is of one mechanism",
        ),
        ({"sasl.login.class": "a.B"}, "sasl.login.class", "Java classes cannot be used"),
        (
            {"listener.name.client.plain.sasl.server.callback.handler.class": "a.B"},
            "listener.name.client.plain.sasl.server.callback.handler.class",
            "Java classes cannot be used",
        ),
        ({"sasl.enabled.mechanisms": "OAUTHBEARER"}, HANDLER, "does not say how tokens are checked"),
        ({"sasl.enabled.mechanisms": "OAUTHBEARER", HANDLER: "a.B"}, HANDLER, "a.B does not say"),
        (
            {"sasl.enabled.mechanisms": "OAUTHBEARER", HANDLER: SIGNED},
            "sasl.oauthbearer.jwks.endpoint.url",
            "must be set",
        ),
        ({SESSION: "soon"}, SESSION, "'soon' is not valid"),
    ],
)
def test_a_wrong_key_is_refused_with_its_name(changes: dict[str, str | None], key: str, message: str) -> None:
    problems = problems_of(changes)
    assert message in problems[key]
    assert '"s"' not in str(problems)


def test_tokens_without_signatures_are_taken_only_where_kafkas_handler_for_them_is_named() -> None:
    config = make(**{"sasl.enabled.mechanisms": "OAUTHBEARER,PLAIN", HANDLER: UNSECURED})
    assert (
        config.sasl.listeners["CLIENT"].settings["OAUTHBEARER"]["sasl.server.callback.handler.class"]
        == UNSECURED
    )


def test_without_sasl_listeners_nothing_is_asked_of_the_sasl_keys() -> None:
    config = BrokerConfig.from_properties(
        {"zookeeper.connect": "zk:2181", "broker.id": "1", "log.dirs": "/data"}
    )
    assert config.sasl.listeners == {}
