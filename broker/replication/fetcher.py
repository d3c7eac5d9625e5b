"""A follower: one thread that fetches what this broker follows at one leader, appends it, and truncates where the logs
part. Kafka's ReplicaFetcherThread; which partition has which fetcher is `fetcher_manager`'s part.

The thread connects, and sees to what goes wrong. While all goes well the conversation is a guest of a Processor's loop.

A fetch is long-polled, so that a record travels at once; record bytes go from the receive buffer to the file. A fetch
that waits when partitions are added is given up and sent anew: else their new leader would wait for
replica.fetch.wait.max.ms until it hears of this follower, and every acks=all producer with it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import structlog

from broker.config.log_config import LONG_MAX
from broker.log.log import Log
from broker.log.log_files import LogFiles, lower_recovery_points
from broker.network.guests import Guest
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors, KafkaError, ProtocolError
from broker.protocol.fetch_messages import (
    ReceivedFetch,
    ReceivedPartition,
    encode_follower_fetch,
    parse_fetch_response,
)
from broker.replication.broker_channel import BrokerChannel, ChannelError, RefusedError
from broker.replication.cluster_view import BrokerAddress
from broker.replication.fetch_guest import FetchGuest
from broker.replication.follower_fetch import Followed, FollowerFetch
from broker.replication.follower_session import Key, NextFetch
from broker.replication.replication_quota import ReplicationQuota
from broker.replication.truncation import truncation_offset
from broker.utils.clock import Clock
from broker.utils.topic_partition import TopicPartition

_log = structlog.get_logger(__name__)
FETCH_VERSION = 17
LIST_OFFSETS_VERSION = 9
OFFSET_FOR_LEADER_EPOCH_VERSION = 4
LATEST, EARLIEST = -1, -2
# The leader or this broker has yet to hear of a change: ask again soon, not after the full back-off.
_SOON = frozenset({Errors.UNKNOWN_LEADER_EPOCH, Errors.NOT_LEADER_OR_FOLLOWER, Errors.UNKNOWN_TOPIC_ID})
_SOON_MS = 50
# The leader is another, or is about to be: the next LeaderAndIsr says which, and nothing is wrong.
_CHANGING = _SOON | {Errors.FENCED_LEADER_EPOCH}


@dataclass(frozen=True, slots=True)
class FetcherSettings:
    """``replica.fetch.*``: milliseconds and bytes."""

    wait_max_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 1024 * 1024
    response_max_bytes: int = 10 * 1024 * 1024
    backoff_ms: int = 1000


# Has a Processor serve a guest; False when none can.
Invite = Callable[[Guest], bool]


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
        invite: Invite = lambda _guest: False,
        quota: ReplicationQuota | None = None,
    ) -> None:
        self._quota = quota or ReplicationQuota(clock)
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
        self._invite = invite
        self._followed: dict[Key, Followed] = {}
        self._changed = threading.Condition()  # lock order 24
        self._stopped = False
        self._channel: BrokerChannel | None = None
        self._connected_to: BrokerAddress | None = None
        self._fetch = FollowerFetch()
        self._begin_anew = False
        self._asking = False
        self._wait_ms = settings.wait_max_ms
        self._given_up = False
        self._reachable = True
        self._untaken: ReceivedFetch | None = None
        # Why a partition's batches were not taken, told once: it is tried again each second.
        self._refused: dict[TopicPartition, str] = {}
        self._delayed = self._removed = False
        self._next_look_ms = 0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __len__(self) -> int:
        return len(self._followed)

    def start(self) -> None:
        self._thread.start()

    def add(self, followed: Iterable[Followed]) -> None:
        with self._changed:
            for item in followed:
                self._followed[item.key] = item
            # What the leader told of these before was told to another role.
            self._begin_anew = True
            if self._asking:
                self._given_up = True
                if self._channel is not None:
                    self._channel.interrupt()
            self._changed.notify()

    def remove(self, topic_partitions: frozenset[TopicPartition]) -> None:
        with self._changed:
            for key, item in list(self._followed.items()):
                if item.partition.topic_partition in topic_partitions:
                    del self._followed[key]
                    self._removed = True

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
                self._fetch_once(ready)
                if not self._reachable:
                    self._reachable = True
                    self._on_reached()
                if self._may_be_guest(ready):
                    self._fetch_as_guest(ready)
            except (ChannelError, ProtocolError) as error:
                if not self._given_up:
                    self._on_unreachable(error)
            except Exception:
                self._fetch.reset()
                _log.exception("fetcher_failed", fetcher=self._name)
                self._pause(self._settings.backoff_ms)

    def _wait_for_work(self) -> list[Followed]:
        """The partitions to fetch now; waits when there are none."""
        with self._changed:
            now_ms = self._clock.monotonic_ms()
            ready = [item for item in self._followed.values() if item.not_before_ms <= now_ms]
            delays_ms = [
                item.not_before_ms - now_ms for item in self._followed.values() if item.not_before_ms > now_ms
            ]
            if not ready and not self._stopped:
                self._changed.wait(min(delays_ms) / 1000 if delays_ms else None)
            # What waits out an error is not held up by the others' fetch: a topic's first acks=all waits for it.
            self._wait_ms = min([self._settings.wait_max_ms, *delays_ms])
            if self._begin_anew:
                self._begin_anew = False
                self._fetch.reset()
            self._asking = bool(ready)
            self._given_up = False
            return ready

    def _on_unreachable(self, error: Exception) -> None:
        self._fetch.reset()
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
            self._fetch = FollowerFetch()
            self._channel = self._make_channel(address, self._name)
            self._connected_to = address
        return self._channel

    def _fetch_once(self, ready: Sequence[Followed]) -> None:
        self._delayed = False
        channel = self._channel_now()
        channel.connect()
        if self._given_up:  # meanwhile partitions were added
            return
        body = self._encoded(self._fetch.ask(ready), self._wait_ms)
        answer = channel.request_raw(ApiKey.FETCH, FETCH_VERSION, (body,))
        with channel.judging():
            response = parse_fetch_response(answer)
        self._accept(response)

    # -- on a Processor's loop, while all goes well ----------------------------------------------------------------

    def _may_be_guest(self, ready: Sequence[Followed]) -> bool:
        """Not while a partition waits out an error, nor where an append waits for the disk, nor with what is followed
        anew by now.
        """
        return (
            not self._stopped
            and not self._begin_anew
            and not self._delayed
            and self._address() == self._connected_to
            and len(ready) == len(self._followed)
            and all(item.partition.log.config.flush_messages == LONG_MAX for item in ready)
        )

    def _fetch_as_guest(self, ready: Sequence[Followed]) -> None:
        """Fetches until there is something for this thread to do: see :meth:`_go_on`."""
        channel = self._channel_now()
        with channel.lent() as connection:
            guest = FetchGuest(connection, channel, partial(self._go_on, channel))
            if not self._invite(guest):
                return
            try:
                guest.send(self._framed(channel, self._look_at(ready)))
            except BaseException:
                guest.hang_up()
                raise
            finally:
                guest.wait(channel.request_timeout_s)
        response, self._untaken = self._untaken, None
        if response is not None:
            self._accept(response)

    def _go_on(self, channel: BrokerChannel, frame: memoryview) -> bytes | None:
        """Takes an answer and gives the next request. None when taking it may need the leader or the disk, or when
        there is something new to follow.
        """
        response = parse_fetch_response(channel.body_of(ApiKey.FETCH, FETCH_VERSION, frame))
        if self._stopped or self._begin_anew or _is_trouble(response):
            self._untaken = response
            return None
        self._accept(response)
        fetch = None if self._delayed else self._next(response)
        return None if fetch is None else self._framed(channel, fetch)

    def _next(self, response: ReceivedFetch) -> NextFetch | None:
        if self._fetch.is_open and not self._removed and self._clock.monotonic_ms() < self._next_look_ms:
            return self._fetch.ask_on(response)
        with self._changed:
            followed = list(self._followed.values())
        return self._look_at(followed) if self._may_be_guest(followed) else None

    def _look_at(self, followed: Iterable[Followed]) -> NextFetch:
        """Once in a while: retention may have moved a log's start."""
        self._removed = False
        self._next_look_ms = self._clock.monotonic_ms() + self._settings.wait_max_ms
        return self._fetch.ask(followed)

    def _framed(self, channel: BrokerChannel, fetch: NextFetch) -> bytes:
        body = self._encoded(fetch, self._settings.wait_max_ms)
        return channel.frame_request(ApiKey.FETCH, FETCH_VERSION, (body,))

    # -- requests and answers --------------------------------------------------------------------------------------

    def _encoded(self, fetch: NextFetch, wait_ms: int) -> bytes:
        settings = self._settings
        return encode_follower_fetch(
            self._broker_id,
            self._broker_epoch(),
            fetch.topics,
            max_wait_ms=wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.response_max_bytes,
            partition_max_bytes=settings.max_bytes,
            session_id=fetch.session_id,
            session_epoch=fetch.epoch,
            forgotten=fetch.forgotten,
        )

    def _accept(self, response: ReceivedFetch) -> None:
        """Takes an answer, but for what no longer fits."""
        if not self._fetch.answered(response):
            return
        if response.error:
            raise ChannelError(f"leader answered the fetch with {Errors(response.error).name}")
        self._foresee_truncations(response)
        for received in response.partitions:
            followed = self._fetch.meant(received, self._followed)
            if followed is not None:
                self._take(followed, received)

    def _take(self, followed: Followed, received: ReceivedPartition) -> None:
        topic_partition = followed.partition.topic_partition
        try:
            if received.error == Errors.OFFSET_OUT_OF_RANGE:
                self._reset_offset(followed)
            elif received.error == Errors.CORRUPT_MESSAGE:
                at = followed.partition.log.log_end_offset
                raise KafkaError(
                    Errors.CORRUPT_MESSAGE,
                    f"the leader's log is damaged at offset {at}: it tells where in its own log",
                )
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
                if self._refused:
                    self._refused.pop(topic_partition, None)
                if self._quota.is_set:
                    self._heed_quota(followed, received)
        except KafkaError as error:
            is_told = error.error_code in _CHANGING or self._refused.get(topic_partition) == error.message
            if not is_told:
                self._refused[topic_partition] = error.message
                _log.error(
                    "replica_append_failed",
                    partition=str(topic_partition),
                    error=error.error_code.name,
                    reason=error.message,
                    action="the partition is fetched again after replica.fetch.backoff.ms, the others go on",
                )
            self._delay(followed, error.error_code)

    def _heed_quota(self, followed: Followed, received: ReceivedPartition) -> None:
        """A throttled replica that is behind waits until the quota allows for more."""
        log = followed.partition.log
        listed = log.config.follower_replication_throttled_replicas
        if not self._quota.covers(listed, followed.partition.topic_partition.partition, self._broker_id):
            return
        self._quota.record(len(received.records))
        wait_ms = self._quota.wait_ms()
        if wait_ms and log.log_end_offset < received.high_watermark:
            self._put_off(followed, wait_ms)

    def _delay(self, followed: Followed, error: Errors) -> None:
        delay_ms = _SOON_MS if error in _SOON else self._settings.backoff_ms
        self._put_off(followed, min(delay_ms, self._settings.backoff_ms))

    def _put_off(self, followed: Followed, delay_ms: int) -> None:
        self._fetch.reset()
        self._delayed = True
        with self._changed:
            if self._followed.get(followed.key) is followed:
                until_ms = self._clock.monotonic_ms() + delay_ms
                self._followed[followed.key] = replace(followed, not_before_ms=until_ms)

    def _foresee_truncations(self, response: ReceivedFetch) -> None:
        """Where many logs part from the leader's, as after its change, their recovery points are lowered together."""
        offsets: dict[LogFiles, int] = {}
        for received in response.partitions:
            if received.error or received.diverging is None:
                continue
            followed = self._followed.get((received.topic_id, received.partition))
            if followed is not None and not followed.partition.is_leader:
                log = followed.partition.log
                offsets[log] = _truncation_offset(log, *received.diverging)
        if len(offsets) > 1:
            lower_recovery_points(offsets)

    def _truncate(self, followed: Followed, leader_epoch: int, leader_end_offset: int) -> None:
        followed.partition.truncate_as_follower(
            followed.leader_epoch, (leader_epoch, leader_end_offset), _truncation_offset
        )

    def _reset_offset(self, followed: Followed) -> None:
        """The leader does not have the offset: its log ends before it, or begins after it. Or it has the offset, and
        does not know the epoch of what stands here: then it never had those records, and they go.
        """
        leader_end = self._leader_offset(followed, LATEST)
        leader_start = self._leader_offset(followed, EARLIEST)
        partition = followed.partition
        epochs = partition.log.leader_epochs.entries
        in_range = leader_start <= partition.log.log_end_offset <= leader_end
        unknown = in_range and bool(epochs) and not self._leader_knows(followed, epochs[-1][0])
        changed = partition.reset_as_follower(
            followed.leader_epoch, leader_start, leader_end, epochs, last_unknown=unknown
        )
        if not changed:  # it was out of range a moment ago; to ask again at once could go on for ever
            self._delay(followed, Errors.OFFSET_OUT_OF_RANGE)

    def _leader_knows(self, followed: Followed, epoch: int) -> bool:
        topic, index = followed.partition.topic_partition
        wanted = {
            "partition": index,
            "current_leader_epoch": followed.leader_epoch,
            "leader_epoch": epoch,
        }
        response = self._channel_now().request(
            ApiKey.OFFSET_FOR_LEADER_EPOCH,
            OFFSET_FOR_LEADER_EPOCH_VERSION,
            {"replica_id": self._broker_id, "topics": [{"topic": topic, "partitions": [wanted]}]},
        )
        answer = response.topics[0].partitions[0]
        if answer.error_code:
            raise KafkaError(Errors(int(answer.error_code)), "the leader's epochs cannot be had")
        return bool(answer.end_offset >= 0)

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


def _truncation_offset(log: Log, leader_epoch: int, leader_end_offset: int) -> int:
    own_epoch, own_epoch_end = log.end_offset_for_epoch(leader_epoch)
    return truncation_offset(leader_epoch, leader_end_offset, own_epoch, own_epoch_end, log.log_end_offset)


def _is_trouble(response: ReceivedFetch) -> bool:
    return bool(response.error) or any(
        received.error or received.diverging is not None for received in response.partitions
    )
