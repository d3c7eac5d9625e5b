"""Clients that write one record and read it in a group, with the settings that docs/security.md gives them.

Each says by which of its own errors it reports a refused login, topic and group.
"""

from __future__ import annotations

import asyncio
import logging
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaError as AioError
from confluent_kafka import Consumer, KafkaException, Producer
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError as KpError
from kafka.net.sasl.oauth import AbstractTokenProvider as KpTokenProvider
from py4j.protocol import Py4JJavaError

from tests.support.documented_clients import properties_of, settings_of
from tests.support.kafka_jvm import KafkaJvm
from tests.support.secure_cluster import PASSWORDS, SecureCluster

WAIT_S = 60
CLIENT_WARNINGS = [
    # aiokafka leaves its TLS connections behind when it stops. kafka-python leaves a pair of sockets when it
    # cannot connect, and a TLS connection when it is closed before the handshake's end.
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]
"""Marks of modules that use these clients; such a module collects garbage before it ends."""


@dataclass(frozen=True, slots=True)
class Login:
    """Who logs in and how: by the user's password unless there is a wrong one, or a token for OAUTHBEARER."""

    user: str
    mechanism: str = "SCRAM-SHA-512"
    wrong_password: str = ""
    token: str = ""


@dataclass(frozen=True, slots=True)
class Refusals:
    """The error that a client raises, and its words for a refused login, topic and group."""

    error: type[Exception]
    login: str
    topic: str
    group: str


class SecuredClient(Protocol):
    """One client; ``write`` and ``read`` raise what the client reports."""

    mechanisms: tuple[str, ...]
    refusals: Refusals

    def write(self, login: Login, topic: str, value: bytes) -> None: ...
    def read(self, login: Login, topic: str, group: str) -> bytes: ...


