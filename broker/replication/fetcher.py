"""A follower's fetcher: one thread that fetches the followed partitions from one leader;
Kafka's ReplicaFetcherThread.

The thread connects and handles errors. While there are none, a Processor's loop serves the conversation as a
guest. `fetcher_manager` assigns partitions to fetchers, `fetcher_states` decides what comes next, and
`follower_append` handles the answers.

A fetch is long-polled, so a new record is sent at once; its bytes go from the receive buffer to the file. If
partitions are added while a fetch waits, that fetch is interrupted and sent again. Otherwise their new leader
would not hear from this follower for replica.fetch.wait.max.ms, and every acks=all producer would wait too.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Sequence
from functools import partial

import structlog

from broker.config.log_config import LONG_MAX
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors, ProtocolError
from broker.protocol.fetch_messages import ReceivedFetch, encode_follower_fetch, parse_fetch_response
from broker.replication.broker_channel import BrokerChannel, ChannelError, RefusedError
from broker.replication.cluster_view import BrokerAddress
from broker.replication.fetch_guest import FetchGuest
from broker.replication.fetcher_parts import FetcherParts
from broker.replication.fetcher_states import (
    Changes,
    FetcherEvent,
    FetcherMachine,
    FetcherState,
    Instruction,
    Plan,
    Reaction,
)
from broker.replication.follower_append import FollowerAppend, foresee_truncations, is_trouble
from broker.replication.follower_fetch import Followed, FollowerFetch
from broker.replication.follower_session import NextFetch
from broker.replication.leader_end_point import LeaderEndPoint
from broker.utils.topic_partition import TopicPartition

_log = structlog.get_logger(__name__)
FETCH_VERSION = 17
_UNREACHABLE_PAUSE_MS = 250


class ReplicaFetcher:
    """One thread and one channel to one leader; Kafka's ReplicaFetcherThread. At most one fetch is in
    flight. Its answer is used only for partitions whose role has not changed since the request. Owned by
    the ReplicaFetcherManager.
    """

    def __init__(self, parts: FetcherParts) -> None:
        self._parts = parts
        self._clock = parts.clock
        self._wait_max_ms = parts.settings.wait_max_ms
        #: Guards the machine, and wakes the thread.
        self._changed = threading.Condition()  # lock order 24
        self._machine = FetcherMachine()
        self._channel: BrokerChannel | None = None
        self._connected_to: BrokerAddress | None = None
        #: The last request. Only the thread uses it or, while the thread waits, the loop.
        self._fetch = FollowerFetch()
        self._append = FollowerAppend(
            parts, LeaderEndPoint(parts.broker_id, self._channel_now), self._put_off
        )
        #: An answer that the loop leaves to the thread.
        self._untaken: ReceivedFetch | None = None
        #: When the loop next checks all partitions: retention may have moved a log's start.
        self._next_look_ms = 0
        self._thread = threading.Thread(target=self._run, name=parts.name, daemon=True)

    def __len__(self) -> int:
        return len(self._machine)

    def start(self) -> None:
        self._thread.start()

    def followed(self) -> list[Followed]:
        """The partitions that it fetches."""
        with self._changed:
            return list(self._machine.followed.values())

    def add(self, followed: Iterable[Followed]) -> None:
        with self._changed:
            self._obey(self._machine.add(followed))
            self._changed.notify()

    def remove(self, topic_partitions: Collection[TopicPartition]) -> None:
        with self._changed:
            self._machine.remove(topic_partitions)

    def stop(self) -> None:
        self._on(FetcherEvent.STOPPED)
        if self._channel is not None:
            self._channel.close()

    def join(self) -> None:
        if self._thread.ident is not None:
            self._thread.join()

    def _on(self, event: FetcherEvent) -> FetcherState:
        with self._changed:
            self._obey(self._machine.on(event))
            self._changed.notify()
            return self._machine.state

    def _obey(self, instruction: Instruction) -> None:
        if self._channel is None:
            return
        if instruction is Instruction.INTERRUPT:
            self._channel.interrupt()
        elif instruction is Instruction.RECONNECT:
            self._channel.disconnect()

    # -- the thread

    def _run(self) -> None:
        while not self._machine.is_stopped:
            plan = self._wait_for_work()
            if plan.is_anew:
                self._fetch.reset()
            if not plan.ready:
                continue
            try:
                self._fetch_once(plan)
                if self._machine.reached():
                    self._parts.on_reached()
                if self._may_be_guest(plan.ready):
                    self._fetch_as_guest(plan.ready)
            except (ChannelError, ProtocolError) as error:
                self._on_unreachable(error)
            except Exception:
                self._fetch.reset()
                _log.exception("fetcher_failed", fetcher=self._parts.name)
                self._pause(self._parts.settings.backoff_ms)
            self._on(FetcherEvent.ENDED)

    def _wait_for_work(self) -> Plan:
        with self._changed:
            plan = self._machine.plan(self._clock.monotonic_ms())
            if not plan.ready and not self._machine.is_stopped:
                self._changed.wait(None if plan.delay_ms is None else plan.delay_ms / 1000)
            return plan

    def _on_unreachable(self, error: Exception) -> None:
        reaction = self._machine.unreachable()
        if reaction is Reaction.NOTHING:
            return
        self._fetch.reset()
        if isinstance(error, RefusedError):
            self._parts.on_refused()
        if reaction is Reaction.TELL:
            _log.warning("leader_unreachable", fetcher=self._parts.name, reason=str(error))
        else:
            self._pause(min(self._parts.settings.backoff_ms, _UNREACHABLE_PAUSE_MS))

    def _pause(self, delay_ms: int) -> None:
        with self._changed:
            if not self._machine.is_stopped:
                self._changed.wait(delay_ms / 1000)

    def _channel_now(self) -> BrokerChannel:
        address = self._parts.address()
        if address is None:
            raise ChannelError("the leader's address is not known yet")
        if self._channel is None or address != self._connected_to:
            if self._channel is not None:
                self._channel.close()
            self._fetch = FollowerFetch()
            self._channel = self._parts.make_channel(address, self._parts.name)
            self._connected_to = address
        return self._channel

    def _fetch_once(self, plan: Plan) -> None:
        channel = self._channel_now()
        channel.connect()
        if self._on(FetcherEvent.CONNECTED) is not FetcherState.ASKING:  # partitions were added meanwhile
            return
        ready = [item for item in plan.ready if self._append.is_synced(item)]
        if not ready:
            return
        body = self._encoded(self._fetch.ask(ready), self._wait_ms(plan))
        answer = channel.request_raw(ApiKey.FETCH, FETCH_VERSION, (body,))
        with channel.judging():
            response = parse_fetch_response(answer)
        self._accept(response)

    def _wait_ms(self, plan: Plan) -> int:
        """The wait ends when a delayed partition is due, because a topic's first acks=all may wait for it."""
        return self._wait_max_ms if plan.delay_ms is None else min(self._wait_max_ms, plan.delay_ms)

    # -- on a Processor's loop

    def _may_be_guest(self, ready: Sequence[Followed]) -> bool:
        """False if an append waits for the disk, if the leader's address changed, or if a login is due."""
        return (
            self._machine.goes_well(len(ready))
            and not (self._channel is not None and self._channel.is_login_due)
            and self._parts.address() == self._connected_to
            and all(item.partition.log.config.flush_messages == LONG_MAX for item in ready)
        )

    def _fetch_as_guest(self, ready: Sequence[Followed]) -> None:
        """Lets the loop fetch until this thread is needed; see :meth:`_go_on`."""
        channel = self._channel_now()
        with channel.lent() as connection:
            guest = FetchGuest(connection, channel, partial(self._go_on, channel))
            if self._on(FetcherEvent.INVITED) is not FetcherState.GUEST or not self._parts.invite(guest):
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
        """Handles an answer and returns the next request. None if handling may need the leader or the disk,
        or if there are new partitions to follow.
        """
        response = parse_fetch_response(channel.body_of(ApiKey.FETCH, FETCH_VERSION, frame))
        if self._machine.state is not FetcherState.GUEST or is_trouble(response):
            self._untaken = response
            return None
        self._accept(response)
        fetch = self._next(response)
        return None if fetch is None else self._framed(channel, fetch)

    def _next(self, response: ReceivedFetch) -> NextFetch | None:
        """The next request after an answer; None if the thread is needed."""
        is_same = self._machine.changes is Changes.NOTHING and self._fetch.is_open
        if is_same and self._clock.monotonic_ms() < self._next_look_ms:
            return self._fetch.ask_on(response)
        with self._changed:
            followed = self._machine.look()
        return self._look_at(followed) if followed is not None and self._may_be_guest(followed) else None

    def _look_at(self, followed: Iterable[Followed]) -> NextFetch:
        self._next_look_ms = self._clock.monotonic_ms() + self._wait_max_ms
        return self._fetch.ask(followed)

    def _framed(self, channel: BrokerChannel, fetch: NextFetch) -> bytes:
        body = self._encoded(fetch, self._wait_max_ms)
        return channel.frame_request(ApiKey.FETCH, FETCH_VERSION, (body,))

    # -- requests and answers

    def _encoded(self, fetch: NextFetch, wait_ms: int) -> bytes:
        settings = self._parts.settings
        return encode_follower_fetch(
            self._parts.broker_id,
            self._parts.broker_epoch(),
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
        """Applies an answer, except the parts that no longer fit."""
        if not self._fetch.answered(response):
            return
        if response.error:
            raise ChannelError(f"leader answered the fetch with {Errors(response.error).name}")
        followed = self._machine.followed
        foresee_truncations(response, followed)
        for received in response.partitions:
            item = self._fetch.meant(received, followed)
            if item is not None:
                self._append.take(item, received)

    def _put_off(self, followed: Followed, delay_ms: int) -> None:
        self._fetch.reset()
        with self._changed:
            self._machine.put_off(followed, self._clock.monotonic_ms() + delay_ms)
