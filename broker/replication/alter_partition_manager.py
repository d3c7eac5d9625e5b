"""Sends ISR changes to the controller in batches, one request in flight; Kafka's AlterPartitionManager.

Owns a thread and a channel. A change stays pending in its Partition until its answer. If the controller
cannot be reached, the change is sent again.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable

import structlog

from broker.protocol.alter_partition_messages import (
    ALTER_PARTITION_VERSION,
    AlterPartitionRequest,
    AlterPartitionResponse,
    IsrChange,
    IsrChangesOfTopic,
)
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors, ProtocolError
from broker.replication.broker_channel import BrokerChannel, ChannelError
from broker.replication.cluster_view import BrokerAddress, ClusterView
from broker.replication.kept_channel import KeptChannel
from broker.utils.topic_partition import TopicPartition

_log = structlog.get_logger(__name__)
_RETRY_S = 0.05
_CONTROLLER_ELSEWHERE = frozenset({Errors.NOT_CONTROLLER, Errors.STALE_BROKER_EPOCH})

OnAccepted = Callable[[IsrChange, tuple[int, ...], int, int], None]
OnRefused = Callable[[IsrChange, Errors], bool]


class AlterPartitionManager:
    """Sends ISR changes to the controller; Kafka's AlterPartitionManager. One request is in flight at a time,
    with at most one change per partition. Owns a thread and a channel.

    Both callbacks run on that thread; ``on_refused`` returns whether to send the change again.
    """

    def __init__(
        self,
        broker_id: int,
        cluster: ClusterView,
        broker_epoch: Callable[[], int],
        make_channel: Callable[[BrokerAddress, str], BrokerChannel],
        *,
        on_accepted: OnAccepted,
        on_refused: OnRefused,
    ) -> None:
        self._broker_id = broker_id
        self._cluster = cluster
        self._broker_epoch = broker_epoch
        self._channel = KeptChannel(make_channel, f"broker-{broker_id}-alter-partition")
        self._on_accepted = on_accepted
        self._on_refused = on_refused
        self._pending: dict[TopicPartition, IsrChange] = {}
        self._wakeup = threading.Condition()  # lock order 60
        self._stopped = False
        # The controller whose answer the thread waits for.
        self._asked: BrokerAddress | None = None
        self._thread = threading.Thread(target=self._run, name="alter-partition", daemon=True)

    def submit(self, change: IsrChange) -> None:
        """Queues a change; it replaces an older one of the same partition."""
        with self._wakeup:
            self._pending[change.topic_partition] = change
            if not self._thread.is_alive() and not self._stopped:
                self._start()
            self._wakeup.notify()

    def look_at_controller(self) -> None:
        """Call it when the controller may be another one: a request to the one before fails at once. If that has
        lost its power, its connection would say nothing until the time-out, and all other changes would wait.
        """
        asked, address = self._asked, self._cluster.controller_address()
        if asked is not None and address is not None and asked != address:
            self._channel.interrupt()

    def shutdown(self) -> None:
        with self._wakeup:
            self._stopped = True
            self._wakeup.notify()
        self._channel.close()
        if self._thread.is_alive():
            self._thread.join()

    def _start(self) -> None:
        if self._thread.ident is None:
            self._thread.start()

    def _run(self) -> None:
        while (batch := self._take()) is not None:
            try:
                again = self._send(batch)
            except Exception:
                _log.exception("alter_partition_failed")
                again = batch
            if again:
                self._put_back(again)

    def _take(self) -> list[IsrChange] | None:
        with self._wakeup:
            while not self._pending and not self._stopped:
                self._wakeup.wait()
            if self._stopped:
                return None
            batch = list(self._pending.values())
            self._pending.clear()
            return batch

    def _put_back(self, changes: list[IsrChange]) -> None:
        with self._wakeup:
            for change in changes:
                self._pending.setdefault(change.topic_partition, change)
            if not self._stopped:
                self._wakeup.wait(_RETRY_S)

    def _send(self, batch: list[IsrChange]) -> list[IsrChange]:
        """Sends the batch; returns the changes to send again."""
        address = self._cluster.controller_address()
        if address is None:
            return batch
        try:
            channel = self._channel.to(address)
            self._asked = address
            if self._cluster.controller_address() not in {address, None}:
                return batch  # it became another one before that was noted, so nobody would interrupt this
            message = channel.request(
                ApiKey.ALTER_PARTITION, ALTER_PARTITION_VERSION, self._request(batch).fields()
            )
        except (ChannelError, ProtocolError) as error:
            _log.warning("alter_partition_not_sent", controller=address.broker_id, reason=str(error))
            return batch
        finally:
            self._asked = None
        response = AlterPartitionResponse.of(message)
        if response.error is not Errors.NONE:
            if response.error not in _CONTROLLER_ELSEWHERE:
                _log.warning(
                    "alter_partition_refused", controller=address.broker_id, error=response.error.name
                )
            return batch
        return self._apply(batch, response)

    def _request(self, batch: list[IsrChange]) -> AlterPartitionRequest:
        topics: dict[uuid.UUID | None, list[IsrChange]] = {}
        for change in batch:
            topics.setdefault(change.topic_id, []).append(change)
        by_topic = [
            IsrChangesOfTopic(changes[0].topic_partition.topic, topic_id, changes)
            for topic_id, changes in topics.items()
        ]
        return AlterPartitionRequest(self._broker_id, self._broker_epoch(), by_topic)

    def _apply(self, batch: list[IsrChange], response: AlterPartitionResponse) -> list[IsrChange]:
        answers = {
            (topic.topic_id, answer.partition_index): answer
            for topic in response.topics
            for answer in topic.partitions
        }
        again = []
        for change in batch:
            answer = answers.get((change.topic_id, change.topic_partition.partition))
            if answer is None:
                again.append(change)
            elif answer.error is Errors.NONE:
                self._on_accepted(change, answer.isr, answer.leader_epoch, answer.partition_epoch)
            else:
                _log.info(
                    "isr_change_refused", partition=str(change.topic_partition), error=answer.error.name
                )
                if self._on_refused(change, answer.error):
                    again.append(change)
        return again
