"""A leader without records."""

from __future__ import annotations

import queue

from broker.protocol import codec
from broker.protocol.api_keys import ApiKey
from broker.replication.broker_channel import ChannelError


class SilentLeader:
    """A channel with BrokerChannel's interface to a leader that has no records: each fetch waits until it
    is interrupted.
    """

    def __init__(self, asked: queue.Queue[list[int]]) -> None:
        self._asked = asked
        self._interrupted: queue.Queue[None] = queue.Queue()

    def connect(self) -> None:
        return

    def request_raw(self, api_key: int, version: int, body) -> memoryview:
        message = codec.decode(api_key, version, "request", memoryview(b"".join(body)))
        assert api_key == ApiKey.FETCH
        self._asked.put(sorted(p.partition for topic in message.topics for p in topic.partitions))
        self._interrupted.get()
        raise ChannelError("interrupted")

    def interrupt(self) -> None:
        self._interrupted.put(None)

    close = interrupt

    def disconnect(self) -> None:
        return
