"""Two brokers that replicate to each other, and who is their controller: partitions change their leader while
they are written to, followers fetch, truncate, fall behind and come back.

All of it is the broker's own, from LeaderAndIsr down; the wire between the two and the controller are played.
What must hold: nothing that was acknowledged by acks=all, or read as committed, is ever lost, whoever leads;
and no high watermark passes what a member of the ISR has.
"""

from __future__ import annotations

import queue
import random
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from broker.log.log_manager import LogManager
from broker.protocol.alter_partition_messages import IsrChange
from broker.protocol.control_messages import PartitionRole
from broker.protocol.errors import Errors
from broker.replication.cluster_view import BrokerAddress
from broker.replication.fetcher import ReplicaFetcher
from broker.replication.fetcher_manager import ReplicaFetcherManager
from broker.replication.fetcher_parts import FetcherParts, FetcherSettings
from broker.replication.leadership import Leadership, LeadershipListener
from broker.replication.replica_manager import ReplicaManager
from broker.utils.clock import SYSTEM_CLOCK
from broker.utils.timer import Timer
from broker.utils.topic_partition import TopicPartition
from rig.wait import last_for
from tests.stress.history import History
from tests.stress.pair_wire import PairWire
from tests.stress.watch import Watch

BROKERS = (1, 2)
MAX_LAG_MS = 300
CONTROLLER_EPOCH = 1
_SETTINGS = FetcherSettings(wait_max_ms=100, max_bytes=65_536, response_max_bytes=262_144, backoff_ms=50)
_NO_LISTENER = LeadershipListener(lambda *_: None, lambda *_: None)


class Both:
    """What each of the two knows of the cluster."""

    def alive(self, _broker_id: int) -> bool:
        return True

    def broker_address(self, broker_id: int) -> BrokerAddress:
        return BrokerAddress(broker_id, "", 0)

    def controller_address(self) -> None:
        return None

    def topic_name(self, _topic_id: uuid.UUID) -> None:
        return None


class Replicating(NamedTuple):
    """One of the two."""

    broker_id: int
    logs: LogManager
    replicas: ReplicaManager
    leadership: Leadership
    fetchers: ReplicaFetcherManager


@dataclass(slots=True, eq=False)
class Shared:
    """A partition of both, as the controller knows it. ``history`` has what may never be lost."""

    name: TopicPartition
    topic_id: uuid.UUID
    history: History = field(default_factory=History)
    leader: int = BROKERS[0]
    isr: tuple[int, ...] = BROKERS
    leader_epoch: int = 0
    partition_epoch: int = 0

    def state(self) -> PartitionRole:
        return PartitionRole(
            self.name,
            self.topic_id,
            CONTROLLER_EPOCH,
            self.leader,
            self.leader_epoch,
            self.isr,
            self.partition_epoch,
            BROKERS,
        )


class Pair:
    """Owner of the two brokers' managers but for their logs."""

    def __init__(
        self, logs: dict[int, LogManager], topics: list[str], timer: Timer, watch: Watch, seed: int
    ) -> None:
        self.watch = watch
        self.places = [Shared(TopicPartition(topic, 0), uuid.uuid4()) for topic in topics]
        self.by_id = {place.topic_id: place.name for place in self.places}
        self.changes: queue.SimpleQueue[IsrChange] = queue.SimpleQueue()
        self.elections = self.isr_changes = 0
        self._seed = seed
        self.brokers = {broker_id: self._broker(broker_id, logs[broker_id], timer) for broker_id in BROKERS}

    def _broker(self, broker_id: int, logs: LogManager, timer: Timer) -> Replicating:
        replicas = ReplicaManager(
            broker_id, logs, Both(), timer, SYSTEM_CLOCK, max_lag_ms=MAX_LAG_MS, submit_isr_change=self.changes.put
        )  # fmt: skip
        fetchers = ReplicaFetcherManager(1, partial(self._fetcher, replicas))
        leadership = Leadership(replicas, logs, fetchers, _NO_LISTENER, self._present_id)
        return Replicating(broker_id, logs, replicas, leadership, fetchers)

    def _fetcher(self, replicas: ReplicaManager, leader: int, number: int) -> ReplicaFetcher:
        name = f"fetcher-{replicas.broker_id}-{number}"
        chance = random.Random(f"{self._seed} {name}")
        return ReplicaFetcher(
            FetcherParts(
                name=name,
                broker_id=replicas.broker_id,
                broker_epoch=lambda: 1,
                address=lambda: BrokerAddress(leader, "", 0),
                make_channel=lambda address, _name: PairWire(
                    self.brokers[address.broker_id].replicas,
                    self.by_id,
                    self.watch,
                    chance,
                    2 * MAX_LAG_MS / 1000,
                ),
                settings=_SETTINGS,
                clock=SYSTEM_CLOCK,
                on_appended=replicas.wake,
                on_reached=lambda: None,
                on_refused=lambda: None,
            )
        )

    def _present_id(self, topic: str) -> uuid.UUID | None:
        return next((place.topic_id for place in self.places if place.name.topic == topic), None)

    def start(self) -> None:
        for place in self.places:
            self.order(place, BROKERS)

    def order(self, place: Shared, brokers: tuple[int, ...]) -> None:
        """LeaderAndIsr, to one after the other."""
        for broker_id in brokers:
            result = self.brokers[broker_id].leadership.apply(CONTROLLER_EPOCH, [place.state()])
            if result != {place.name: Errors.NONE}:
                self.watch.problem(f"{broker_id} answers {result} to {place.state()}")

    def shutdown(self) -> None:
        for broker in self.brokers.values():
            broker.fetchers.shutdown()
        for broker in self.brokers.values():
            broker.replicas.shutdown()


def controller(pair: Pair, chance: random.Random) -> Callable[[], None]:
    """One thread: ISR changes are decided in the order in which they come, and leaders are elected in between,
    until the others stop.
    """

    def step() -> None:
        try:
            change = pair.changes.get(timeout=0.02)
        except queue.Empty:
            pass
        else:
            last_for(chance.random() ** 3 * 0.05)
            _decide(pair, change, chance)
        if chance.random() < 0.1 and not pair.watch.stop.is_set():
            _elect(pair, chance.choice(pair.places), chance)

    return step


def _decide(pair: Pair, change: IsrChange, chance: random.Random) -> None:
    place = next(place for place in pair.places if place.name == change.topic_partition)
    leader = pair.brokers[place.leader].replicas
    if change.leader_epoch != place.leader_epoch:
        error = Errors.FENCED_LEADER_EPOCH
    elif change.partition_epoch != place.partition_epoch:
        error = Errors.INVALID_UPDATE_VERSION
    elif chance.random() < 0.05:
        error = Errors.INELIGIBLE_REPLICA
    else:
        place.isr = change.isr
        pair.isr_changes += 1
        place.partition_epoch += 1
        leader.on_isr_accepted(change, place.isr, place.leader_epoch, place.partition_epoch)
        return
    for broker in pair.brokers.values():
        broker.replicas.on_isr_refused(change, error)


def _elect(pair: Pair, place: Shared, chance: random.Random) -> None:
    """Anybody of the ISR, who led before among them."""
    place.history.begin_cut(sys.maxsize)  # what is noted stays, all of it; marks may go back meanwhile
    place.leader = chance.choice(place.isr)
    place.leader_epoch += 1
    place.partition_epoch += 1
    order = BROKERS if chance.random() < 0.5 else BROKERS[::-1]
    for broker_id in order:
        pair.order(place, (broker_id,))
        last_for(chance.random() ** 3 * 0.1)
    pair.elections += 1
    place.history.settled()
