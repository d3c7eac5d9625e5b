"""One broker of the model: the real LogManager, ReplicaManager, Leadership, fetchers and request handlers."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from broker.cluster.partition import Partition
from broker.config.endpoint import Endpoint
from broker.config.log_config import LogConfig
from broker.log.log import Log
from broker.log.log_manager import LogManager
from broker.metrics.registry import Metrics
from broker.protocol import framing
from broker.protocol.alter_partition_messages import (
    ALTER_PARTITION_VERSION,
    AlterPartitionResponse,
    IsrChange,
)
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors
from broker.protocol.fetch_messages import ReceivedFetch, parse_fetch_response
from broker.replication.alter_partition_manager import AlterPartitionManager
from broker.replication.broker_channel import ChannelError
from broker.replication.delayed_fetch import FetchEntry, FetchParams
from broker.replication.fetcher import FETCH_VERSION, ReplicaFetcher
from broker.replication.fetcher_manager import ReplicaFetcherManager
from broker.replication.fetcher_parts import FetcherParts, FetcherSettings
from broker.replication.fetcher_states import FetcherEvent
from broker.replication.leadership import Leadership, LeadershipListener
from broker.replication.replica_manager import ReplicaManager
from broker.server.apis import fetch, inter_broker, list_offsets
from broker.server.apis.context import no_room
from broker.server.broker_peers import BrokerPeers
from broker.server.fetch_sessions import FetchSessionCache
from broker.server.metadata_cache import MetadataCache
from broker.server.quotas import QuotaManagers
from broker.utils.topic_partition import TopicPartition
from broker.zookeeper.znodes import BrokerRegistration
from tests.model.wires import Outgoing, over_the_wire, request_of, stopped_timer
from tests.support.clocks import ManualClock
from tests.support.contexts import context_of
from tests.support.logs import contents

TP = TopicPartition("t", 0)
LISTENER = "PLAINTEXT"
LAG_MS = 1000
MIN_ISR = 2
HANDLERS = {
    ApiKey.LEADER_AND_ISR: inter_broker.leader_and_isr,
    ApiKey.STOP_REPLICA: inter_broker.stop_replica,
    ApiKey.UPDATE_METADATA: inter_broker.update_metadata,
}


def registration(broker_id: int, first_epoch: int | None = None) -> BrokerRegistration:
    endpoint = Endpoint(f"host-{broker_id}", 9092, LISTENER)
    return BrokerRegistration(broker_id, (endpoint,), timestamp_ms=1, first_epoch=first_epoch)


class LeaderChannel:
    """What a fetcher uses of a BrokerChannel besides fetching: ListOffsets, answered by the leader at once."""

    def __init__(self, leader: ModelBroker) -> None:
        self._leader = leader

    def request(self, api_key: int, version: int, fields: Any) -> Any:
        if not self._leader.up:
            raise ChannelError(f"broker {self._leader.broker_id} is down")
        return self._leader.serve_list_offsets(fields)

    def interrupt(self) -> None:
        """Nothing is under way: the model loses what is."""

    def disconnect(self) -> None:
        """Nothing is open."""

    def close(self) -> None:
        """Nothing is open."""


class SteppedFetcher(ReplicaFetcher):
    """A follower's fetcher without its thread: the model asks and hands over the answers."""

    leader: int
    waiting_for: FetchInFlight | None = None
    _taken: ReceivedFetch | None = None

    def start(self) -> None:
        """No thread."""

    @property
    def is_stopped(self) -> bool:
        return self._machine.is_stopped

    def ask(self, clock: ManualClock) -> bytes | None:
        """The next request, None when nothing is followed. What was asked before, is given up.

        As long as the threadless part of the real fetcher would go on by itself, it does.
        """
        answer, self._taken = self._taken, None
        followed = self._machine.followed
        if not followed or self.is_stopped:
            return None
        if self.waiting_for is not None:
            self._fetch.reset()
        elif answer is not None and self._machine.goes_well(len(followed)):
            fetch = self._next(answer)
            if fetch is not None:
                return self._encoded(fetch, self._wait_max_ms)
        clock.now_ms = max(clock.now_ms, *(item.not_before_ms for item in followed.values()))
        self._on(FetcherEvent.ENDED)
        plan = self._wait_for_work()
        if plan.is_anew:
            self._fetch.reset()
        self._on(FetcherEvent.CONNECTED)
        return self._encoded(self._look_at(plan.ready), self._wait_ms(plan))

    def receive(self, frame: bytes) -> None:
        view = memoryview(frame)
        body = view[framing.response_body_offset(ApiKey.FETCH, FETCH_VERSION, view) :]
        try:
            response = parse_fetch_response(body)
            self._accept(response)
            self._taken = response
        except ChannelError:
            self._fetch.reset()


