"""Verifies that a partition is part of a transaction before its first records are appended (KIP-890, part 1).

The leader takes a guard for each batch that begins a transaction in its log, and asks the transaction's
coordinator. :mod:`.add_partitions_to_txn` sends the question. The append checks the guard.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from broker.cluster.partition import Partition
from broker.log.producers.verification import NOT_VERIFIED, VerificationGuard
from broker.protocol.errors import Errors, KafkaError
from broker.utils.topic_partition import TopicPartition

Guards = Mapping[TopicPartition, VerificationGuard]
Unverified = Mapping[TopicPartition, Errors]
VerifiedCallback = Callable[[Unverified], None]


class Producer(NamedTuple):
    """A transactional producer, as a client's request names it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class Question(NamedTuple):
    """What a coordinator is asked: whether the partitions are part of the producer's transaction.

    ``knows_abortable``: the client understands TRANSACTION_ABORTABLE; others get INVALID_TXN_STATE instead.
    """

    producer: Producer
    partitions: Sequence[TopicPartition]
    knows_abortable: bool


class VerificationSender(Protocol):
    """Asks coordinators; Kafka's AddPartitionsToTxnManager."""

    def verify_here(self, question: Question) -> Unverified | None:
        """The answer, if this broker is the transaction's coordinator; None if another one must be asked. Does
        not block.
        """

    def verify(self, question: Question, then: VerifiedCallback) -> None:
        """Asks without blocking. ``then`` is called once, on any thread, with no lock held, with the partitions
        that are not part of the transaction or could not be verified, and why.
        """


class NobodyAsks:
    """The sender of a broker that verifies nothing."""

    def verify_here(self, question: Question) -> Unverified | None:
        return dict.fromkeys(question.partitions, Errors.COORDINATOR_NOT_AVAILABLE)

    def verify(self, question: Question, then: VerifiedCallback) -> None:
        then(dict.fromkeys(question.partitions, Errors.COORDINATOR_NOT_AVAILABLE))


class TransactionVerification:
    """Takes guards and has them verified; the verification of Kafka's ReplicaManager. Thread-safe.

    ``is_enabled`` is ``transaction.partition.verification.enable``, which may change. ``partition_of`` finds
    the partitions of this broker.
    """

    def __init__(
        self,
        partition_of: Callable[[TopicPartition], Partition | None] = lambda _partition: None,
        sender: VerificationSender | None = None,
        is_enabled: Callable[[], bool] = lambda: False,
    ) -> None:
        self._partition_of = partition_of
        self._sender = sender or NobodyAsks()
        self.is_enabled = is_enabled

    def begin(self, producer: Producer, sequences: Mapping[TopicPartition, int]) -> Guards:
        """The guards for the producer's batches, whose first sequences are given (-1 if they have none). They
        must be passed to the append. Those that are not NOT_VERIFIED must be verified before.

        Without verification there are no guards. A partition that is not led here has none either: do not append
        to it, even if it is led later.
        """
        guards: dict[TopicPartition, VerificationGuard] = {}
        if not self.is_enabled():
            return guards
        for topic_partition, sequence in sequences.items():
            partition = self._partition_of(topic_partition)
            if partition is not None and partition.is_leader:
                guards[topic_partition] = partition.log.producers.begin_verification(
                    producer.producer_id, producer.producer_epoch, sequence
                )
        return guards

    def verify_here(self, producer: Producer, guards: Guards, *, knows_abortable: bool) -> Unverified | None:
        """The answer about the partitions whose guards need it, without a request: empty if none does, None if
        another broker must be asked.
        """
        asked = _asked(guards)
        return self._sender.verify_here(Question(producer, asked, knows_abortable)) if asked else {}

    def verify(
        self, producer: Producer, guards: Guards, then: VerifiedCallback, *, knows_abortable: bool
    ) -> None:
        """Asks the coordinator, which is another broker, about the partitions whose guards need it. ``then`` is
        called as by :meth:`VerificationSender.verify`.
        """
        self._sender.verify(Question(producer, _asked(guards), knows_abortable), then)


def _asked(guards: Guards) -> list[TopicPartition]:
    return [partition for partition, guard in guards.items() if guard is not NOT_VERIFIED]


# Retriable errors that older producers do not retry in a Produce response. NOT_ENOUGH_REPLICAS makes them retry
# without a metadata refresh, as in Kafka.
_RETRIABLE: Final = frozenset(
    {
        Errors.CONCURRENT_TRANSACTIONS,
        Errors.NETWORK_EXCEPTION,
        Errors.COORDINATOR_LOAD_IN_PROGRESS,
        Errors.COORDINATOR_NOT_AVAILABLE,
        Errors.NOT_COORDINATOR,
    }
)


def produce_error(error: Errors) -> KafkaError:
    """The error of a Produce whose transaction could not be verified."""
    if error in _RETRIABLE:
        return KafkaError(
            Errors.NOT_ENOUGH_REPLICAS,
            "unable to verify the partition has been added to the transaction. "
            f"Underlying error: {error.name}",
        )
    if error is Errors.INVALID_TXN_STATE:
        return KafkaError(error, "partition was not added to the transaction")
    return KafkaError(error)
