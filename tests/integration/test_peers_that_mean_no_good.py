"""A broker under peers that hold what they begin, connect beyond what they may, or announce what they do not send."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors
from rig.brokers import HOST
from rig.landline_broker import LandlineStandalone
from rig.raw_client import RawClient, request_frame
from rig.wait import wait_until
from tests.support.valid_requests import some_records

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

MIB = 1024 * 1024
BROKER, SET = 4, 0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LandlineStandalone]:
    data: Path = tmp_path_factory.mktemp("guarded") / "data"
    config = {"queued.max.request.bytes": 32 * MIB, "socket.request.max.bytes": 20 * MIB}
    broker = LandlineStandalone(data, config)
    broker.start()
    yield broker
    broker.stop()


def test_halves_of_requests_take_no_more_than_the_budget_while_others_are_served(
    broker: LandlineStandalone,
) -> None:
    half = request_frame(ApiKey.PRODUCE, 9, bytes(19 * MIB))[: 18 * MIB]
    before = broker.rss_mb()
    with ExitStack() as stack:
        for _ in range(12):
            hog = stack.enter_context(socket.create_connection((HOST, broker.port)))
            hog.settimeout(0.5)
            with suppress(TimeoutError):  # the broker reads no more of it
                hog.sendall(half)
        with RawClient(HOST, broker.port) as client:
            assert client.create_topic("served").error_code == Errors.NONE
            assert client.produce("served", 0, some_records(b"x")).error_code == Errors.NONE
        assert broker.rss_mb() - before < 120
    with RawClient(HOST, broker.port) as client:
        assert client.produce("served", 0, some_records(bytes(900_000))).error_code == Errors.NONE


def test_the_number_of_connections_is_changed_while_the_broker_runs(broker: LandlineStandalone) -> None:
    def set_limit(client: RawClient, count: int) -> None:
        change = {
            "name": "max.connections.per.ip.overrides",
            "config_operation": SET,
            "value": f"127.9.9.9:{count}",
        }
        row = {"resource_type": BROKER, "resource_name": "0", "configs": [change]}
        answer = client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [row], "validate_only": False})
        assert answer.responses[0].error_code == Errors.NONE

    def is_let_in() -> bool:
        with RawClient(HOST, broker.port, from_host="127.9.9.9") as stranger:
            try:
                stranger.ask(ApiKey.API_VERSIONS, 0, {})
            except (OSError, EOFError, ConnectionError):
                return False
            return True

    with RawClient(HOST, broker.port) as client:
        assert is_let_in()
        set_limit(client, 0)
        wait_until(lambda: not is_let_in())
        set_limit(client, 5)
        wait_until(is_let_in)
