"""Nothing that a broker shows has a secret: not its HTTP pages, its log, or what DescribeConfigs answers."""

from __future__ import annotations

import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors
from rig.brokers import HOST, unused_port
from rig.landline_broker import COMMAND, REPOSITORY, LandlineStandalone
from rig.raw_client import RawClient
from rig.wait import wait_until
from rig.wire import receive_frame
from tests.support.certificates import Authority
from tests.support.sasl_frames import answer, authenticate, handshake, plain

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

MODULES = "org.apache.kafka.common.security"
MARK = "s3cret"
"""Every secret has this in it."""
BROKER, SET = 4, 0
JAAS = (
    f"{MODULES}.plain.PlainLoginModule required "
    f'username="admin" password="{MARK}-admin" user_admin="{MARK}-admin" user_alice="{MARK}-alice";'
)


class SecretiveBroker(LandlineStandalone):
    """A broker with a secret for everything that may have one, and a listener without any, for the rig."""

    def __init__(self, directory: Path) -> None:
        authority = Authority()
        port, self.tls_port = unused_port(), unused_port()
        tls = "listener.name.tls.ssl"
        super().__init__(
            directory / "data",
            {
                "listeners": f"PLAINTEXT://{HOST}:{port},TLS://{HOST}:{self.tls_port}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,TLS:SASL_SSL",
                "inter.broker.listener.name": "TLS",
                "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
                "sasl.mechanism.inter.broker.protocol": "PLAIN",
                "listener.name.tls.plain.sasl.jaas.config": JAAS,
                f"{tls}.keystore.location": authority.issue().write_p12(
                    directory / "own.p12", f"{MARK}-store"
                ),
                f"{tls}.keystore.type": "PKCS12",
                f"{tls}.keystore.password": f"{MARK}-store",
                f"{tls}.key.password": f"{MARK}-store",
                f"{tls}.truststore.location": authority.write_pem(directory / "ca.pem"),
                f"{tls}.truststore.type": "PEM",
                "password.encoder.secret": f"{MARK}-encoder",
                "delegation.token.secret.key": f"{MARK}-tokens",
            },
            port,
        )


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecretiveBroker]:
    directory = tmp_path_factory.mktemp("secrets")
    argv = [*COMMAND, "credentials", "set", "--data-dir", str(directory / "data"), "--user", "carol"]
    subprocess.run(argv, cwd=REPOSITORY, input=f"{MARK}-carol\n", text=True, check=True)
    with SecretiveBroker(directory) as running:
        yield running
        assert MARK not in running.log_text()


def altered(client: RawClient, name: str, value: str) -> Any:
    config = {"name": name, "config_operation": SET, "value": value}
    resource = {"resource_type": BROKER, "resource_name": "0", "configs": [config]}
    fields = {"resources": [resource], "validate_only": False}
    return client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, fields).responses[0]


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("listener.name.tls.ssl.keystore.password", Errors.NONE),
        ("listener.name.tls.ssl.key.password", Errors.NONE),
        ("listener.name.tls.plain.sasl.jaas.config", Errors.INVALID_CONFIG),
        ("sasl.jaas.config", Errors.INVALID_CONFIG),
        ("ssl.keystore.password", Errors.INVALID_CONFIG),
        ("password.encoder.secret", Errors.INVALID_CONFIG),
        ("delegation.token.secret.key", Errors.INVALID_CONFIG),
    ],
)
def test_a_changed_secret_is_neither_answered_nor_logged(
    broker: SecretiveBroker, name: str, error: Errors
) -> None:
    with RawClient(HOST, broker.port) as client:
        done = altered(client, name, f"{MARK}-store")
    assert done.error_code == error
    assert MARK not in str(done)


def test_no_config_is_described_with_its_secret(broker: SecretiveBroker) -> None:
    asked = {"resource_type": BROKER, "resource_name": "0", "configuration_keys": None}
    fields = {"resources": [asked], "include_synonyms": True, "include_documentation": True}
    with RawClient(HOST, broker.port) as client:
        (described,) = client.ask(ApiKey.DESCRIBE_CONFIGS, 4, fields).results
    assert described.error_code == Errors.NONE
    names = {config.name for config in described.configs}
    assert {"password.encoder.secret", "delegation.token.secret.key"} <= names
    assert MARK not in str(described)


@pytest.mark.parametrize("page", ["status", "metrics", "livez", "readyz"])
def test_no_page_has_a_secret(broker: SecretiveBroker, page: str) -> None:
    with urlopen(f"{broker.http_url}/{page}") as content:
        assert MARK not in content.read().decode()


def test_a_failed_login_is_logged_without_what_was_sent(broker: SecretiveBroker) -> None:
    """The log is looked at when the broker has ended."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection((HOST, broker.tls_port), 10) as sock, context.wrap_socket(sock) as peer:
        peer.sendall(handshake() + authenticate(plain("alice", f"{MARK}-wrong")))
        receive_frame(peer)
        refused = answer(ApiKey.SASL_AUTHENTICATE, 2, receive_frame(peer))
    assert refused.error_code == Errors.SASL_AUTHENTICATION_FAILED
    assert MARK not in str(refused)
    wait_until(lambda: "authentication_failed" in broker.log_text(), what="the refusal is in the log")


def test_users_are_described_without_their_credentials(broker: SecretiveBroker) -> None:
    with RawClient(HOST, broker.port) as client:
        described = client.ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, {"users": None})
    (carol,) = described.results
    assert carol.user == "carol"
    assert "salt" not in str(described).lower()