class ConfluentKafka:
    mechanisms = ("SCRAM-SHA-512", "PLAIN", "OAUTHBEARER")
    refusals = Refusals(
        KafkaException, "_AUTHENTICATION", "TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED"
    )

    def __init__(self, cluster: SecureCluster) -> None:
        self._cluster = cluster

    def write(self, login: Login, topic: str, value: bytes) -> None:
        settings, errors = self._settings(login)
        producer = Producer(settings, logger=logging.getLogger("quiet"))
        producer.produce(topic, value, on_delivery=lambda error, _: error and errors.append(error))
        self._until(lambda: not producer.flush(0.2), errors)

    def read(self, login: Login, topic: str, group: str) -> bytes:
        settings, errors = self._settings(login)
        reading = {**settings, "group.id": group, "auto.offset.reset": "earliest"}
        consumer = Consumer(reading, logger=logging.getLogger("quiet"))
        consumer.subscribe([topic])
        found: list[Any] = []

        def polled() -> bool:
            message = consumer.poll(0.2)
            if message is not None:
                (errors if message.error() else found).append(message.error() or message)
            return bool(found)

        try:
            self._until(polled, errors)
            consumer.commit(found[0], asynchronous=False)
        finally:
            consumer.close()
        value: bytes = found[0].value()
        return value

    def _until(self, done: Any, errors: list[Any]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not done() or errors:
            if errors:
                raise KafkaException(errors[0])
            assert time.monotonic() < deadline, "neither done nor refused"

    def _settings(self, login: Login) -> tuple[dict[str, Any], list[Any]]:
        """With errors of the connection in the list; that a broker is down is none of them."""
        errors: list[Any] = []
        settings = settings_of("confluent-kafka", self._cluster, login.user)
        settings |= {"sasl.mechanism": login.mechanism, "error_cb": errors.append}
        if login.token:
            settings["oauth_cb"] = lambda _: (login.token, time.time() + 600)
            del settings["sasl.username"], settings["sasl.password"]
        elif login.wrong_password:
            settings["sasl.password"] = login.wrong_password
        return settings, errors


class KafkaPython:
    """Its TLS transport drops what comes together with the end of a connection: the answer to a refused login."""

    mechanisms = ("SCRAM-SHA-512", "PLAIN", "OAUTHBEARER")
    refusals = Refusals(
        KpError,
        "SaslAuthenticationFailed|socket disconnected",
        "TopicAuthorizationFailed",
        "GroupAuthorizationFailed",
    )

    def __init__(self, cluster: SecureCluster) -> None:
        self._cluster = cluster

    def write(self, login: Login, topic: str, value: bytes) -> None:
        producer = KafkaProducer(**self._settings(login), max_block_ms=WAIT_S * 1000)
        try:
            producer.send(topic, value).get(WAIT_S)
        finally:
            producer.close(timeout=5)

    def read(self, login: Login, topic: str, group: str) -> bytes:
        consumer = KafkaConsumer(
            topic,
            **self._settings(login),
            group_id=group,
            auto_offset_reset="earliest",
            consumer_timeout_ms=WAIT_S * 1000,
        )
        try:
            value: bytes = next(consumer).value
            consumer.commit()
        finally:
            consumer.close()
        return value

    def _settings(self, login: Login) -> dict[str, Any]:
        """It tries a refused login again until it gives up, and then raises a timeout."""
        patience_s = 5 if login.wrong_password else WAIT_S
        settings = _python_settings("kafka-python", self._cluster, login, _KpToken)
        return settings | {"bootstrap_timeout_ms": patience_s * 1000}


class AioKafka:
    mechanisms = ("SCRAM-SHA-512", "PLAIN", "OAUTHBEARER")
    refusals = Refusals(
        AioError, "SaslAuthenticationFailed", "TopicAuthorizationFailed", "GroupAuthorizationFailed"
    )

    def __init__(self, cluster: SecureCluster) -> None:
        self._cluster = cluster

    def write(self, login: Login, topic: str, value: bytes) -> None:
        async def work() -> None:
            producer = AIOKafkaProducer(**self._settings(login))
            try:
                await producer.start()
                await asyncio.wait_for(producer.send_and_wait(topic, value), WAIT_S)
            finally:
                await producer.stop()

        asyncio.run(work())

    def read(self, login: Login, topic: str, group: str) -> bytes:
        async def work() -> bytes:
            consumer = AIOKafkaConsumer(
                topic, **self._settings(login), group_id=group, auto_offset_reset="earliest"
            )
            try:
                await consumer.start()
                record = await asyncio.wait_for(consumer.getone(), WAIT_S)
                await consumer.commit()
            finally:
                await consumer.stop()
            value: bytes = record.value
            return value

        return asyncio.run(work())

    def _settings(self, login: Login) -> dict[str, Any]:
        return _python_settings("aiokafka", self._cluster, login, _AioToken)


class KcatError(Exception):
    """What kcat said before it ended with an error."""


class Kcat:
    mechanisms = ("SCRAM-SHA-512", "PLAIN")
    refusals = Refusals(
        KcatError, "Authentication failure", "Topic authorization failed", "Group authorization failed"
    )

    def __init__(self, cluster: SecureCluster) -> None:
        self._cluster = cluster

    def write(self, login: Login, topic: str, value: bytes) -> None:
        self._run(login, "-P", "-t", topic, text=value)

    def read(self, login: Login, topic: str, group: str) -> bytes:
        return self._run(login, "-G", group, "-c", "1", "-X", "auto.offset.reset=earliest", topic).strip()

    def _run(self, login: Login, *arguments: str, text: bytes = b"") -> bytes:
        settings = properties_of("kcat", self._cluster, login.user) | {"sasl.mechanism": login.mechanism}
        if login.wrong_password:
            settings["sasl.password"] = login.wrong_password
        file = write_properties(self._cluster.root / "kcat.conf", settings)
        command = ["kcat", "-F", str(file), "-m", str(WAIT_S), "-X", f"message.timeout.ms={WAIT_S * 1000}"]
        done = subprocess.run(
            [*command, *arguments], input=text, capture_output=True, timeout=WAIT_S, check=False
        )
        if done.returncode != 0:
            raise KcatError(done.stderr.decode())
        return done.stdout


class Java:
    """Kafka's own, of the version of the JVM."""

    mechanisms = ("SCRAM-SHA-512", "PLAIN", "OAUTHBEARER")
    refusals = Refusals(
        Py4JJavaError,
        "SaslAuthenticationException",
        "TopicAuthorizationException",
        "GroupAuthorizationException",
    )

    def __init__(self, cluster: SecureCluster, jvm: KafkaJvm) -> None:
        self._cluster = cluster
        self._jvm = jvm

    def write(self, login: Login, topic: str, value: bytes) -> None:
        kafka = self._jvm.java.org.apache.kafka
        text = kafka.common.serialization.StringSerializer
        settings = self._settings(login) | {"max.block.ms": WAIT_S * 1000}
        producer = kafka.clients.producer.KafkaProducer(self._jvm.properties(settings), text(), text())
        try:
            producer.send(kafka.clients.producer.ProducerRecord(topic, value.decode())).get()
        finally:
            producer.close()

    def read(self, login: Login, topic: str, group: str) -> bytes:
        kafka, util = self._jvm.java.org.apache.kafka, self._jvm.java.java.util
        text = kafka.common.serialization.StringDeserializer
        settings = self._settings(login) | {"group.id": group, "auto.offset.reset": "earliest"}
        consumer = kafka.clients.consumer.KafkaConsumer(self._jvm.properties(settings), text(), text())
        try:
            consumer.subscribe(util.Collections.singletonList(topic))
            deadline = time.monotonic() + WAIT_S
            while (records := consumer.poll(self._jvm.java.java.time.Duration.ofMillis(200))).isEmpty():
                assert time.monotonic() < deadline, "nothing came"
            consumer.commitSync()
            value: str = records.iterator().next().value()
        finally:
            consumer.close()
        return value.encode()

    def _settings(self, login: Login) -> dict[str, str]:
        return java_settings(self._cluster, login)


def java_settings(cluster: SecureCluster, login: Login) -> dict[str, str]:
    """The documented properties, for another mechanism or password if the login has one."""
    own = {"bootstrap.servers": cluster.bootstrap}
    if login.token:
        file = cluster.root / "java.token"
        file.write_text(login.token)
        own["sasl.oauthbearer.token.endpoint.url"] = file.as_uri()
        return properties_of("Java with OAUTHBEARER", cluster) | own
    settings = properties_of("Java", cluster, login.user) | own
    settings["sasl.mechanism"] = login.mechanism
    jaas = settings["sasl.jaas.config"]
    if login.mechanism == "PLAIN":
        jaas = jaas.replace("scram.ScramLoginModule", "plain.PlainLoginModule")
    if login.wrong_password:
        jaas = jaas.replace(PASSWORDS[login.user], login.wrong_password)
    return settings | {"sasl.jaas.config": jaas}


class _KpToken(KpTokenProvider):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token

    def token(self) -> str:
        return self._token


class _AioToken(AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


def _python_settings(client: str, cluster: SecureCluster, login: Login, provider: Any) -> dict[str, Any]:
    """kafka-python's and aiokafka's, which have the same names for what differs here."""
    settings = settings_of(client, cluster, login.user)
    settings["sasl_mechanism"] = login.mechanism
    if login.token:
        settings["sasl_oauth_token_provider"] = provider(login.token)
        del settings["sasl_plain_username"], settings["sasl_plain_password"]
    elif login.wrong_password:
        settings["sasl_plain_password"] = login.wrong_password
    return settings


def write_properties(path: Path, settings: Mapping[str, object]) -> Path:
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return path