class SteppedAlterPartition(AlterPartitionManager):
    """The AlterPartitionManager without its thread; one request in flight, as there."""

    in_flight: list[IsrChange] | None = None

    def _start(self) -> None:
        """No thread."""

    def ask(self) -> tuple[list[IsrChange], Any] | None:
        """What is to be sent now, None when nothing is or an answer is awaited."""
        if self.in_flight is not None or not self._pending:
            return None
        batch = self.in_flight = list(self._pending.values())
        self._pending.clear()
        request = over_the_wire(
            ApiKey.ALTER_PARTITION, ALTER_PARTITION_VERSION, "request", self._request(batch).fields()
        )
        return batch, request

    def receive(self, batch: list[IsrChange], fields: Any) -> None:
        """The answer; None when it was lost. An answer to a request that was given up is not seen."""
        if self.in_flight is not batch:
            return
        self.in_flight = None
        again = batch
        if fields is not None:
            message = over_the_wire(ApiKey.ALTER_PARTITION, ALTER_PARTITION_VERSION, "response", fields)
            response = AlterPartitionResponse.of(message)
            again = self._apply(batch, response) if response.error is Errors.NONE else batch
        for change in again:
            self._pending.setdefault(change.topic_partition, change)


@dataclass(frozen=True, slots=True)
class FetchInFlight:
    """A follower's request on its way to one life of a leader."""

    follower: int
    follower_life: int
    leader: int
    leader_life: int
    fetcher: SteppedFetcher
    body: bytes


