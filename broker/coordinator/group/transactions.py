"""TxnOffsetCommit and transaction markers, as a group coordinator handles them.

:mod:`.txn_commits` decides under the group's lock, and :mod:`.transactional_offsets` keeps the offsets. A marker
that comes while its partition is being loaded is taken up by the load.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from broker.coordinator.group import txn_commits
from broker.coordinator.group.append_errors import verification_error
from broker.coordinator.group.cell import GroupCell
from broker.coordinator.group.commits import CommitErrors
from broker.coordinator.group.memory import Admission
from broker.coordinator.group.registry import GroupRegistry
from broker.coordinator.group.txn_commits import TransactionalCommit
from broker.protocol.errors import Errors
from broker.record.header import NO_SEQUENCE
from broker.replication.transaction_markers import OffsetsMarker
from broker.replication.transaction_verification import Producer, TransactionVerification, Unverified
from broker.utils.topic_partition import GROUP_METADATA_TOPIC, TopicPartition


class GroupTransactions:
    """The part of the GroupCoordinator for offsets in transactions. Thread-safe, without state of its own.

    ``refusal_of`` returns the error for a group that is not served here, ``cell_of`` the group's cell, which it
    creates if necessary, and ``admission_of`` the group's access to the memory.
    """

    def __init__(
        self,
        registry: GroupRegistry,
        verification: TransactionVerification,
        *,
        refusal_of: Callable[[str], Errors | None],
        cell_of: Callable[[str], GroupCell | Errors],
        admission_of: Callable[[str], Admission],
        partition_for: Callable[[str], int],
        metadata_max_chars: int,
    ) -> None:
        self.verification = verification
        self._registry = registry
        self._refusal_of = refusal_of
        self._cell_of = cell_of
        self._admission_of = admission_of
        self._partition_for = partition_for
        self._metadata_max_chars = metadata_max_chars

    def commit(
        self, group_id: str, transactional_id: str, request: TransactionalCommit, *, knows_abortable: bool
    ) -> None:
        """Handles a TxnOffsetCommit. The group's partition of __consumer_offsets must be part of the transaction;
        its coordinator is asked if this broker does not know so yet. ``knows_abortable``: the client
        understands TRANSACTION_ABORTABLE.
        """
        refusal = self._refusal_of(group_id)
        if refusal is not None:
            request.respond(txn_commits.refused(request, refusal))
            return
        producer_id, epoch, _ = request.producer
        producer = Producer(transactional_id, producer_id, epoch)
        partition = TopicPartition(GROUP_METADATA_TOPIC, self._partition_for(group_id))
        guards = self.verification.begin(producer, {partition: NO_SEQUENCE})
        guarded = request._replace(producer=request.producer._replace(guard=guards.get(partition)))

        def verified(unverified: Unverified) -> None:
            error = unverified.get(partition)
            if error is None:
                self._commit_verified(group_id, guarded)
            else:
                request.respond(txn_commits.refused(request, verification_error(error)))

        unverified = self.verification.verify_here(producer, guards, knows_abortable=knows_abortable)
        if unverified is None:
            self.verification.verify(producer, guards, verified, knows_abortable=knows_abortable)
        else:
            verified(unverified)

    def _commit_verified(self, group_id: str, request: TransactionalCommit) -> None:
        """Stores a transaction's offsets; the group is created if necessary."""
        found = self._refusal_of(group_id) or self._cell_of(group_id)
        if isinstance(found, Errors):
            request.respond(txn_commits.refused(request, found))
            return
        max_chars, admits = self._metadata_max_chars, self._admission_of(group_id)
        finish = self._registry.noting_transaction(found, request.producer.producer_id)

        def respond(errors: CommitErrors) -> None:
            finish()
            request.respond(errors)

        noted = request._replace(respond=respond)
        try:
            found.run(lambda group, _now: txn_commits.commit(group, noted, max_chars, admits))
        except BaseException:
            finish()
            raise
        admits.tell()

    def on_marker(self, marker: OffsetsMarker) -> None:
        """A marker was appended to a partition of __consumer_offsets: commits or drops what the producer committed
        in its transaction. While the partition is being loaded, the load does so before the partition is served.
        """
        for cell in self._registry.note_marker(marker):
            end_in(cell, marker)
        self._registry.forget_ended(marker.partition, marker.producer_id)


def end_in(cell: GroupCell, marker: OffsetsMarker) -> None:
    """Ends the producer's transaction in a group, if it has offsets there."""
    if cell.group.offsets.in_transactions.has(marker.producer_id):
        cell.run(
            partial(
                txn_commits.end,
                producer_id=marker.producer_id,
                marker_offset=marker.offset,
                committed=marker.committed,
            )
        )
