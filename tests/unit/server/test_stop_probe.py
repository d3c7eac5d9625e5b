"""How `may-stop` asks other brokers: by the inter-broker listener, with the TLS and the login of the properties."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.config.broker_config import BrokerConfig
from broker.config.endpoint import Endpoint
from broker.config.problems import ConfigError
from broker.network.request_channel import Request, Verdict
from broker.network.sasl import SaslListeners
from broker.network.socket_server import SocketServer
from broker.server import assembly
from broker.server.stopping.probe import Probe, inter_broker_protocol
from broker.server.stopping.stop_judge import RegisteredBroker
from broker.server.tls import make_tls
from broker.utils.timer import Timer
from tests.support.certificates import Stores
from tests.support.sasl_frames import make_offer

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MEMBER = RegisteredBroker(2, 1, 1, "here")


def properties_of(directory: Path, protocol: str) -> dict[str, str]:
    """Those of a broker whose inter-broker listener has this protocol and is named BROKER."""
    found = {
        "zookeeper.connect": "zk:2181",
        "log.dirs": "/d",
        "listeners": "CLIENT://127.0.0.1:0,BROKER://127.0.0.1:0",
        "listener.security.protocol.map": f"CLIENT:PLAINTEXT,BROKER:{protocol}",
        "inter.broker.listener.name": "broker",
    }
    if "SASL" in protocol:
        found |= {
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "listener.name.broker.plain.sasl.jaas.config": (
                "org.apache.kafka.common.security.plain.PlainLoginModule required "
                'username="alice" password="alice-secret" user_alice="alice-secret";'
            ),
        }
    if "SSL" in protocol:
        found |= Stores(directory).configs
    if protocol == "SSL":
        found["ssl.client.auth"] = "required"
    return found


def serve(request: Request) -> Verdict:
    request.respond_fields(
        {"throttle_time": 0, "brokers": [], "cluster_id": "c1", "controller_id": 7, "topics": []}
    )
    return Verdict.SERVED


@pytest.fixture(params=PROTOCOLS)
def properties(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    return properties_of(tmp_path, request.param)


@pytest.fixture
def other(properties: dict[str, str]) -> Iterator[Endpoint]:
    """Where another broker's inter-broker listener is, with the same properties."""
    config = BrokerConfig.from_properties(properties)
    timer = Timer("test")
    sasl = SaslListeners(
        {name: make_offer() for name in config.sasl.listeners},
        timer.add, failure_delay_ms=10, max_newcomers=9, max_login_ms=5_000,
    )  # fmt: skip
    server: SocketServer = assembly.make_socket_server(config, make_tls(config).handshakes)
    server.bind()
    server.start(serve, sasl=sasl if config.sasl.listeners else None)
    yield Endpoint("127.0.0.1", server.bound_ports["BROKER"], "BROKER")
    server.stop()
    timer.stop()


def test_a_broker_is_asked_by_the_security_of_the_inter_broker_listener(
    properties: dict[str, str], other: Endpoint
) -> None:
    found = Probe.of(properties)(MEMBER, other)
    assert (found.silence, found.cluster_id, found.controller_id) == (None, "c1", 7)


@pytest.mark.parametrize("properties", ["SASL_SSL"], indirect=True)
def test_a_broker_that_could_not_be_reached_after_the_stop_does_not_count(
    properties: dict[str, str], other: Endpoint, tmp_path: Path
) -> None:
    theirs = dict(properties)
    wrong_password = {
        name: text.replace(' password="alice-secret"', ' password="wrong"')
        if name.endswith("jaas.config")
        else text
        for name, text in theirs.items()
    }
    silence = Probe.of(wrong_password)(MEMBER, other).silence or ""
    assert silence.startswith("does not answer: ")
    assert "refused the login" in silence
    (tmp_path / "elsewhere").mkdir()
    wrong_authority = properties_of(tmp_path / "elsewhere", "SASL_SSL")
    assert "CERTIFICATE_VERIFY_FAILED" in (Probe.of(wrong_authority)(MEMBER, other).silence or "")
    assert "does not answer" in (Probe()(MEMBER, other).silence or "")


def test_properties_that_a_broker_could_not_start_with_are_refused(tmp_path: Path) -> None:
    properties = properties_of(tmp_path, "SSL")
    (tmp_path / "broker.pem").unlink()
    with pytest.raises(ConfigError, match=r"ssl\.keystore\.location"):
        Probe.of(properties)


def test_without_tls_and_sasl_the_other_properties_do_not_matter() -> None:
    assert Probe.of({"num.io.threads": "many"}) == Probe()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_protocol_is_that_of_the_inter_broker_listener(protocol: str) -> None:
    named = {
        "listeners": "A://:1,B://:2",
        "listener.security.protocol.map": f"A:PLAINTEXT,B:{protocol}",
        "inter.broker.listener.name": "b",
    }
    assert inter_broker_protocol(named) == protocol
    by_protocol = {"listeners": f"{protocol}://:1", "security.inter.broker.protocol": protocol}
    assert inter_broker_protocol(by_protocol) == protocol
    assert inter_broker_protocol({"listeners": f"{protocol}://:1", "inter.broker.listener.name": "C"}) == (
        "PLAINTEXT"
    )