class ModelBroker:
    """``life`` counts its starts. ``values`` is what its log holds, also while it is down."""

    def __init__(
        self,
        broker_id: int,
        directory: Path,
        clock: ManualClock,
        peer: Callable[[int], ModelBroker],
        present_topic_id: Callable[[str], uuid.UUID | None],
    ) -> None:
        self.broker_id = broker_id
        self._peer = peer
        self._present_topic_id = present_topic_id
        self.directory = directory
        self.clock = clock
        self.life = 0
        self.up = False
        self.epoch = -1
        self._known: tuple[Any, ...] = ()
        self._values: list[bytes] = []

    def start(self) -> None:
        """Loads the log; the controller has yet to say what to do with it."""
        self.life += 1
        self.first_epoch: int | None = None
        self.up = True
        self.stopping = False
        self.logs = LogManager(
            [str(self.directory)], LogConfig(min_insync_replicas=MIN_ISR), clock=self.clock
        )
        self.logs.startup()
        self.cache = MetadataCache(LISTENER)
        self.alter = SteppedAlterPartition(
            self.broker_id,
            self.cache,
            lambda: self.epoch,
            lambda _address, _name: None,  # type: ignore[arg-type, return-value]
            on_accepted=self._on_isr_accepted,
            on_refused=self._on_isr_refused,
        )
        self.replicas = ReplicaManager(
            self.broker_id,
            self.logs,
            self.cache,
            stopped_timer(),
            self.clock,
            max_lag_ms=LAG_MS,
            submit_isr_change=self.alter.submit,
        )
        self.fetchers: dict[int, SteppedFetcher] = {}
        manager = ReplicaFetcherManager(1, self._make_fetcher)
        listener = LeadershipListener(lambda _tp, _epoch: None, lambda _tp, _epoch: None)
        self.leadership = Leadership(self.replicas, self.logs, manager, listener, self._present_topic_id)
        parts = SimpleNamespace(
            broker_epoch=lambda: self.epoch,
            leadership=self.leadership,
            metadata_cache=self.cache,
            replica_manager=self.replicas,
            group_coordinator=SimpleNamespace(on_partitions_deleted=lambda _deleted: None),
            fetch_sessions=FetchSessionCache(
                lambda: 10, self.clock, Metrics(), self.replicas.news_board, look_at_all_ms=LAG_MS // 10
            ),
            config=SimpleNamespace(int=lambda _key: 1 << 20),
            submit=no_room,
            peers=BrokerPeers(),
            access=None,
            quotas=QuotaManagers(),
        )
        self.context = context_of(parts)

    def _on_isr_accepted(
        self, change: IsrChange, isr: tuple[int, ...], epoch: int, partition_epoch: int
    ) -> None:
        self.replicas.on_isr_accepted(change, isr, epoch, partition_epoch)

    def _on_isr_refused(self, change: IsrChange, error: Errors) -> bool:
        return self.replicas.on_isr_refused(change, error)

    def _make_fetcher(self, leader: int, number: int) -> SteppedFetcher:
        fetcher = SteppedFetcher(
            FetcherParts(
                name=f"fetcher-{number}-{leader}",
                broker_id=self.broker_id,
                broker_epoch=lambda: self.epoch,
                address=lambda: self.cache.broker_address(leader),
                make_channel=lambda address, _name: LeaderChannel(self._peer(address.broker_id)),
                settings=FetcherSettings(wait_max_ms=0, max_bytes=400),
                clock=self.clock,
                on_appended=self.replicas.wake,
                on_reached=lambda: None,
                on_refused=lambda: None,
            )
        )
        fetcher.leader = leader
        self.fetchers[leader] = fetcher
        return fetcher

    # -- what it is

    @property
    def partition(self) -> Partition | None:
        return self.replicas.partition(TP) if self.up else None

    @property
    def log(self) -> Log | None:
        return self.logs.get(TP) if self.up else None

    @property
    def leads(self) -> bool:
        partition = self.partition
        return partition is not None and partition.is_leader

    @property
    def fetcher(self) -> SteppedFetcher | None:
        """The one that fetches now."""
        return (
            next((f for f in self.fetchers.values() if len(f) and not f.is_stopped), None)
            if self.up
            else None
        )

    @property
    def values(self) -> list[bytes]:
        """The records' values by offset."""
        log = self.log
        if self.up:
            known = () if log is None else (log, log.log_end_offset, log.generation, log.dir)
            if known != self._known:
                self._known = known
                self._values = [] if log is None else [value or b"" for _, value in contents(log)]
        return self._values

    # -- what happens to it

    def kill(self) -> None:
        """SIGKILL: what was written stays."""
        _ = self.values
        self.up = False
        for log_dir in self.logs.dirs:
            log_dir.unlock()

    def lose_power(self, kept: int) -> None:
        """Like a kill, but of what was not synced only ``kept`` records stay."""
        log = self.log
        self.kill()
        if log is None:
            return
        (segment,) = log.segments
        keep = log.recovery_point + kept
        end = next((p for p, header in segment.headers_from(0) if header.base_offset >= keep), segment.size)
        os.truncate(segment.path(".log"), end)
        self._values = self._values[:keep]

    def stop_cleanly(self) -> None:
        """SIGTERM, after controlled shutdown."""
        _ = self.values
        self.replicas.checkpoint_high_watermarks()
        self.up = False
        self.logs.shutdown(self.epoch)

    def close(self) -> None:
        if self.up:
            self.kill()

    # -- requests

    def obey(self, outgoing: Outgoing) -> Any:
        """A controller's request; the decoded response."""
        message = outgoing.message()
        request = request_of(outgoing.api, outgoing.version)
        fields = HANDLERS[outgoing.api](request, message, self.context)
        return over_the_wire(outgoing.api, outgoing.version, "response", fields)

    def serve_fetch(self, body: bytes) -> bytes:
        """A follower's fetch; the response's frame behind its length."""
        request = request_of(ApiKey.FETCH, FETCH_VERSION, body)
        fetch.handle(request, self.context)
        assert request.payload is not None
        frame = b"".join(
            part if isinstance(part, bytes) else os.pread(part.file.fileno(), part.size, part.position)
            for part in request.payload
        )
        return frame[4:]

    def serve_list_offsets(self, fields: Any) -> Any:
        request = request_of(ApiKey.LIST_OFFSETS, 9)
        message = over_the_wire(ApiKey.LIST_OFFSETS, 9, "request", fields)
        answer = list_offsets.handle(request, message, self.context)
        return over_the_wire(ApiKey.LIST_OFFSETS, 9, "response", answer)

    def read_as_consumer(self, offset: int, leader_epoch: int = -1) -> memoryview | None:
        """Committed records from ``offset`` on; None when refused."""
        entry = FetchEntry(TP, uuid.UUID(int=0), offset, 1 << 20, leader_epoch)
        fetched, _, _ = self.replicas.reader.read(FetchParams(-1, -1, 0, 1, 1 << 20), [entry])
        result = fetched[0][1]
        if result.error is not Errors.NONE:
            return None
        region = result.records
        return memoryview(
            b"" if region is None else os.pread(region.file.fileno(), region.size, region.position)
        )
