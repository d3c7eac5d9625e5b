"""A follower: one thread that fetches what this broker follows at one leader, appends it, and truncates where the logs
part. Kafka's ReplicaFetcherThread; which partition has which fetcher is `fetcher_manager`'s part.

A fetch is long-polled, so that a record travels at once; record bytes go from the receive buffer to the file. A fetch
that waits when partitions are added is given up and sent anew: else their new leader would wait for
replica.fetch.wait.max.ms until it hears of this follower, and every acks=all producer with it.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import structlog

from broker.cluster.partition import Partition
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors, KafkaError, ProtocolError
from broker.protocol.fetch_messages import (
    ReceivedPartition,
    WantedPartition,
    encode_follower_fetch,
    parse_fetch_response,
)
from broker.replication.broker_channel import BrokerChannel, ChannelError, RefusedError
from broker.replication.cluster_view import BrokerAddress
from broker.replication.follower_session import FollowerSession, Key
from broker.replication.truncation import truncation_offset
from broker.utils.clock import Clock
from broker.utils.topic_partition import TopicPartition

_log = structlog.get_logger(__name__)
FETCH_VERSION = 17
LIST_OFFSETS_VERSION = 9
LATEST, EARLIEST = -1, -2
# The leader or this broker has yet to hear of a change: ask again soon, not after the full back-off.
_SOON = frozenset({Errors.UNKNOWN_LEADER_EPOCH, Errors.NOT_LEADER_OR_FOLLOWER, Errors.UNKNOWN_TOPIC_ID})
_SOON_MS = 50


@dataclass(frozen=True, slots=True)
class FetcherSettings:
    """``replica.fetch.*``: milliseconds and bytes."""

    wait_max_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 1024 * 1024
    response_max_bytes: int = 10 * 1024 * 1024
    backoff_ms: int = 1000


@dataclass(frozen=True, slots=True)
class Followed:
    """A partition to fetch and the leader epoch it is followed in; not before ``not_before_ms``."""

    partition: Partition
    topic_id: uuid.UUID
    leader_epoch: int
    not_before_ms: int = 0


# Where each log ended when it was asked for: an answer to an older question is not taken.
Asked = Mapping[Key, tuple[Followed, int]]


class ReplicaFetcher:
    """Owner of one thread and one channel to one leader. ``address`` is asked at every connect: leaders move."""

    def __init__(
        self,
        name: str,
        broker_id: int,
        broker_epoch: Callable[[], int],
        address: Callable[[], BrokerAddress | None],
        make_channel: Callable[[BrokerAddress, str], BrokerChannel],
        settings: FetcherSettings,
        clock: Clock,
        on_appended: Callable[[TopicPartition], None],
        on_reached: Callable[[], None],
        on_refused: Callable[[], None],
    ) -> None:
        self._name = name
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._address = address
        self._make_channel = make_channel
        self._settings = settings
        self._clock = clock
        self._on_appended = on_appended
        self._on_reached = on_reached
        self._on_refused = on_refused
        self._followed: dict[tuple[uuid.UUID, int], Followed] = {}
        self._changed = threading.Condition()
        self._stopped = False
        self._channel: BrokerChannel | None = None
        self._connected_to: BrokerAddress | None = None
        self._session = FollowerSession()
        self._begin_anew = False
        self._asking = False
        self._given_up = False
        self._reachable = True
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __len__(self) -> int:
        return len(self._followed)

    def start(self) -> None:
        self._thread.start()

    def add(self, followed: Iterable[Followed]) -> None:
        with self._changed:
            for item in followed:
                self._followed[item.topic_id, item.partition.topic_partition.partition] = item
            # What the leader told of these before was told to another role.
            self._begin_anew = True
            if self._asking and self._channel is not None:
                self._given_up = True
                self._channel.interrupt()
            self._changed.notify()

    def remove(self, topic_partitions: frozenset[TopicPartition]) -> None:
        with self._changed:
            for key, item in list(self._followed.items()):
                if item.partition.topic_partition in topic_partitions:
                    del self._followed[key]

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify()
        if self._channel is not None:
            self._channel.close()

    def join(self) -> None:
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stopped:
            ready = self._wait_for_work()
            if not ready:
                continue
            try:
                self._fetch(ready)
                if not self._reachable:
                    self._reachable = True
                    self._on_reached()
            except (ChannelError, ProtocolError) as error:
                if not self._given_up:
                    self._on_unreachable(error)
            except Exception:
                self._session.reset()
                _log.exception("fetcher_failed", fetcher=self._name)
                self._pause(self._settings.backoff_ms)

    def _wait_for_work(self) -> list[Followed]:
        """The partitions to fetch now; waits when there are none."""
        with self._changed:
            now_ms = self._clock.monotonic_ms()
            ready = [item for item in self._followed.values() if item.not_before_ms <= now_ms]
            if not ready and not self._stopped:
                waits = [item.not_before_ms - now_ms for item in self._followed.values()]
                self._changed.wait(min(waits) / 1000 if waits else None)
            if self._begin_anew:
                self._begin_anew = False
                self._session.reset()
            self._asking = bool(ready)
            self._given_up = False
            return ready

    def _on_unreachable(self, error: Exception) -> None:
        self._session.reset()
        if isinstance(error, RefusedError):
            self._on_refused()
        first, self._reachable = self._reachable, False
        if first and not self._stopped:  # once, not at every try
            _log.warning("leader_unreachable", fetcher=self._name, reason=str(error))
            return  # whether it is gone for good, the next try tells
        self._pause(min(self._settings.backoff_ms, 250))

    def _pause(self, delay_ms: int) -> None:
        with self._changed:
            if not self._stopped:
                self._changed.wait(delay_ms / 1000)

    def _channel_now(self) -> BrokerChannel:
        address = self._address()
        if address is None:
            raise ChannelError("the leader's address is not known yet")
        if self._channel is None or address != self._connected_to:
            if self._channel is not None:
                self._channel.close()
            self._session = FollowerSession()
            self._channel = self._make_channel(address, self._name)
            self._connected_to = address
        return self._channel

    def _fetch(self, ready: list[Followed]) -> None:
        channel = self._channel_now()
        channel.connect()
        if self._given_up:  # meanwhile partitions were added
            return
        asked = self._ask(ready)
        body = self._request(asked)
        self._receive(asked, channel.request_raw(ApiKey.FETCH, FETCH_VERSION, (body,)))

    @staticmethod
    def _ask(ready: list[Followed]) -> Asked:
        return {
            (item.topic_id, item.partition.topic_partition.partition): (
                item,
                item.partition.log.log_end_offset,
            )
            for item in ready
        }

    def _receive(self, asked: Asked, body: memoryview) -> None:
        """Takes an answer, but for what is followed anew since, or whose log has moved."""
        response = parse_fetch_response(body)
        if not self._session.answered(response.error, response.session_id):
            return
        if response.error:
            raise ChannelError(f"leader answered the fetch with {Errors(response.error).name}")
        for received in response.partitions:
            key = (received.topic_id, received.index)
            followed, offset = asked.get(key, (None, -1))
            if (
                followed is not None
                and self._followed.get(key) is followed
                and followed.partition.log.log_end_offset == offset
            ):
                self._take(followed, received)
            else:
                # The leader believes that this was heard: from a full request it begins anew.
                self._session.reset()

    def _request(self, asked: Asked) -> bytes:
        wanted = {}
        for key, (item, offset) in asked.items():
            log = item.partition.log
            wanted[key] = WantedPartition(
                key[1], item.leader_epoch, offset, log.leader_epochs.latest_epoch, log.log_start_offset
            )
        settings = self._settings
        fetch = self._session.next(wanted)
        return encode_follower_fetch(
            self._broker_id,
            self._broker_epoch(),
            fetch.topics,
            max_wait_ms=settings.wait_max_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.response_max_bytes,
            partition_max_bytes=settings.max_bytes,
            session_id=fetch.session_id,
            session_epoch=fetch.epoch,
            forgotten=fetch.forgotten,
        )

    def _take(self, followed: Followed, received: ReceivedPartition) -> None:
        topic_partition = followed.partition.topic_partition
        try:
            if received.error == Errors.OFFSET_OUT_OF_RANGE:
                self._reset_offset(followed)
            elif received.error:
                self._delay(followed, Errors(received.error))
            elif received.diverging is not None:
                self._truncate(followed, *received.diverging)
            else:
                followed.partition.append_as_follower(
                    received.records,
                    followed.leader_epoch,
                    received.high_watermark,
                    received.log_start_offset,
                )
                self._on_appended(topic_partition)
        except KafkaError as error:
            _log.error(
                "replica_append_failed",
                partition=str(topic_partition),
                error=error.error_code.name,
                reason=error.message,
                action="the partition is fetched again after replica.fetch.backoff.ms",
            )
            self._delay(followed, error.error_code)

    def _delay(self, followed: Followed, error: Errors) -> None:
        self._session.reset()
        delay_ms = _SOON_MS if error in _SOON else self._settings.backoff_ms
        key = (followed.topic_id, followed.partition.topic_partition.partition)
        with self._changed:
            if self._followed.get(key) is followed:
                until_ms = self._clock.monotonic_ms() + min(delay_ms, self._settings.backoff_ms)
                self._followed[key] = replace(followed, not_before_ms=until_ms)

    def _truncate(self, followed: Followed, leader_epoch: int, leader_end_offset: int) -> None:
        partition = followed.partition
        with partition.lock:
            if partition.is_leader or partition.leader_epoch != followed.leader_epoch:
                return
            log = partition.log
            own_epoch, own_epoch_end = log.end_offset_for_epoch(leader_epoch)
            before = log.log_end_offset
            offset = truncation_offset(leader_epoch, leader_end_offset, own_epoch, own_epoch_end, before)
            _log.info(
                "follower_truncates",
                partition=str(partition.topic_partition),
                before=before,
                after=offset,
                high_watermark=log.high_watermark,
                leader_epoch=leader_epoch,
            )
            log.truncate_to(offset)

    def _reset_offset(self, followed: Followed) -> None:
        """The leader does not have the offset: its log ends before it, or begins after it."""
        leader_end = self._leader_offset(followed, LATEST)
        leader_start = self._leader_offset(followed, EARLIEST)
        partition = followed.partition
        with partition.lock:
            if partition.is_leader or partition.leader_epoch != followed.leader_epoch:
                return
            log = partition.log
            before = log.log_end_offset
            if leader_end < before:
                log.truncate_to(leader_end)
            elif leader_start > before:
                log.truncate_fully_and_start_at(leader_start)
            _log.warning(
                "follower_offset_reset",
                partition=str(partition.topic_partition),
                before=before,
                after=log.log_end_offset,
                leader_log_start=leader_start,
                leader_log_end=leader_end,
            )

    def _leader_offset(self, followed: Followed, timestamp: int) -> int:
        topic, index = followed.partition.topic_partition
        wanted = {
            "partition_index": index,
            "current_leader_epoch": followed.leader_epoch,
            "timestamp": timestamp,
        }
        response = self._channel_now().request(
            ApiKey.LIST_OFFSETS,
            LIST_OFFSETS_VERSION,
            {
                "replica_id": self._broker_id,
                "isolation_level": 0,
                "topics": [{"name": topic, "partitions": [wanted]}],
            },
        )
        answer = response.topics[0].partitions[0]
        if answer.error_code:
            raise KafkaError(Errors(int(answer.error_code)), "the leader's offsets cannot be had")
        return int(answer.offset)
