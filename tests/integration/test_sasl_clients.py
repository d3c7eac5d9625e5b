"""Real clients log in by PLAIN and SCRAM, stay in by re-authentication, and are kept out with a wrong password."""

from __future__ import annotations

import base64
import json
import logging
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka import KafkaConsumer, KafkaProducer

from broker.config.sasl import UNSECURED
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors
from broker.sasl.credential import to_base64
from broker.sasl.scram_client import ScramTokens
from rig.brokers import HOST, unused_port
from rig.landline_broker import COMMAND, REPOSITORY, LandlineStandalone
from rig.raw_client import RawClient
from rig.wait import last_for, wait_until
from tests.support.sasl_frames import log_in, plain

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

MODULES = "org.apache.kafka.common.security"
PASSWORDS = {"admin": "admin-secret", "alice": "alice, or =so", "bob": "bob-secret"}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
REAUTH_MS = 4_000
TOKEN_KEY = "signs-tokens"


class SaslBroker(LandlineStandalone):
    """A standalone broker with a listener without SASL, for the rig, and one with it, which it uses itself too."""

    def __init__(self, data_dir: Path) -> None:
        port, self.sasl_port = unused_port(), unused_port()
        users = " ".join(f'user_{user}="{password}"' for user, password in PASSWORDS.items())
        jaas = "listener.name.sasl_plaintext"
        super().__init__(
            data_dir,
            {
                "listeners": f"PLAINTEXT://{HOST}:{port},SASL_PLAINTEXT://{HOST}:{self.sasl_port}",
                "security.inter.broker.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
                "sasl.enabled.mechanisms": ",".join((*MECHANISMS, "OAUTHBEARER")),
                f"{jaas}.oauthbearer.sasl.server.callback.handler.class": UNSECURED,
                f"{jaas}.plain.sasl.jaas.config": f"{MODULES}.plain.PlainLoginModule required {users};",
                f"{jaas}.scram-sha-512.sasl.jaas.config": (
                    f'{MODULES}.scram.ScramLoginModule required username="admin" password="admin-secret";'
                ),
                "connections.max.reauth.ms": REAUTH_MS,
                "delegation.token.secret.key": TOKEN_KEY,
            },
            port,
        )


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslBroker]:
    """Its SCRAM users are made by the command, before its first start."""
    data = tmp_path_factory.mktemp("sasl") / "data"
    for user, password in PASSWORDS.items():
        argv = [*COMMAND, "credentials", "set", "--data-dir", str(data), "--user", user]
        subprocess.run(argv, cwd=REPOSITORY, input=f"{password}\n", text=True, check=True)
    with SaslBroker(data) as running:
        yield running
        log = running.log_text()
        assert "traceback=" not in log
        assert not any(secret in log for secret in (*PASSWORDS.values(), TOKEN_KEY))


def confluent(broker: SaslBroker, mechanism: str, password: str = PASSWORDS["alice"]) -> dict[str, object]:
    return {
        "bootstrap.servers": f"{HOST}:{broker.sasl_port}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": password,
    }


def kafka_python(broker: SaslBroker, mechanism: str) -> dict[str, object]:
    return {
        "bootstrap_servers": f"{HOST}:{broker.sasl_port}",
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "bob",
        "sasl_plain_password": PASSWORDS["bob"],
    }


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_confluent_kafka_writes_and_reads(broker: SaslBroker, mechanism: str) -> None:
    topic = f"confluent-{mechanism}"
    producer = Producer(confluent(broker, mechanism))
    producer.produce(topic, b"hello")
    assert producer.flush(30) == 0
    settings = {"group.id": topic, "auto.offset.reset": "earliest"}
    consumer = Consumer({**confluent(broker, mechanism), **settings})
    consumer.subscribe([topic])
    message = consumer.poll(30)
    consumer.close()
    assert message is not None
    assert message.value() == b"hello"


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_writes_and_reads(broker: SaslBroker, mechanism: str) -> None:
    topic = f"kafka-python-{mechanism}"
    producer = KafkaProducer(**kafka_python(broker, mechanism))
    producer.send(topic, b"hello").get(30)
    producer.close()
    consumer = KafkaConsumer(
        topic, auto_offset_reset="earliest", consumer_timeout_ms=30_000, **kafka_python(broker, mechanism)
    )
    assert next(consumer).value == b"hello"
    consumer.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_told_as_one(broker: SaslBroker, mechanism: str) -> None:
    errors: list[KafkaError] = []
    client = AdminClient(
        {**confluent(broker, mechanism, "wrong"), "error_cb": errors.append},
        logger=logging.getLogger("quiet"),
    )
    wait_until(lambda: client.poll(0.1) or errors, what="the client is refused")
    assert errors[0].code() == KafkaError._AUTHENTICATION
    wait_until(lambda: "authentication_failed" in broker.log_text(), what="the refusal is in the log")


def test_a_token_without_a_signature_is_taken_where_kafkas_handler_for_them_is_named(
    broker: SaslBroker,
) -> None:
    def token(_config: str) -> tuple[str, float]:
        claims = {"sub": "alice", "iat": time.time(), "exp": time.time() + 3600}
        parts = [base64.urlsafe_b64encode(json.dumps(part).encode()) for part in ({"alg": "none"}, claims)]
        return ".".join(part.decode().rstrip("=") for part in parts) + ".", claims["exp"]  # type: ignore[return-value]

    settings = {**confluent(broker, "OAUTHBEARER"), "oauth_cb": token}
    del settings["sasl.username"], settings["sasl.password"]
    producer = Producer(settings)
    producer.produce("tokens", b"hello")
    assert producer.flush(30) == 0


