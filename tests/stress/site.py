"""The broker's part under stress: one LogManager and one ReplicaManager over it, with partitions of every kind."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from broker.cluster.partition import Partition
from broker.config.log_config import LogConfig
from broker.log.checkpoints import read_checkpoint
from broker.log.leader_epochs import FILE_NAME
from broker.log.log import Log
from broker.log.log_manager import LogManager, LogManagerSettings
from broker.protocol.control_messages import PartitionRole
from broker.protocol.errors import Errors, KafkaError
from broker.replication.fetcher import ReplicaFetcher
from broker.replication.fetcher_manager import ReplicaFetcherManager
from broker.replication.leadership import Leadership, LeadershipListener
from broker.replication.log_dir_failures import LogDirFailureHandler
from broker.replication.replica_manager import ReplicaManager
from broker.utils.clock import SYSTEM_CLOCK
from broker.utils.scheduler import KafkaScheduler
from broker.utils.timer import Timer
from broker.utils.topic_partition import TopicPartition
from tests.stress.history import History, Mark
from tests.stress.pair import BROKERS, Pair
from tests.stress.watch import Watch
from tests.support.logs import Alone

SELF, OTHER = 1, 2
EPOCHS_OF_A_LIFE = 100_000  # and 20,000 lives: an epoch has 32 bits
NEVER = 2**63 - 1
SEGMENT_BYTES = 16_384
# leads: takes records all the time; follows: is truncated now and then; turns: is one, then the other;
# passes: is deleted and made anew under its name; dooms, falls: leads, follows, in a directory that fails; pairs:
# two brokers' (see pair.py). With "compacted" in its name it is compacted, else the oldest of it goes; with "both" two
# replicas must be in sync.
_FLUSHES = {
    "leads": (1, 10, NEVER),
    "leads-compacted": (NEVER,),
    "follows": (1, 5, NEVER),
    "follows-compacted": (10,),
    "turns": (1, 10),
    "passes": (1, NEVER),
    "passes-compacted": (10,),
    "dooms": (1, 10, NEVER),
    "dooms-compacted": (NEVER,),
    "falls": (1, NEVER),
    "falls-compacted": (10,),
    "pairs": (1, 10, NEVER),
    "pairs-both": (10,),
}
# Without a bound, those in failing directories had thousands of segments after ten minutes: to sync or to truncate such
# a log took longer than a thread may stand still.
_SEGMENTS_KEPT = {"leads": 10, "follows": 10, "turns": 10, "passes": 2, "pairs": 10, "dooms": 30, "falls": 30}


def _config(name: str, flush: int) -> LogConfig:
    kind, _, special = name.partition("-")
    compacted = special == "compacted"
    kept = _SEGMENTS_KEPT.get(kind)
    return LogConfig(
        segment_bytes=SEGMENT_BYTES,
        # The records are years old: by time all of them would go with each round, and no read would find one.
        retention_ms=1000 if kind == "passes" and flush == NEVER else -1,
        retention_bytes=-1 if kept is None or compacted else kept * SEGMENT_BYTES,
        flush_messages=flush,
        flush_ms=50 if flush == 1 else NEVER,
        file_delete_delay_ms=200,
        cleanup_policy=frozenset({"compact" if compacted else "delete"}),
        min_cleanable_dirty_ratio=0.1,
        min_insync_replicas=2 if special == "both" else 1,
    )


TOPICS = {
    f"{name}-{flush}": _config(name, flush) for name, flushes in _FLUSHES.items() for flush in flushes
} | {"fills": LogConfig()}
_IN_FAILING = ("dooms", "falls")
# So many partitions without records in each directory that is to fail keep new ones out of it.
_FILLING = 12
MOST_FAILING = 5


@dataclass(slots=True, eq=False)
class Place:
    """A partition's name, what was written under it, and the epoch of its leader. While it is ``quiet``
    nobody appends or flushes.
    """

    name: TopicPartition
    history: History
    directory: Path
    epoch: int = 0
    quiet: bool = False

    @property
    def kind(self) -> str:
        return self.name.topic.partition("-")[0]

    @property
    def compacts(self) -> bool:
        return "-compacted-" in self.name.topic

    @property
    def follows(self) -> bool:
        return self.kind in ("follows", "falls")

    @property
    def syncs_each(self) -> bool:
        return self.name.topic.endswith("-1")

    def state(self, leader: int) -> PartitionRole:
        return PartitionRole(self.name, None, 1, leader, self.epoch, (leader,), self.epoch, (leader,))


class Site:
    """Owner of the managers; the partitions' names never change, what bears them does."""

    def __init__(self, directory: Path, seed: int, watch: Watch, failing: int) -> None:
        self.seed = seed
        self.watch = watch
        sound = [directory / name for name in ("one", "two")]
        self.failing = [directory / f"failing-{number}" for number in range(failing)]
        self.broken: set[Place] = set()
        self.paths = [str(path) for path in sound + self.failing]
        self.scheduler = KafkaScheduler(4)
        self.timer = Timer()
        kept = [topic for topic in TOPICS if not topic.startswith((*_IN_FAILING, "pairs", "fills"))]
        self.places = [
            Place(TopicPartition(topic, 0), History(), sound[number % 2]) for number, topic in enumerate(kept)
        ]
        self.places += [
            Place(TopicPartition(topic, number), History(), path)
            for number, path in enumerate(self.failing)
            for topic in TOPICS
            if topic.startswith(_IN_FAILING)
        ]
        self._lay_out()
        self.logs = make_manager(self.paths, self.scheduler)
        self.replicas = ReplicaManager(
            SELF,
            self.logs,
            Alone(),
            self.timer,
            SYSTEM_CLOCK,
            max_lag_ms=1000,
            submit_isr_change=lambda _: None,
        )
        self.leadership = Leadership(
            self.replicas,
            self.logs,
            ReplicaFetcherManager(1, _no_fetcher),
            LeadershipListener(lambda *_: None, lambda *_: None),
            lambda _topic: None,
        )
        self.failures = LogDirFailureHandler(self.logs, self.leadership, lambda: None, self._last_dir_failed)

        shared = [topic for topic in TOPICS if topic.startswith("pairs")]
        self.pair_paths = {broker_id: [str(directory / f"broker-{broker_id}")] for broker_id in BROKERS}
        self.pair_logs = {
            broker_id: make_manager(paths, self.scheduler) for broker_id, paths in self.pair_paths.items()
        }
        self.pair = Pair(self.pair_logs, shared, self.timer, watch, seed)

    def _lay_out(self) -> None:
        """Each partition's directory where it is to lie: a log that is made goes to the emptiest."""
        for place in self.places:
            (place.directory / str(place.name)).mkdir(parents=True)
        for number in range(_FILLING * len(self.failing)):
            (self.failing[number % len(self.failing)] / f"fills-{number}").mkdir()

    def _last_dir_failed(self) -> None:
        self.watch.problem("the last log directory is said to have failed")

    def chance(self, name: str) -> random.Random:
        """An actor's own random numbers."""
        return random.Random(f"{self.seed} {name}")

    def of_kind(self, *kinds: str) -> list[Place]:
        return [place for place in self.places if place.kind in kinds]

    def make(self, place: Place) -> None:
        """A log and its partition: the leader here, or a follower of the other broker."""
        place.epoch = place.history.begin_life() * EPOCHS_OF_A_LIFE
        partition = self.replicas.get_or_create(place.name, lambda: self.logs.get_or_create(place.name, None))
        if place.follows:
            partition.make_follower(place.state(OTHER))
        else:
            partition.make_leader(place.state(SELF))
        place.history.settled()

    def is_gone(self, place: Place) -> bool:
        """Whether its disk has failed."""
        return place in self.broken

    def has_failed(self, log: Log) -> bool:
        """Whether the log's disk has failed while the run lasts, not since it was mended."""
        return log.health.failure is not None and log.dir.parent in self.failing

    def partition(self, place: Place) -> Partition | None:
        return self.replicas.partition(place.name)

    def held(self, place: Place) -> Partition:
        """The partition of a place that has one. Raises KafkaError where its disk has failed."""
        partition = self.partition(place)
        if partition is None:
            raise KafkaError(Errors.KAFKA_STORAGE_ERROR, f"{place.name} has no partition")
        return partition

    def check_epochs(self, place: Place, mark: Mark) -> None:
        """The file of leader epochs belongs to the log that bears the name."""
        if self.is_gone(place):
            return
        log_dir = next((d for d in self.logs.dirs if d.partition_path(place.name).is_dir()), None)
        if log_dir is None:
            return
        try:
            lines = read_checkpoint(log_dir.partition_path(place.name) / FILE_NAME)
        except OSError:
            if log_dir.path in self.failing:  # it failed since it was looked at
                return
            raise
        foreign = [line for line in lines if int(line[0]) // EPOCHS_OF_A_LIFE != mark.life]
        if foreign and place.history.is_still(mark):
            self.watch.problem(
                f"{place.name}: log {mark.life} of that name has epochs of another's: {foreign}"
            )


def _no_fetcher(_leader: int, _number: int) -> ReplicaFetcher:
    raise AssertionError("nobody is followed over the network here")


def make_manager(paths: list[str], scheduler: KafkaScheduler | None) -> LogManager:
    settings = LogManagerSettings(
        log_flush_scheduler_interval_ms=20,
        log_flush_offset_checkpoint_interval_ms=20,
        log_flush_start_offset_checkpoint_interval_ms=30,
        log_retention_check_interval_ms=20,
        log_initial_task_delay_ms=1,
        log_cleaner_backoff_ms=50,
        log_cleaner_dedupe_buffer_size=1 << 20,
        num_recovery_threads_per_data_dir=2,
    )
    return LogManager(paths, LogConfig(), lambda topic: TOPICS[topic], scheduler, settings=settings)


@contextmanager
def running_site(directory: Path, seed: int, watch: Watch, failing: int) -> Iterator[Site]:
    """One that is loaded, with every partition made; its stop is the caller's where threads hang."""
    site = Site(directory, seed, watch, failing)
    site.scheduler.startup()
    site.logs.startup()
    site.failures.start()
    for logs in site.pair_logs.values():
        logs.startup()
    for place in site.places:
        site.make(place)
    site.pair.start()
    # Three brokers' passes over all their logs have its four threads: on a busy disk the beat's turn comes late.
    watch.crew("the scheduler", lambda: [thread.ident or 0 for thread in list(site.scheduler._threads)])
    site.scheduler.schedule("beat", partial(watch.beat, "the scheduler"), period_ms=100)
    yield site
