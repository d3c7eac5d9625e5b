"""A controller whose answers have millions of elements: the broker that asked lives, and goes on with sensible ones."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import pytest

from broker.protocol import codec
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors
from broker.protocol.primitives import write_uvarint
from rig.brokers import HOST
from rig.landline_broker import LandlineStandalone
from rig.raw_client import RawClient, stranger
from rig.wait import wait_until
from tests.support.scripted_leader import ScriptedLeader
from tests.support.valid_requests import some_records

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

CONTROLLER = 99
TOPIC = "served"
ELEMENTS = 3_000_000
# As many real topics, without name or configs: as objects they took 420 MiB.
NONSENSE = (
    bytes(4)
    + write_uvarint(ELEMENTS + 1)
    + (b"\1" + bytes(18) + b"\0" + bytes(6) + b"\1\0") * ELEMENTS
    + b"\0"
)
# Twelve bytes that announce 2^32 - 2 topics: the decoder asked for 32 GiB for them, and the process ended.
LIE = bytes(4) + b"\xff\xff\xff\xff\x0f"
# The answer as it is received, with room to spare, and a buffer before that.
GROWN_MIB = 250


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LandlineStandalone]:
    with LandlineStandalone(tmp_path / "data") as running:
        yield running
        assert "thread_died" not in running.log_text()


def take_over(broker: LandlineStandalone, port: int) -> None:
    """Tells the broker of a controller at ``port``, as a new controller does."""
    endpoints = [
        {
            "id_": number,
            "endpoints": [{"port": at, "host": HOST, "listener": "PLAINTEXT", "security_protocol": 0}],
            "rack": None,
        }
        for number, at in ((broker.broker_id, broker.port), (CONTROLLER, port))
    ]
    fields = {
        "controller_id": CONTROLLER,
        "is_k_raft_controller": False,
        "controller_epoch": 1_000,
        "broker_epoch": -1,
        "topic_states": [],
        "live_brokers": endpoints,
    }
    with RawClient(HOST, broker.port) as client:
        assert client.ask(ApiKey.UPDATE_METADATA, 8, fields).error_code == Errors.NONE


class Controller:
    """Answers each CreateTopics with the next of ``bodies``, and with the last of them from then on."""

    def __init__(self, *bodies: bytes) -> None:
        self._bodies = bodies
        self._peer = ScriptedLeader()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.port = self._peer.port
        self.answered = 0
        self.closed_by_broker = 0

    def _run(self) -> None:
        with suppress(OSError, ValueError):
            while True:
                self._peer.accept()
                with self._peer.socket as connection:
                    body = self._bodies[min(self.answered, len(self._bodies) - 1)]
                    self._peer.answer(self._peer.request(), body)
                    self.answered += 1
                    if connection.recv(1) == b"":
                        self.closed_by_broker += 1

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._peer.close()


def ask_for(client: RawClient, topic: str) -> Any:
    """A client's question that has the broker ask the controller for the topic."""
    fields = {"topics": [{"name": topic}], "allow_auto_topic_creation": True}
    return client.ask(ApiKey.METADATA, 4, fields).topics[0].error_code


def test_a_broker_survives_its_controllers_answers(broker: LandlineStandalone) -> None:
    row = {
        "name": "wanted",
        "error_code": 0,
        "error_message": None,
        "topic_config_error_code": 0,
        "configs": [],
    }
    sense = codec.encode(ApiKey.CREATE_TOPICS, 7, "response", {"topics": [row]})
    with (
        RawClient(HOST, broker.port, from_host=stranger()) as client,
        Controller(LIE, NONSENSE, NONSENSE, sense) as controller,
    ):
        assert client.create_topic(TOPIC).error_code == Errors.NONE
        before, most = broker.rss_mb(), 0.0
        take_over(broker, controller.port)

        def answered() -> bool:
            nonlocal most
            assert ask_for(client, "wanted") == Errors.LEADER_NOT_AVAILABLE
            assert client.produce(TOPIC, 0, some_records(b"small")).error_code == Errors.NONE
            most = max(most, broker.rss_mb())
            return controller.answered >= 4

        wait_until(answered, 120, what="the controller is asked until its answer makes sense")
        wait_until(lambda: controller.closed_by_broker >= 3)
    assert most - before < GROWN_MIB, f"{before:.0f} MiB grew to {most:.0f}"
    # A question that was under way as the controller went is told too, as a connection that was reset.
    nonsense = f"broker at {HOST}:{controller.port} answered nonsense: "
    told = [line for line in broker.log_text().splitlines() if nonsense in line]
    assert len(told) == 3
    assert all("auto_create_not_sent" in line for line in told)
    assert f"{nonsense}not a create_topics v7 response: topics of 4294967294 elements announced" in told[0]
    assert f"{nonsense}a create_topics v" in told[1]
    assert broker.is_ready()
