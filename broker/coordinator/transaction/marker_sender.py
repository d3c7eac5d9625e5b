"""Sends WriteTxnMarkers to one broker, in batches, with one request in flight."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import structlog

from broker.coordinator.transaction.markers import (
    WRITE_TXN_MARKERS_VERSION,
    MarkerErrors,
    Outgoing,
    errors_by_producer,
    request_fields,
)
from broker.coordinator.transaction.partitions import count, in_parts
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ProtocolError
from broker.replication.broker_channel import BrokerChannel, ChannelError
from broker.replication.cluster_view import BrokerAddress
from broker.replication.kept_channel import KeptChannel
from broker.utils.line_budget import LineBudget

_log = structlog.get_logger(__name__)
# No leader takes more than 100,000 elements. A batch has less than twice as many partitions, perhaps each in a topic
# of its own.
_PARTITIONS_AT_ONCE: Final = 10_000
_MARKERS_AT_ONCE: Final = 1_000
_IDLE_S: Final = 60.0

Answered = Callable[[Sequence[Outgoing], Mapping[int, MarkerErrors]], None]
Failed = Callable[[Sequence[Outgoing]], None]


class MarkerSender:
    """The sender of markers to one broker. It owns a channel, and a thread that ends when it was idle for a minute.

    ``address`` returns the broker's address, None while it is not alive. ``answered`` gets a batch with the errors
    by producer id, ``failed`` one that got no answer. Both run on the sender's thread, or ``failed`` on that of
    :meth:`send` if the sender's cannot be started.
    """

    def __init__(
        self,
        broker_id: int,
        address: Callable[[], BrokerAddress | None],
        make_channel: Callable[[BrokerAddress, str], BrokerChannel],
        client_id: str,
        *,
        answered: Answered,
        failed: Failed,
        lines: LineBudget,
    ) -> None:
        self._broker_id = broker_id
        self._address = address
        self._channel = KeptChannel(make_channel, client_id)
        self._answered = answered
        self._failed = failed
        self._lines = lines
        self._changed = threading.Condition()  # lock order 59
        self._queue: deque[Outgoing] = deque()
        self._own_thread: threading.Thread | None = None
        self._stopped = False

    def send(self, outgoing: Outgoing) -> None:
        """Has the marker sent, in parts if its partitions are very many."""
        parts = [
            outgoing._replace(partitions=some) for some in in_parts(outgoing.partitions, _PARTITIONS_AT_ONCE)
        ]
        with self._changed:
            if self._stopped:
                return
            is_taken = self._own_thread is not None or self._start()
            if is_taken:
                self._queue += parts
                self._changed.notify()
        if not is_taken:
            self._failed(parts)

    def _start(self) -> bool:
        """Starts the thread, under the lock. False if the process has no memory or threads left."""
        thread = threading.Thread(target=self._run, name=f"txn-marker-sender-{self._broker_id}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            left_out = self._lines.left_out()
            if left_out is not None:
                _log.warning(
                    "txn_marker_sender_not_started",
                    broker=self._broker_id,
                    reason=str(error),
                    left_out=left_out,
                    action="tried again",
                )
            return False
        self._own_thread = thread
        return True

    def shutdown(self) -> None:
        """Drops what waits. The next coordinator of these transactions sends their markers."""
        with self._changed:
            self._stopped = True
            self._queue.clear()
            self._changed.notify()
            thread = self._own_thread
        self._channel.close()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        while batch := self._take():
            try:
                self._send(batch)
            except Exception:  # the transactions of this batch must not wait for ever
                left_out = self._lines.left_out()
                if left_out is not None:
                    _log.exception("txn_markers_failed", broker=self._broker_id, left_out=left_out)
                self._failed(batch)

    def _take(self) -> list[Outgoing]:
        """The next batch. Empty when the thread is to end."""
        with self._changed:
            if not self._queue and not self._stopped:
                self._changed.wait_for(lambda: self._queue or self._stopped, _IDLE_S)
            batch: list[Outgoing] = []
            producers = set()
            room = _PARTITIONS_AT_ONCE
            while self._queue and room > 0 and len(batch) < _MARKERS_AT_ONCE:
                producer_id = self._queue[0].completion.target.producer_id
                if producer_id in producers:  # the answer could not tell them apart
                    break
                producers.add(producer_id)
                batch.append(self._queue.popleft())
                room -= count(batch[-1].partitions)
            if not batch:
                self._own_thread = None
        if not batch:
            self._channel.release()
        return batch

    def _send(self, batch: list[Outgoing]) -> None:
        address = self._address()
        if address is None:
            self._failed(batch)
            return
        fields = request_fields([outgoing.marker() for outgoing in batch])
        try:
            response = self._channel.to(address).request(
                ApiKey.WRITE_TXN_MARKERS, WRITE_TXN_MARKERS_VERSION, fields
            )
        except (ChannelError, ProtocolError) as error:
            left_out = self._lines.left_out()
            if left_out is not None:
                _log.warning(
                    "txn_markers_not_sent",
                    broker=self._broker_id,
                    markers=len(batch),
                    reason=str(error),
                    left_out=left_out,
                    action="sent again, to the leaders that the partitions have then",
                )
            self._failed(batch)
            return
        self._answered(batch, errors_by_producer(response))
