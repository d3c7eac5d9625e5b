"""aiokafka: asyncio, with old versions of most requests."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import KafkaError

from tests.support.clients.driver import (
    DELIVERY_TIMEOUT_S,
    POLL_RECORDS,
    POLL_S,
    REQUEST_TIMEOUT_S,
    SESSION_TIMEOUT_S,
    Job,
    Positions,
)
from tests.support.history import Acked, Assigned, Committed, Failed, Polled, Sent, record_id

UNACKNOWLEDGED_MAX = 5000
CONNECT_RETRY_S = 0.5
SILENT_S = 20.0


class AiokafkaDriver:
    """An idempotent aiokafka producer, and consumers with manual commits; each on an event loop of its own."""

    name = "aiokafka"
    idempotent = True

    def produce(self, job: Job, producer: str) -> None:
        """See ``Driver``."""
        asyncio.run(self._produce(job, producer))

    def consume(self, job: Job, consumer: str) -> None:
        """See ``Driver``."""
        asyncio.run(self._consume(job, consumer))

    async def _produce(self, job: Job, producer: str) -> None:
        library = AIOKafkaProducer(
            bootstrap_servers=job.workload.bootstrap.split(","),
            acks="all",
            enable_idempotence=True,
            linger_ms=5,
            # Also how long a batch may wait for a leader: aiokafka has no delivery time-out of its own.
            request_timeout_ms=DELIVERY_TIMEOUT_S * 1000,
        )
        await _started(library)
        room = asyncio.Semaphore(UNACKNOWLEDGED_MAX)
        try:
            for sequence in range(job.workload.records):
                await _until_due(job, sequence)
                await room.acquire()
                await self._send(library, job, producer, sequence, room)
            for _ in range(UNACKNOWLEDGED_MAX):
                await asyncio.wait_for(room.acquire(), DELIVERY_TIMEOUT_S)
        finally:
            await asyncio.wait_for(library.stop(), 30)

    async def _send(
        self, library: Any, job: Job, producer: str, sequence: int, room: asyncio.Semaphore
    ) -> None:
        record = record_id(producer, sequence)

        def delivered(future: asyncio.Future[Any]) -> None:
            room.release()
            if (error := future.exception()) is not None:
                job.recorder.add(Failed(producer, record, repr(error)))
                return
            metadata = future.result()
            offset = metadata.offset if metadata.offset >= 0 else None
            job.recorder.add(Acked(producer, record, metadata.partition, offset))

        job.recorder.add(Sent(producer, record))
        future = await library.send(job.workload.topic, record.encode(), partition=job.partition_of(sequence))
        future.add_done_callback(delivered)

    async def _consume(self, job: Job, consumer: str) -> None:
        """Reads until all is read. A consumer that hears nothing for long is replaced by another of the group, as a
        supervisor would: when a broker closes a connection at the wrong moment, aiokafka 0.14's metadata task ends
        with an unseen KeyError, and its consumer asks the old leader for ever.
        """
        while not job.reading_done.is_set():
            await self._consume_until_silent(job, consumer)

    async def _consume_until_silent(self, job: Job, consumer: str) -> None:
        library = AIOKafkaConsumer(
            bootstrap_servers=job.workload.bootstrap.split(","),
            group_id=job.workload.group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_TIMEOUT_S * 1000,
            heartbeat_interval_ms=1000,
            # Soon enough that a request to a broker that died unheard is tried elsewhere before the reader counts as
            # stuck, and longer than a rebalance.
            request_timeout_ms=REQUEST_TIMEOUT_S * 1000 // 4,
        )
        positions = Positions()
        library.subscribe([job.workload.topic], listener=_Listener(job, consumer, positions))
        await _started(library)
        heard_s = time.monotonic()
        try:
            while not job.reading_done.is_set() and time.monotonic() - heard_s < SILENT_S:
                if await self._poll(library, job, consumer, positions):
                    heard_s = time.monotonic()
                await self._commit(library, job, consumer, positions)
        finally:
            await asyncio.wait_for(library.stop(), 30)

    async def _poll(self, library: Any, job: Job, consumer: str, positions: Positions) -> bool:
        """Whether there was anything."""
        try:
            batches = await library.getmany(timeout_ms=int(POLL_S * 1000), max_records=POLL_RECORDS)
        except KafkaError:
            return False  # Such as a coordinator that is not there yet: the next poll tries again.
        for partition, records in batches.items():
            job.recorder.add(
                *(Polled(consumer, partition.partition, each.offset, each.value.decode()) for each in records)
            )
            for each in records:
                positions.read(partition.partition, each.offset)
        return bool(batches)

    async def _commit(self, library: Any, job: Job, consumer: str, positions: Positions) -> None:
        due = positions.due()
        if not due:
            return
        offsets = {TopicPartition(job.workload.topic, partition): offset for partition, offset in due.items()}
        try:
            await library.commit(offsets)
        except KafkaError:
            return  # A rebalance or a failover: nothing is known to be committed.
        job.recorder.add(*(Committed(consumer, partition, offset) for partition, offset in due.items()))


async def _until_due(job: Job, sequence: int) -> None:
    while (wait_s := job.wait_before(sequence)) > 0:  # noqa: ASYNC110 (a rate, not an event, opens it)
        await asyncio.sleep(wait_s)


async def _started(library: Any) -> None:
    """Starts a producer or consumer; aiokafka gives up at once when no bootstrap server answers."""
    for _ in range(int(REQUEST_TIMEOUT_S / CONNECT_RETRY_S)):
        try:
            await library.start()
        except KafkaError:
            await asyncio.sleep(CONNECT_RETRY_S)
        else:
            return
    await library.start()


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    """Records assignments; aiokafka calls it between two ``getmany``."""

    def __init__(self, job: Job, consumer: str, positions: Positions) -> None:
        self._job = job
        self._consumer = consumer
        self._positions = positions

    async def on_partitions_revoked(self, revoked: Any) -> None:
        """Nothing to do: what was read is recorded already."""

    async def on_partitions_assigned(self, assigned: Any) -> None:
        """Records each partition."""
        self._job.recorder.add(*(Assigned(self._consumer, each.partition) for each in assigned))
        for each in assigned:
            self._positions.assigned(each.partition)
