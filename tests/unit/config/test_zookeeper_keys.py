"""The keys about the security of the connection to ZooKeeper: what is refused, and with which words."""

from __future__ import annotations

import importlib.util

import pytest

from broker.config.broker_config import BrokerConfig
from broker.config.problems import ConfigError

MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"
JAAS = "landline.zookeeper.sasl.jaas.config"


def problems(**keys: str) -> dict[str, str]:
    texts = {"zookeeper.connect": "zk:2181", **{key.replace("_", "."): text for key, text in keys.items()}}
    try:
        BrokerConfig.from_properties(texts)
    except ConfigError as error:
        return {problem.key: problem.message for problem in error.problems}
    return {}


def test_acls_on_znodes_need_credentials() -> None:
    assert "needs credentials" in problems(zookeeper_set_acl="true")["zookeeper.set.acl"]
    assert not problems(zookeeper_set_acl="true", landline_zookeeper_digest="kafka:secret")
    tls = {"zookeeper_ssl_client_enable": "true"}
    assert problems(zookeeper_set_acl="true", **tls)
    assert not problems(zookeeper_set_acl="true", zookeeper_ssl_keystore_location="/k.pem", **tls)


@pytest.mark.parametrize("key", ["zookeeper.ssl.crl.enable", "zookeeper.ssl.ocsp.enable"])
def test_revocation_is_refused_because_it_is_not_checked(key: str) -> None:
    assert "not checked" in problems(**{"zookeeper.ssl.client.enable": "true", key: "true"})[key]
    assert not problems(**{"zookeeper.ssl.client.enable": "true", key: "false"})


def test_tls_keys_without_tls_are_refused() -> None:
    assert (
        "has no effect"
        in problems(zookeeper_ssl_keystore_location="/k.pem")["zookeeper.ssl.keystore.location"]
    )


def test_a_version_that_openssl_should_not_speak_is_refused() -> None:
    assert problems(zookeeper_ssl_client_enable="true", zookeeper_ssl_enabled_protocols="TLSv1.1")


def test_a_digest_without_a_password_is_refused_without_showing_it() -> None:
    assert problems(landline_zookeeper_digest="kafka") == {
        "landline.zookeeper.digest": "is not user:password"
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('org.apache.kafka.common.security.plain.PlainLoginModule required username="a";', "none of"),
        (f'{MODULE} required username="kafka" pass="secret";', "no option"),
        (f'{MODULE} required username="kafka";', "lacks password"),
        (f'{MODULE} required username="kafka" password="secret"', "semicolon"),
    ],
)
def test_a_jaas_entry_with_a_mistake_is_refused(
    text: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    message = problems(**{JAAS: text})[JAAS]
    assert words in message
    assert "secret" not in message


def test_sasl_without_its_package_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    text = f'{MODULE} required username="kafka" password="secret";'
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    assert not problems(**{JAAS: text})
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert (
        "pure-sasl, which is not installed: install landline[zookeeper-sasl]"
        in problems(**{JAAS: text})[JAAS]
    )
