"""ISR changes reach the controller that is one now, also when the one before answers nothing any more."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from broker.protocol.alter_partition_messages import (
    AlteredPartition,
    AlteredTopic,
    AlterPartitionRequest,
    AlterPartitionResponse,
    IsrChange,
)
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors
from broker.replication.alter_partition_manager import AlterPartitionManager
from broker.replication.broker_channel import ChannelError
from broker.replication.cluster_view import BrokerAddress
from broker.utils.topic_partition import TopicPartition
from rig.wait import wait_until
from tests.model.wires import over_the_wire

TOPIC_ID = uuid.UUID(int=7)
CHANGE = IsrChange(TopicPartition("t", 0), TOPIC_ID, 3, 5, (1, 2), (-1, -1))
SILENT, NEXT = BrokerAddress(1, "h", 1), BrokerAddress(2, "h", 2)


class Channel:
    """A channel to a controller, of which the first has lost its power: it hears and says nothing."""

    def __init__(self, address: BrokerAddress, asked: list[BrokerAddress]) -> None:
        self._address = address
        self._asked = asked
        self._interrupted = threading.Event()

    def request(self, _api_key: int, version: int, fields: Any) -> Any:
        self._asked.append(self._address)
        if self._address == SILENT:
            assert self._interrupted.wait(30)
            raise ChannelError("interrupted")
        request = AlterPartitionRequest.of(over_the_wire(ApiKey.ALTER_PARTITION, version, "request", fields))
        rows = [AlteredPartition(0, Errors.NONE, 2, 3, (1, 2), 0, 6) for _ in request.topics]
        answer = AlterPartitionResponse(Errors.NONE, [AlteredTopic("t", TOPIC_ID, rows)])
        return over_the_wire(ApiKey.ALTER_PARTITION, version, "response", answer.fields())

    def interrupt(self) -> None:
        self._interrupted.set()

    def close(self) -> None:
        self._interrupted.set()


class Site:
    def __init__(self) -> None:
        self.controller: BrokerAddress | None = SILENT
        self.asked: list[BrokerAddress] = []
        self.accepted: list[IsrChange] = []
        self.manager = AlterPartitionManager(
            1,
            self,
            lambda: 1,
            lambda address, _client_id: Channel(address, self.asked),
            on_accepted=lambda change, *_: self.accepted.append(change),
            on_refused=lambda *_: False,
        )

    def controller_address(self) -> BrokerAddress | None:
        return self.controller


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    yield made
    made.manager.shutdown()


def test_a_change_goes_to_the_next_controller_without_waiting_for_the_last_ones_time_out(site: Site) -> None:
    site.manager.submit(CHANGE)
    wait_until(lambda: site.asked == [SILENT])
    site.manager.look_at_controller()
    site.controller = None
    site.manager.look_at_controller()
    assert site.asked == [SILENT], "it may be the controller still"
    site.controller = NEXT
    site.manager.look_at_controller()
    wait_until(lambda: site.accepted == [CHANGE])
    assert site.asked == [SILENT, NEXT]


def test_a_controller_that_changes_right_before_the_request_is_not_asked(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([SILENT])
    monkeypatch.setattr(site, "controller_address", lambda: next(answers, NEXT))
    site.manager.submit(CHANGE)
    wait_until(lambda: site.accepted == [CHANGE])
    assert site.asked == [NEXT]
