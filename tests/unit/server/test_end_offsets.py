"""The search for end offsets at leaders, and how it ends."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

from broker.replication.broker_channel import ChannelError
from broker.server.end_offsets import EndOffsets
from broker.utils.topic_partition import TopicPartition
from rig.wait import wait_until


class Silent:
    """A channel to a leader that does not answer."""

    def __init__(self) -> None:
        self.asked, self.closed = threading.Event(), threading.Event()

    def request(self, *_request: object) -> Any:
        self.asked.set()
        self.closed.wait(30)
        raise ChannelError("closed")

    def close(self) -> None:
        self.closed.set()


class Leaders:
    """A cluster in which others lead: broker n partition n."""

    broker_id = 0

    def __init__(self) -> None:
        self.channels: list[Silent] = []

    def partition(self, _partition: TopicPartition) -> None:
        return None

    def partition_info(self, partition: TopicPartition) -> SimpleNamespace:
        return SimpleNamespace(leader=partition.partition)

    def broker_address(self, leader: int) -> object:
        return leader

    def channel(self, _address: object, _client_id: str) -> Silent:
        self.channels.append(Silent())
        return self.channels[-1]


def test_a_broker_that_stops_waits_for_no_leader() -> None:
    leaders = Leaders()
    ends = EndOffsets(leaders, leaders, leaders.channel)  # type: ignore[arg-type]
    found: list[dict[TopicPartition, int]] = []
    thread = threading.Thread(
        target=lambda: found.append(ends.find([TopicPartition("t", leader) for leader in (1, 2, 3)]))
    )
    thread.start()
    wait_until(lambda: leaders.channels and leaders.channels[0].asked.is_set(), what="the first is asked")
    ends.stop()
    thread.join(10)
    assert found == [{}]
    assert [each.asked.is_set() for each in leaders.channels] == [True]
