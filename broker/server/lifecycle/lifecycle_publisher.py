"""Publishes the broker's lifecycle events from their file to the topic ``landline.lifecycle``, once the
broker is up.

At least once, with acks=all: events not known to be published are sent again, by the next start at the
latest. Readers recognize duplicates by ``id``. The topic is created like one that a client requests.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable
from typing import Any

import structlog

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors, ProtocolError
from broker.protocol.produce_messages import ACKS_ALL
from broker.record.batch import Record, build_batch
from broker.replication.broker_channel import BrokerChannel, ChannelError
from broker.replication.cluster_view import BrokerAddress
from broker.server.lifecycle.lifecycle_file import LifecycleFile
from broker.server.metadata_cache import MetadataCache
from broker.utils.scheduler import KafkaScheduler, ScheduledTask
from broker.utils.topic_partition import TopicPartition

_log = structlog.get_logger(__name__)
TOPIC = "landline.lifecycle"
_PERIOD_MS = 1_000
_MOST_AT_ONCE = 500
_PRODUCE_VERSION = 9
_TIMEOUT_MS = 10_000


class NotPublishedError(Exception):
    """Publishing failed for now; the message says why. It is retried."""


class LifecyclePublisher:
    """A scheduled task that publishes the events, and ends when all are published."""

    def __init__(
        self,
        file: LifecycleFile,
        cache: MetadataCache,
        ensure_topics: Callable[[Iterable[str]], None],
        make_channel: Callable[[BrokerAddress, str], BrokerChannel],
    ) -> None:
        self._file = file
        self._cache = cache
        self._ensure_topics = ensure_topics
        self._make_channel = make_channel
        self._task: ScheduledTask | None = None
        self._channel: BrokerChannel | None = None
        self._stopping = False
        self._last_reason = ""

    def startup(self, scheduler: KafkaScheduler) -> None:
        self._task = scheduler.schedule("publish-lifecycle-events", self.publish, 0, _PERIOD_MS)

    def shutdown(self) -> None:
        """Aborts a request in progress: a stop must not wait for a leader's response."""
        self._stopping = True
        if self._task is not None:
            self._task.cancel()
        if (channel := self._channel) is not None:
            channel.close()

    def publish(self) -> None:
        """Sends the unpublished events; cancels the task when all are acknowledged."""
        try:
            sent = 0
            while events := self._file.unpublished()[:_MOST_AT_ONCE]:
                self._send(events)
                self._file.mark_published(events[-1]["id"])
                sent += len(events)
        except (NotPublishedError, ChannelError, ProtocolError, OSError) as error:
            if str(error) != self._last_reason:
                self._last_reason = str(error)
                _log.info("lifecycle_events_wait", topic=TOPIC, reason=self._last_reason)
            return
        _log.info("lifecycle_events_published", topic=TOPIC, events=sent)
        if self._task is not None:
            self._task.cancel()

    def _send(self, events: list[dict[str, Any]]) -> None:
        partition, address = self._leader(events[0]["host"])
        records = [
            Record(
                event["host"].encode(),
                json.dumps(event, separators=(",", ":")).encode(),
                timestamp=int(event["end_us"]) // 1000,
            )
            for event in events
        ]
        request = {
            "transactional_id": None,
            "acks": ACKS_ALL,
            "timeout": _TIMEOUT_MS,
            "topic_data": [
                {"name": TOPIC, "partition_data": [{"index": partition, "records": build_batch(records)}]}
            ],
        }
        channel = self._channel = self._make_channel(address, "lifecycle-publisher")
        try:
            if self._stopping:  # set before the channel existed and could be closed
                raise NotPublishedError("the broker stops")
            response = channel.request(ApiKey.PRODUCE, _PRODUCE_VERSION, request)
        finally:
            self._channel = None
            channel.close()
        code = Errors(int(response.responses[0].partition_responses[0].error_code))
        if code is not Errors.NONE:
            raise NotPublishedError(f"{TOPIC}-{partition}: {code.name}")

    def _leader(self, host: str) -> tuple[int, BrokerAddress]:
        """The partition for ``host``'s events, the same for all so that they stay in order, and its
        leader's address.
        """
        count = self._cache.partition_count(TOPIC)
        if not count:
            self._ensure_topics([TOPIC])
            raise NotPublishedError(f"{TOPIC} is being created")
        partition = zlib.crc32(host.encode()) % count
        info = self._cache.partition_info(TopicPartition(TOPIC, partition))
        address = None if info is None else self._cache.broker_address(info.leader)
        if address is None:
            raise NotPublishedError(f"{TOPIC}-{partition} has no leader")
        return partition, address
