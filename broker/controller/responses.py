"""Handles the brokers' responses to the controller: failed log directories, and results of
replica deletions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from functools import partial

import structlog

from broker.controller.context import ControllerContext
from broker.controller.rules.states import Replica
from broker.controller.topic_deletion import TopicDeletion
from broker.protocol.api_keys import ApiKey
from broker.protocol.control_messages import ControlRequest, ControlResponse, StopReplicaRequest
from broker.protocol.errors import Errors
from broker.utils.topic_partition import TopicPartition

_log = structlog.get_logger(__name__)
# A broker that answers so may have read the registrations too early: it does not know its own new epoch, or
# this controller's new address. ZooKeeper's servers do not all apply a change at the same time.
_NOT_YET_KNOWN = frozenset({Errors.STALE_BROKER_EPOCH, Errors.CLUSTER_AUTHORIZATION_FAILED})


class Responses:
    """The handling of the brokers' responses to the controller's requests. ``receive`` runs on the sender
    threads and only enqueues; everything else runs on the controller's thread. The Term owns it.
    """

    def __init__(
        self,
        context: ControllerContext,
        deletion: TopicDeletion,
        fail_replicas: Callable[[Collection[Replica]], None],
        enqueue: Callable[[Hashable, Callable[[], None]], None],
        tell_again_later: Callable[[int], None],
    ) -> None:
        self._context = context
        self._deletion = deletion
        self._fail_replicas = fail_replicas
        self._enqueue = enqueue
        self._tell_again_later = tell_again_later
        self._refused: dict[int, int | None] = {}

    def refused_epoch(self, broker_id: int) -> int | None:
        """The epoch that the broker had when it refused requests. The refusal is forgotten by this call."""
        return self._refused.pop(broker_id, None)

    def receive(
        self, broker_id: int, api: ApiKey, request: ControlRequest, response: ControlResponse
    ) -> None:
        """Takes one response. If the broker refused the whole request, this is logged: the broker or this
        controller was replaced, or the broker does not know its own or this controller's registration yet.
        """
        if response.error is not Errors.NONE:
            _log.warning(
                "broker_refused_controller",
                broker=broker_id,
                api=api.name,
                error=response.error.name,
                controller_epoch=self._context.epoch,
            )
            if response.error in _NOT_YET_KNOWN:
                self._enqueue("broker_refused_orders", partial(self._on_refusal, broker_id))
        elif api is ApiKey.LEADER_AND_ISR:
            self._enqueue("leader_and_isr_response", partial(self._on_leader_and_isr, broker_id, response))
        elif isinstance(request, StopReplicaRequest) and request.deletes:
            self._enqueue(
                "stop_replica_response", partial(self._on_stop_replica, broker_id, request, response)
            )

    def _on_refusal(self, broker_id: int) -> None:
        """Several requests are often refused together. They are all answered by one full update, a
        little later.
        """
        if broker_id not in self._refused:
            self._refused[broker_id] = self._context.broker_epoch(broker_id)
            self._tell_again_later(broker_id)

    def _on_leader_and_isr(self, broker_id: int, response: ControlResponse) -> None:
        """A replica in a failed log directory is offline although its broker is alive."""
        failed = [
            TopicPartition(name, row.partition_index)
            for row in response.partitions
            if row.error is Errors.KAFKA_STORAGE_ERROR
            and row.topic_id is not None
            and (name := self._context.topic_names.get(row.topic_id)) is not None
        ]
        known = self._context.failed_dirs.setdefault(broker_id, set())
        newly = [partition for partition in failed if partition not in known]
        known.update(newly)
        if newly and broker_id in self._context.brokers:
            _log.error("replicas_offline", broker=broker_id, partitions=[str(p) for p in newly])
            self._fail_replicas([Replica(partition, broker_id) for partition in newly])

    def _on_stop_replica(
        self, broker_id: int, request: StopReplicaRequest, response: ControlResponse
    ) -> None:
        errors = {TopicPartition(row.topic, row.partition_index): row.error for row in response.partitions}
        done: list[Replica] = []
        failed: list[Replica] = []
        kept: list[TopicPartition] = []
        for partition, _, delete in request.states:
            if not delete:
                continue
            gone = errors.get(partition) in {None, Errors.NONE, Errors.UNKNOWN_TOPIC_OR_PARTITION}
            if self._context.is_being_deleted(partition.topic):
                (done if gone else failed).append(Replica(partition, broker_id))
            elif not gone:
                kept.append(partition)
        if failed:
            partitions = [str(replica.topic_partition) for replica in failed]
            _log.error("replicas_not_deleted", broker=broker_id, partitions=partitions)
            self._deletion.fail_replicas(failed)
        if kept:
            _log.error(
                "removed_replicas_not_deleted",
                broker=broker_id,
                partitions=[str(partition) for partition in kept],
                action="their files are of no use any more: mend the directory, then delete them by hand",
            )
        self._deletion.complete_replicas(done)
