"""Produce's verification of transactions: which of a request's batches need it, and what follows from it.

:mod:`broker.replication.transaction_verification` takes the guards and asks the coordinator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from broker.log.producers.verification import NOT_VERIFIED
from broker.network.request_channel import Request
from broker.protocol.errors import Errors
from broker.protocol.produce_messages import PartitionResponse, ProducedTopic, ProduceRequest
from broker.record.header import HEADER_BYTES, MAGIC, BatchHeader, read_header
from broker.replication.transaction_verification import Guards, Producer, Unverified, produce_error
from broker.server.apis.context import ApiContext
from broker.utils.topic_partition import TopicPartition

# The first version whose clients know TRANSACTION_ABORTABLE.
_ABORTABLE_FROM: Final = 11
_NOT_LED: Final = PartitionResponse(Errors.NOT_LEADER_OR_FOLLOWER)


class Verified(NamedTuple):
    """The guards of a request's batches, and the responses for those partitions whose verification failed or cannot
    be done. ``producer``: whose batches they are, None if none has a guard.
    """

    guards: Guards
    refused: Mapping[TopicPartition, PartitionResponse]
    producer: Producer | None = None


def begin_verified(transactional_id: str, topics: Sequence[ProducedTopic], ctx: ApiContext) -> Verified:
    """The guards of the transactional batches. If :func:`needs_answer`, they are still to be verified.

    ``topics`` are those of the request that its principal may write: a guard holds back other batches of the
    same producer.
    """
    sequences: dict[TopicPartition, int] = {}
    producer: Producer | None = None
    for topic_partition, header in _transactional(topics):
        producer = Producer(transactional_id, header.producer_id, header.producer_epoch)
        sequences[topic_partition] = header.base_sequence
    if producer is None or not ctx.verification.is_enabled():
        return Verified({}, {})
    guards = ctx.verification.begin(producer, sequences)
    # One that is led by the time of the append was not verified.
    refused = {tp: _NOT_LED for tp in sequences if tp not in guards}
    return Verified(guards, refused, producer)


def needs_answer(verified: Verified) -> bool:
    """Whether a coordinator must be asked before the append."""
    return any(guard is not NOT_VERIFIED for guard in verified.guards.values())


def verified_here(request: Request, verified: Verified, ctx: ApiContext) -> Verified | None:
    """What may be appended, if this broker is the transaction's coordinator. None: another one must be asked."""
    if verified.producer is None:
        return verified
    unverified = ctx.verification.verify_here(
        verified.producer, verified.guards, knows_abortable=request.api_version >= _ABORTABLE_FROM
    )
    return None if unverified is None else _judged(verified, unverified)


def verify_first(
    request: Request,
    verified: Verified,
    append: Callable[[Verified], None],
    ctx: ApiContext,
) -> None:
    """Asks the coordinator without blocking, then calls ``append`` with its answer, on any thread."""
    if verified.producer is None:
        append(verified)
        return
    ctx.verification.verify(
        verified.producer,
        verified.guards,
        lambda unverified: append(_judged(verified, unverified)),
        knows_abortable=request.api_version >= _ABORTABLE_FROM,
    )


def _judged(verified: Verified, unverified: Unverified) -> Verified:
    """The guards with the coordinator's answer."""
    if not unverified:
        return verified
    told = {tp: refused_by(error) for tp, error in unverified.items()}
    return verified._replace(refused={**verified.refused, **told})


def refused_by(error: Errors) -> PartitionResponse:
    """The response for a partition whose verification failed."""
    told = produce_error(error)
    return PartitionResponse(told.error_code, message=told.message or None)


def is_transactional(message: ProduceRequest) -> bool:
    """Whether any batch is part of a transaction."""
    return next(_transactional(message.topics), None) is not None


def has_several_producers(message: ProduceRequest) -> bool:
    """Whether the transactional batches are of more than one producer or epoch."""
    if len(message.topics) == 1 and len(message.topics[0][1]) == 1:
        return False
    return (
        len({(header.producer_id, header.producer_epoch) for _, header in _transactional(message.topics)}) > 1
    )


def _transactional(topics: Sequence[ProducedTopic]) -> Iterator[tuple[TopicPartition, BatchHeader]]:
    for topic, partitions in topics:
        for index, records in partitions:
            if records is not None and len(records) >= HEADER_BYTES:
                header = read_header(records)
                if header.is_transactional and header.magic == MAGIC:
                    yield TopicPartition(topic, index), header
