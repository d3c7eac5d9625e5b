"""Kafka's command-line tools on SASL_SSL with ACLs, as docs/security.md shows them; and delegation tokens by them.

All tools run in one JVM. The commands are those of the document, with the addresses and files of the test.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from rig.wait import wait_until
from tests.support.documented_clients import BOOTSTRAP, commands, properties_of, written
from tests.support.kafka_jvm import KafkaJvm, Ran, kafka_jvm
from tests.support.secure_cluster import (
    PASSWORDS,
    WRONG,
    SecureCluster,
    await_acls,
    create_topics,
)
from tests.support.secured_clients import write_properties

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]

SECTION = "Kafka's tools"
TOKEN_OF_ALICE = ("--create", "--max-life-time-period", "-1", "--owner-principal", "User:alice")


@dataclass
class Desk:
    """A JVM for the tools, and properties files of the users beside it."""

    cluster: SecureCluster
    jvm: KafkaJvm

    def file(self, name: str, user: str = "alice", **changes: str) -> str:
        """A properties file, as documented, for this user; with other words in it."""
        settings = properties_of("Java", self.cluster, user)
        for old, new in changes.items():
            settings = {key: value.replace(old, new) for key, value in settings.items()}
        return str(write_properties(self.cluster.root / name, settings))

    def run(self, words: list[str], text: str = "", **placed: str) -> Ran:
        """Runs a documented command; ``placed`` are the values of its words in capitals."""
        words = [placed.get(word, word).replace(BOOTSTRAP, self.cluster.bootstrap) for word in words]
        files = [str(self.cluster.root / word) if word.endswith(".properties") else word for word in words]
        return self.jvm.run(*files, text=text)

    def tool(self, name: str, config: str, *words: str, text: str = "") -> Ran:
        """Runs a command of the test's own."""
        option = {
            "kafka-console-producer.sh": "--producer.config",
            "kafka-console-consumer.sh": "--consumer.config",
        }
        common = ["--bootstrap-server", BOOTSTRAP, option.get(name, "--command-config"), config]
        return self.run([name, *common, *words], text)


@pytest.fixture(scope="module")
def desk(secured: SecureCluster) -> Iterator[Desk]:
    with kafka_jvm(secured.root / "tools.log") as jvm:
        made = Desk(secured, jvm)
        for user in ("admin", "alice", "bob"):
            made.file(f"{user}.properties", user)
        made.file("carol.properties", "bob", bob="carol")
        made.file("wrong.properties", "admin", **{PASSWORDS["admin"]: WRONG})
        create_topics(secured, "alice-tokens")
        yield made


def test_the_documented_commands_make_a_user_who_writes_and_reads(desk: Desk) -> None:
    steps = iter([words for words in commands(SECTION) if words[0] != "kafka-delegation-tokens.sh"])

    def done() -> str:
        words = next(steps)
        ran = desk.run(words)
        assert ran.code == 0, (words, ran)
        return ran.printed

    assert "Completed updating config for user carol" in done()
    assert "Completed updating config for user carol" in done()
    described = done()
    assert "Quota configs for user-principal 'carol' are producer_byte_rate=1048576" in described
    assert (
        "SCRAM credential configs for user-principal 'carol' are SCRAM-SHA-512=iterations=4096" in described
    )
    assert "Created topic orders" in done()
    assert "Adding ACLs for resource" in done()
    await_acls(desk.cluster, "User:carol", 5)  # at each broker: the next tool asks any
    listed = done()
    for resource, operation in (("TOPIC, name=orders", "WRITE"), ("GROUP, name=reports", "READ")):
        (block,) = re.findall(rf"resourceType={resource},.*?\n *\n", listed, re.DOTALL)
        assert f"operation={operation}," in block
    write, read = next(steps), next(steps)
    # Until both brokers know of her password; a refused attempt writes nothing.
    wait_until(lambda: "Exception" not in desk.run(write, "one\ntwo\n").said, what="carol may log in")
    wait_until(lambda: {"one", "two"} <= set(desk.run(read).printed.split()), what="carol reads it")
    assert re.search(r"reports\s+orders\s+[01]\s+\d\s+\d\s+0 ", done())
    done()
    await_acls(desk.cluster, "User:carol", 2)
    # Without Write on any topic, an idempotent producer gets no producer id.
    assert "ClusterAuthorizationException" in desk.run(write, "three\n").said
    assert next(steps, None) is None


def test_a_user_without_acls_is_refused_by_each_tool_in_kafkas_words(desk: Desk) -> None:
    refused = {
        ("kafka-acls.sh", "--list"): "ClusterAuthorizationException",
        ("kafka-configs.sh", "--describe", "--entity-type", "users"): "ClusterAuthorizationException",
        ("kafka-consumer-groups.sh", "--describe", "--group", "alice-g"): "GroupAuthorizationException",
        (
            "kafka-topics.sh",
            "--create",
            "--topic",
            "mine",
        ): "TopicAuthorizationException|Authorization failed",
    }
    for (name, *words), error in refused.items():
        ran = desk.tool(name, "bob.properties", *words)
        assert re.search(error, ran.printed + ran.said), (name, ran)


def test_a_wrong_password_is_an_authentication_failure_in_each_tool(desk: Desk) -> None:
    tools = {
        "kafka-acls.sh": ["--list"],
        "kafka-configs.sh": ["--describe", "--entity-type", "users"],
        "kafka-delegation-tokens.sh": ["--describe"],
        "kafka-topics.sh": ["--list"],
        "kafka-console-consumer.sh": ["--topic", "orders", "--max-messages", "1"],
    }
    for name, words in tools.items():
        ran = desk.tool(name, "wrong.properties", *words)
        assert "SaslAuthenticationException" in ran.printed + ran.said, (name, ran)


def test_a_delegation_token_is_made_used_renewed_and_expired(desk: Desk) -> None:
    create, describe, renew, expire = commands(SECTION, "kafka-delegation-tokens.sh")
    made = desk.run(create)
    assert made.code == 0, made
    (row,) = [line.split() for line in made.printed.splitlines() if "User:alice" in line]
    token, hmac = row[:2]
    wait_until(lambda: token in desk.run(describe).printed, what="the other broker knows the token")
    jaas = written_token().replace("TOKENID", token).replace("HMAC", hmac)
    settings = properties_of("Java", desk.cluster) | {"sasl.jaas.config": jaas}
    write_properties(desk.cluster.root / "token.properties", settings)

    def listed() -> Ran:
        return desk.tool("kafka-topics.sh", "token.properties", "--list")

    wait_until(lambda: listed().printed.split() == ["alice-tokens"], what="its owner may do this")
    again = [word.replace("alice.prop", "token.prop") for word in create]
    wait_until(lambda: "UnsupportedByAuthenticationException" in desk.run(again).said)
    others = desk.run([word.replace("alice.prop", "bob.prop") for word in renew], HMAC=hmac)
    assert (others.code, "DelegationTokenOwnerMismatch" in others.said) == (1, True), others
    renewed = desk.run(renew, HMAC=hmac)
    assert (renewed.code, "Completed renew operation" in renewed.printed) == (0, True), renewed
    expired = desk.run(expire, HMAC=hmac)
    assert (expired.code, "Completed expire operation" in expired.printed) == (0, True), expired
    wait_until(
        lambda: "SaslAuthenticationException" in listed().printed + listed().said, what="nobody gets in by it"
    )
    wait_until(lambda: token not in desk.run(describe).printed, what="the token is gone")


def written_token() -> str:
    """The documented JAAS string of a client with a token."""
    return written(SECTION).replace("\\\n", "").strip().split("=", 1)[1]
