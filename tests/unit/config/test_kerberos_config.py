"""The keys about GSSAPI: what a listener and a login between brokers need, and what is refused."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from broker.config.broker_config import BrokerConfig
from broker.config.kerberos import RULES, SERVICE, KerberosLogin
from broker.config.problems import ConfigError
from tests.support.kerberos import login_module

JAAS = "listener.name.client.gssapi.sasl.jaas.config"
MODULE = login_module("kafka/h@EXAMPLE.COM", Path("/k"))
LOGIN = KerberosLogin("kafka/h@EXAMPLE.COM", "/k", None)
BASE = {
    "zookeeper.connect": "zk:2181",
    "broker.id": "1",
    "log.dirs": "/data",
    "listeners": "BROKER://h:9091,CLIENT://h:9092",
    "listener.security.protocol.map": "BROKER:PLAINTEXT,CLIENT:SASL_PLAINTEXT",
    "inter.broker.listener.name": "BROKER",
    JAAS: MODULE,
}
BETWEEN = {"inter.broker.listener.name": "CLIENT"}


@pytest.fixture(autouse=True)
def _library(monkeypatch: pytest.MonkeyPatch) -> None:
    """It seems to be installed."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)


def make(changes: dict[str, str]) -> BrokerConfig:
    return BrokerConfig.from_properties({key: text for key, text in {**BASE, **changes}.items() if text})


def problems_of(changes: dict[str, str]) -> dict[str, str]:
    with pytest.raises(ConfigError) as refusal:
        make(changes)
    return {problem.key: problem.message for problem in refusal.value.problems}


def test_a_listener_offers_gssapi_by_default_with_the_key_of_its_login_module() -> None:
    config = make({})
    listener = config.sasl.listeners["CLIENT"]
    assert listener.mechanisms == ("GSSAPI",)
    assert listener.kerberos is not None
    assert (listener.kerberos.login, listener.kerberos.rules) == (LOGIN, ("DEFAULT",))
    assert config.unused == ()


def test_a_listener_has_rules_of_its_own() -> None:
    own = f"listener.name.client.{RULES}"
    kerberos = make({RULES: "DEFAULT", own: "RULE:[1:$1]/L,DEFAULT"}).sasl.listeners["CLIENT"].kerberos
    assert kerberos is not None
    assert kerberos.rules == ("RULE:[1:$1]/L", "DEFAULT")
    assert (kerberos.login_key, kerberos.rules_key) == (JAAS, own)


def test_a_key_file_may_be_written_as_java_does() -> None:
    kerberos = make({JAAS: MODULE.replace("/k", "file:/k")}).sasl.listeners["CLIENT"].kerberos
    assert kerberos is not None
    assert kerberos.login == LOGIN


@pytest.mark.parametrize(
    "changes",
    [{SERVICE: "kafka"}, {JAAS: login_module("kafka/h@EXAMPLE.COM", Path("/k"), "serviceName=kafka")}],
)
def test_brokers_log_in_to_each_other_with_the_same_key(changes: dict[str, str]) -> None:
    login = make({**BETWEEN, **changes}).sasl.between_brokers
    assert login is not None
    assert (login.mechanism, login.user, login.kerberos) == (
        "GSSAPI",
        "kafka/h@EXAMPLE.COM",
        LOGIN._replace(service="kafka"),
    )


def test_gssapi_without_its_package_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert problems_of({}) == {
        "sasl.enabled.mechanisms": (
            "GSSAPI (Kerberos, the default) needs the Python package gssapi, which is not installed: install "
            "landline[gssapi], or Debian's python3-gssapi, or name some of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, "
            "OAUTHBEARER"
        )
    }


@pytest.mark.parametrize(
    ("changes", "key", "message"),
    [
        ({JAAS: ""}, JAAS, "GSSAPI has no login module: set it, as in com.sun.security.auth.module.Krb5Lo"),
        ({JAAS: MODULE.replace("useKeyTab=true", "")}, JAAS, "needs useKeyTab=true, keyTab and principal"),
        ({JAAS: MODULE.replace("useKeyTab=true", "useTicketCache=true")}, JAAS, "needs useKeyTab=true"),
        ({JAAS: MODULE.replace('keyTab="/k"', "")}, JAAS, "needs useKeyTab=true"),
        ({JAAS: MODULE.replace("keyTab=", "keytab=")}, JAAS, "Did you mean keyTab?"),
        ({JAAS: MODULE.replace("com.sun", "com.ibm")}, JAAS, "Did you mean com.sun.security.auth.module"),
        (
            {JAAS: login_module("kafka/h@EXAMPLE.COM", Path("/k"), "serviceName=x"), SERVICE: "kafka"},
            JAAS,
            "serviceName is x, and sasl.kerberos.service.name is kafka",
        ),
        (BETWEEN, SERVICE, "must be set for GSSAPI between brokers"),
    ],
)
def test_a_wrong_key_is_refused_with_its_name(changes: dict[str, str], key: str, message: str) -> None:
    problems = problems_of(changes)
    assert message in problems[key]
    assert len(problems) == 1
