"""confluent-kafka: the current version of librdkafka."""

from __future__ import annotations

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from chaos.history import Acked, Assigned, Committed, Failed, Polled, Sent, record_id
from tests.support.clients.driver import (
    DELIVERY_TIMEOUT_S,
    POLL_RECORDS,
    POLL_S,
    SESSION_TIMEOUT_S,
    Job,
    Positions,
)


class ConfluentDriver:
    """An idempotent librdkafka producer, and consumers with manual synchronous commits."""

    name = "confluent"
    idempotent = True

    def produce(self, job: Job, producer: str) -> None:
        """See ``Driver``."""
        library = Producer(
            {
                "bootstrap.servers": job.workload.bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": DELIVERY_TIMEOUT_S * 1000,
            }
        )
        for sequence in range(job.workload.records):
            while (wait_s := job.wait_before(sequence)) > 0:
                library.poll(wait_s)
            self._send(library, job, producer, sequence)
        unsent = library.flush(DELIVERY_TIMEOUT_S)
        if unsent:
            raise TimeoutError(f"librdkafka still holds {unsent} records after {DELIVERY_TIMEOUT_S} s")

    def _send(self, library: Producer, job: Job, producer: str, sequence: int) -> None:
        record = record_id(producer, sequence)

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                job.recorder.add(Failed(producer, record, str(error)))
                return
            partition, offset = message.partition(), message.offset()
            known = offset if offset is not None and offset >= 0 else None
            job.recorder.add(Acked(producer, record, -1 if partition is None else partition, known))

        job.recorder.add(Sent(producer, record))
        while True:
            try:
                library.produce(
                    job.workload.topic, record, partition=job.partition_of(sequence), on_delivery=delivered
                )
            except BufferError:
                library.poll(0.1)
            else:
                break
        library.poll(0)

    def consume(self, job: Job, consumer: str) -> None:
        """See ``Driver``."""
        library = Consumer(
            {
                "bootstrap.servers": job.workload.bootstrap,
                "group.id": job.workload.group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": SESSION_TIMEOUT_S * 1000,
                "heartbeat.interval.ms": 1000,
            }
        )
        positions = Positions()

        def assigned(_: Consumer, partitions: list[TopicPartition]) -> None:
            job.recorder.add(*(Assigned(consumer, each.partition) for each in partitions))
            for each in partitions:
                positions.assigned(each.partition)

        library.subscribe([job.workload.topic], on_assign=assigned)
        try:
            while not job.reading_done.is_set():
                self._record(job, consumer, positions, library.consume(POLL_RECORDS, POLL_S))
                self._commit(library, job, consumer, positions)
        finally:
            library.close()

    def _record(self, job: Job, consumer: str, positions: Positions, messages: list[Message]) -> None:
        polled = []
        for message in messages:
            partition, offset, value = message.partition(), message.offset(), message.value()
            if message.error() is not None or partition is None or offset is None or value is None:
                continue
            polled.append(Polled(consumer, partition, offset, value.decode()))
            positions.read(partition, offset)
        job.recorder.add(*polled)

    def _commit(self, library: Consumer, job: Job, consumer: str, positions: Positions) -> None:
        due = positions.due()
        if not due:
            return
        offsets = [TopicPartition(job.workload.topic, partition, offset) for partition, offset in due.items()]
        try:
            answers = library.commit(offsets=offsets, asynchronous=False) or []
        except KafkaException:
            return  # A rebalance or a failover: nothing is known to be committed.
        done = [Committed(consumer, each.partition, each.offset) for each in answers if each.error is None]
        job.recorder.add(*done)
