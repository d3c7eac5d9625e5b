"""What the status page shows, as values: the cluster as this broker knows it, and its own groups and disks.

Pure. Every list has a limit, however large the cluster. `overview_of` reads the broker's parts, `status_page` writes
the HTML.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from broker.config.endpoint import host_port
from broker.log.loading.load_progress import LoadProgress
from broker.protocol.control_messages import PartitionInfo
from broker.server.consumer_lag import GroupLag, LagSnapshot, LagState
from broker.server.metadata_cache import Snapshot

#: The most rows of a table.
MOST_ROWS: Final = 50
Ids = tuple[int, ...]
#: The replicas that are being added, by topic and partition.
Adding = Mapping[tuple[str, int], frozenset[int]]
_NONE: Final[frozenset[int]] = frozenset()


@dataclass(frozen=True, slots=True)
class BrokerRow:
    """A broker of the cluster. Without ``addresses`` it is not registered, but has replicas."""

    broker_id: int
    addresses: tuple[str, ...]
    rack: str | None
    leaders: int
    replicas: int
    out_of_sync: int

    @property
    def is_live(self) -> bool:
        return bool(self.addresses)


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """A partition with a problem. ``leader`` is None if it has no live one."""

    topic: str
    partition: int
    leader: int | None
    replicas: Ids
    isr: Ids


@dataclass(frozen=True, slots=True)
class MoveRow:
    """A partition that is being reassigned."""

    topic: str
    partition: int
    adding: Ids
    removing: Ids


@dataclass(frozen=True, slots=True)
class DiskRow:
    """A log directory. ``total`` is 0 if its file system does not answer."""

    path: str
    total: int
    free: int
    failure: str | None
    refusal: str | None


@dataclass(frozen=True, slots=True)
class ClusterRows:
    """The cluster in numbers, its brokers, and the partitions with a problem. ``brokers_left_out`` counts the brokers
    without a row, ``problems_total`` all partitions with a problem.
    """

    topics: int = 0
    partitions: int = 0
    offline: int = 0
    under_replicated: int = 0
    brokers: tuple[BrokerRow, ...] = ()
    brokers_left_out: int = 0
    problems: tuple[PartitionRow, ...] = ()
    problems_total: int = 0

    @property
    def missing(self) -> Ids:
        """The brokers that have replicas and are not registered."""
        return tuple(row.broker_id for row in self.brokers if not row.is_live)


@dataclass(frozen=True, slots=True)
class PermitRow:
    """Who may stop a broker. ``since`` is empty if it was not noted; ``until`` is the end if nobody renews it."""

    holder: str
    broker_id: int
    since: str
    until: str


@dataclass(frozen=True, slots=True)
class TurnRow:
    """Whose turn it is to move partitions, by which command. ``is_ending``: it takes back what it has set."""

    holder: str
    command: str
    since: str
    until: str
    is_ending: bool = False


@dataclass(frozen=True, slots=True)
class Holders:
    """Who has the stop permit and the turn to move partitions; None for nobody."""

    permit: PermitRow | None = None
    turn: TurnRow | None = None


@dataclass(frozen=True, slots=True)
class Overview:
    """Everything on the page. ``version`` to ``state`` are the broker's own. ``moves`` are those of the whole cluster
    on the controller, and on other brokers those of the partitions they lead. ``stopping`` and ``deleting`` are
    known to the controller only. ``lags`` says whether ``groups`` are known, ``lags_left_out`` counts groups and
    offsets without a lag. ``holders`` is None if ZooKeeper did not say who they are.
    """

    broker_id: int
    version: str
    state: str
    time: str
    cluster_id: str = ""
    controller_id: int = -1
    is_controller: bool = False
    is_running: bool = False
    unready: tuple[str, ...] = ()
    loading: LoadProgress | None = None
    cluster: ClusterRows = ClusterRows()
    groups: tuple[GroupLag, ...] = ()
    groups_total: int = 0
    disks: tuple[DiskRow, ...] = ()
    moves: tuple[MoveRow, ...] = ()
    moves_total: int = 0
    stopping: Ids = ()
    deleting: int = 0
    lags: LagState = LagState.KNOWN
    lags_left_out: int = 0
    holders: Holders | None = Holders()


def adding_in(moves: Iterable[MoveRow]) -> Adding:
    """The replicas that are being added, as ``cluster_rows`` takes them."""
    return {(move.topic, move.partition): frozenset(move.adding) for move in moves if move.adding}


def cluster_rows(snapshot: Snapshot, adding: Adding = MappingProxyType({})) -> ClusterRows:
    """The rows for one state of the metadata. Offline partitions come before those that are under-replicated. A
    replica that is being added is not missing yet, as in Kafka's metrics.
    """
    offline = under_replicated = problems_total = partitions = 0
    leaders, replicas, out_of_sync = _Counts(), _Counts(), _Counts()
    for topic, infos in snapshot.topics.items():
        partitions += len(infos)
        for number, info in infos.items():
            added = adding.get((topic, number), _NONE)
            leaders.add(info.leader)
            for broker_id in info.replicas:
                replicas.add(broker_id)
                if broker_id not in info.isr and broker_id not in added:
                    out_of_sync.add(broker_id)
            is_offline, is_under = info.leader not in snapshot.brokers, _is_under(info, added)
            offline += is_offline
            under_replicated += is_under
            problems_total += is_offline or is_under
    ids = sorted(snapshot.brokers.keys() | replicas.keys(), key=lambda each: (each in snapshot.brokers, each))
    rows = sorted(
        (
            BrokerRow(
                broker_id,
                _addresses(snapshot, broker_id),
                None if (broker := snapshot.brokers.get(broker_id)) is None else broker.rack,
                leaders.get(broker_id, 0),
                replicas.get(broker_id, 0),
                out_of_sync.get(broker_id, 0),
            )
            for broker_id in ids[:MOST_ROWS]
        ),
        key=lambda row: row.broker_id,
    )
    problems = heapq.nsmallest(
        MOST_ROWS,
        _problems(snapshot, adding),
        key=lambda row: (row.leader is not None, row.topic, row.partition),
    )
    return ClusterRows(
        len(snapshot.topics),
        partitions,
        offline,
        under_replicated,
        tuple(rows),
        len(ids) - len(rows),
        tuple(problems),
        problems_total,
    )


def most_lagging(snapshot: LagSnapshot) -> tuple[GroupLag, ...]:
    """The groups for the table, those with the largest lag first."""
    return tuple(
        heapq.nsmallest(
            MOST_ROWS, snapshot.groups, key=lambda group: (-group.total, -group.unknown, group.group_id)
        )
    )


class _Counts(dict[int, int]):
    def add(self, key: int) -> None:
        self[key] = self.get(key, 0) + 1


def _addresses(snapshot: Snapshot, broker_id: int) -> tuple[str, ...]:
    broker = snapshot.brokers.get(broker_id)
    if broker is None:
        return ()
    return tuple(f"{name}://{host_port(*at)}" for name, at in broker.endpoints.items()) or ("no listener",)


def _is_under(info: PartitionInfo, added: frozenset[int]) -> bool:
    return len(info.isr) < len(info.replicas) - len(added)


def _problems(snapshot: Snapshot, adding: Adding) -> Iterator[PartitionRow]:
    for topic, infos in snapshot.topics.items():
        for number, info in infos.items():
            added = adding.get((topic, number), _NONE)
            if info.leader not in snapshot.brokers or _is_under(info, added):
                yield _problem(topic, number, info, snapshot)


def _problem(topic: str, number: int, info: PartitionInfo, snapshot: Snapshot) -> PartitionRow:
    leader = info.leader if info.leader in snapshot.brokers else None
    return PartitionRow(topic, number, leader, info.replicas, info.isr)
