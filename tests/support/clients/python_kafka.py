"""kafka-python: pure Python, with its own schemas at run time."""

from __future__ import annotations

from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

from chaos.history import Acked, Assigned, Committed, Failed, Polled, Sent, Trouble, record_id
from tests.support.clients.driver import (
    DELIVERY_TIMEOUT_S,
    POLL_RECORDS,
    POLL_S,
    REQUEST_TIMEOUT_S,
    SESSION_TIMEOUT_S,
    Job,
    Positions,
)

RECONNECT_MAX_MS = 1000
# A consumer joins its group before it knows the topic, is assigned nothing of it, and joins again. A poll
# that ends between the responses to that join and its sync forgets the join: 3.0.12 then neither reads nor
# sends heartbeats.
FIRST_POLL_S = 5.0


class KafkaPythonDriver:
    """An idempotent kafka-python producer, and consumers with manual synchronous commits."""

    name = "kafka-python"
    idempotent = True

    def produce(self, job: Job, producer: str) -> None:
        """See ``Driver``."""
        library = KafkaProducer(
            bootstrap_servers=job.workload.bootstrap.split(","),
            acks="all",
            enable_idempotence=True,
            linger_ms=5,
            delivery_timeout_ms=DELIVERY_TIMEOUT_S * 1000,
            request_timeout_ms=REQUEST_TIMEOUT_S * 1000,
            max_block_ms=DELIVERY_TIMEOUT_S * 1000,
            reconnect_backoff_max_ms=RECONNECT_MAX_MS,
        )
        try:
            for sequence in range(job.workload.records):
                while (wait_s := job.wait_before(sequence)) > 0:
                    job.reading_done.wait(wait_s)
                self._send(library, job, producer, sequence)
            library.flush(DELIVERY_TIMEOUT_S)
        finally:
            library.close(timeout=10)

    def _send(self, library: KafkaProducer, job: Job, producer: str, sequence: int) -> None:
        record = record_id(producer, sequence)

        def delivered(metadata: Any) -> None:
            offset = metadata.offset if metadata.offset >= 0 else None
            job.recorder.add(Acked(producer, record, metadata.partition, offset))

        def failed(error: Any) -> None:
            job.recorder.add(Failed(producer, record, repr(error)))

        job.recorder.add(Sent(producer, record))
        future = library.send(job.workload.topic, record.encode(), partition=job.partition_of(sequence))
        future.add_callback(delivered)
        future.add_errback(failed)

    def consume(self, job: Job, consumer: str) -> None:
        """See ``Driver``. A consumer whose poll raised is replaced: some returned nothing ever after."""
        positions = Positions()
        while not job.reading_done.is_set():
            library = KafkaConsumer(
                bootstrap_servers=job.workload.bootstrap.split(","),
                group_id=job.workload.group,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                session_timeout_ms=SESSION_TIMEOUT_S * 1000,
                heartbeat_interval_ms=1000,
                reconnect_backoff_max_ms=RECONNECT_MAX_MS,
            )
            library.subscribe([job.workload.topic], listener=_Listener(job, consumer, positions))
            try:
                self._read(library, job, consumer, positions)
            finally:
                library.close()

    def _read(self, library: KafkaConsumer, job: Job, consumer: str, positions: Positions) -> None:
        """Reads until reading is done, or the library raised.

        ``UnknownBrokerIdError`` is about a broker that left the metadata between two steps of the library.
        """
        while not job.reading_done.is_set():
            wait_s = POLL_S if library.assignment() else FIRST_POLL_S
            try:
                batches = library.poll(timeout_ms=int(wait_s * 1000), max_records=POLL_RECORDS)
            except KafkaError as error:
                job.recorder.add(Trouble(consumer, f"poll raised {error!r}"))
                job.reading_done.wait(POLL_S)
                return
            self._record(job, consumer, positions, batches)
            self._commit(library, job, consumer, positions)

    def _record(self, job: Job, consumer: str, positions: Positions, batches: Any) -> None:
        for partition, records in batches.items():
            job.recorder.add(
                *(Polled(consumer, partition.partition, each.offset, each.value.decode()) for each in records)
            )
            for each in records:
                positions.read(partition.partition, each.offset)

    def _commit(self, library: KafkaConsumer, job: Job, consumer: str, positions: Positions) -> None:
        due = positions.due()
        if not due:
            return
        offsets = {
            TopicPartition(job.workload.topic, partition): OffsetAndMetadata(offset, "", -1)
            for partition, offset in due.items()
        }
        try:
            library.commit(offsets, timeout_ms=REQUEST_TIMEOUT_S * 1000)
        except KafkaError:
            return  # A rebalance or a failover: nothing is known to be committed.
        job.recorder.add(*(Committed(consumer, partition, offset) for partition, offset in due.items()))


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    """A listener that records assignments; kafka-python calls it within ``poll``."""

    def __init__(self, job: Job, consumer: str, positions: Positions) -> None:
        self._job = job
        self._consumer = consumer
        self._positions = positions

    def on_partitions_revoked(self, revoked: Any) -> None:
        """Nothing to do: what was read is already recorded."""

    def on_partitions_assigned(self, assigned: Any) -> None:
        """Records each partition."""
        self._job.recorder.add(*(Assigned(self._consumer, each.partition) for each in assigned))
        for each in assigned:
            self._positions.assigned(each.partition)