def test_clients_stay_in_by_re_authentication(broker: SaslBroker) -> None:
    """Their sessions end after four seconds; a connection that missed it would be closed and its records late."""
    errors: list[KafkaError] = []
    producer = Producer({**confluent(broker, "SCRAM-SHA-256"), "error_cb": errors.append})
    other = KafkaProducer(**kafka_python(broker, "PLAIN"))
    end = time.monotonic() + 3 * REAUTH_MS / 1000
    while time.monotonic() < end:
        producer.produce("long", b"x")
        assert producer.flush(10) == 0
        other.send("long", b"y").get(10)
        last_for(0.2)
    other.close()
    assert errors == []


def test_a_session_that_nobody_renews_ends(broker: SaslBroker) -> None:
    with RawClient(HOST, broker.sasl_port) as raw:
        assert raw.ask(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}).error_code == 0
        done = raw.ask(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": plain("bob", PASSWORDS["bob"])})
        assert (done.error_code, done.session_lifetime.total_seconds() * 1000) == (0, REAUTH_MS)
        assert raw.ask(ApiKey.LIST_GROUPS, 4, {"states_filter": []}).error_code == 0
        last_for(REAUTH_MS / 1000 + 0.5)
        assert not raw.is_open()


def test_a_delegation_token_logs_its_owner_in(broker: SaslBroker) -> None:
    with RawClient(HOST, broker.sasl_port) as raw:
        raw.ask(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
        raw.ask(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": plain("bob", PASSWORDS["bob"])})
        fields = {
            "owner_principal_type": None,
            "owner_principal_name": None,
            "renewers": [],
            "max_lifetime": -1,
        }
        token = raw.ask(ApiKey.CREATE_DELEGATION_TOKEN, 3, fields)
        assert (token.error_code, token.principal_name) == (0, "bob")
    with RawClient(HOST, broker.sasl_port) as raw:
        client = ScramTokens("SCRAM-SHA-256", token.token_id, to_base64(token.hmac), by_token=True)
        assert log_in(raw, "SCRAM-SHA-256", client).error_code == 0
        refused = raw.ask(ApiKey.CREATE_DELEGATION_TOKEN, 3, fields)
        assert refused.error_code == Errors.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


def test_sasl_requests_on_a_listener_without_sasl_are_out_of_place(broker: SaslBroker) -> None:
    with RawClient(HOST, broker.port) as raw:
        shaken = raw.ask(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
        assert shaken.error_code == Errors.ILLEGAL_SASL_STATE
        assert (
            raw.ask(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": b""}).error_code == Errors.ILLEGAL_SASL_STATE
        )


def test_a_user_is_made_changed_and_removed_while_the_broker_runs(broker: SaslBroker) -> None:
    admin = AdminClient(confluent(broker, "PLAIN"))
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 5000)
    (made,) = admin.alter_user_scram_credentials(
        [UserScramCredentialUpsertion("carol", info, b"first")]
    ).values()
    made.result(30)
    described = admin.describe_user_scram_credentials(["carol"])["carol"].result(30)
    assert [(one.mechanism, one.iterations) for one in described.scram_credential_infos] == [
        (ScramMechanism.SCRAM_SHA_256, 5000)
    ]
    assert can_log_in(broker, "carol", "first")
    (removed,) = admin.alter_user_scram_credentials(
        [UserScramCredentialDeletion("carol", ScramMechanism.SCRAM_SHA_256)]
    ).values()
    removed.result(30)
    wait_until(lambda: not can_log_in(broker, "carol", "first"), what="she is known no more")


def can_log_in(broker: SaslBroker, user: str, password: str) -> bool:
    errors: list[KafkaError] = []
    settings = {
        **confluent(broker, "SCRAM-SHA-256", password),
        "sasl.username": user,
        "error_cb": errors.append,
    }
    client = AdminClient(settings, logger=logging.getLogger("quiet"))
    try:
        client.list_topics(timeout=3)
    except Exception:
        client.poll(0)
        assert errors
        return False
    return True


def shown(broker: SaslBroker, user: str) -> tuple[bytes, str]:
    """The salt and the number of iterations that anybody is told of a user."""
    with RawClient(HOST, broker.sasl_port) as raw:
        assert raw.ask(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "SCRAM-SHA-512"}).error_code == Errors.NONE
        said = raw.ask(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": f"n,,n={user},r=nonce".encode()})
    _, salt, iterations = bytes(said.auth_bytes).decode().split(",")
    return base64.b64decode(salt.removeprefix("s=")), iterations


def test_unknown_users_look_like_known_ones_and_the_same_after_a_restart(tmp_path: Path) -> None:
    data = tmp_path / "data"
    argv = [*COMMAND, "credentials", "set", "--data-dir", str(data), "--user", "admin"]
    subprocess.run(argv, cwd=REPOSITORY, input="admin-secret\n", text=True, check=True)
    with SaslBroker(data) as broker:
        admin, nobody = shown(broker, "admin"), shown(broker, "nobody")
        assert (len(nobody[0]), nobody[1]) == (len(admin[0]), admin[1]) == (24, "i=4096")
        assert shown(broker, "noone")[0] != nobody[0]
        broker.stop()
        broker.start()
        assert shown(broker, "nobody") == nobody
