"""Reads the parts of a running broker for the status page. Loaded by the first request for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

from broker import __version__
from broker.controller.controller import KafkaController
from broker.log.free_space import Space, space_at
from broker.log.loading.load_progress import LoadProgress
from broker.log.log_dir_health import LogDirHealth
from broker.log.log_manager import LogManager
from broker.replication.replica_manager import ReplicaManager
from broker.server.consumer_lag import ConsumerLag
from broker.server.http.overview import (
    MOST_ROWS,
    DiskRow,
    Holders,
    MoveRow,
    Overview,
    adding_in,
    cluster_rows,
    most_lagging,
)
from broker.server.lifecycle.broker_state import StateKeeper
from broker.server.metadata_cache import MetadataCache
from broker.utils.clock import Clock

_UNKNOWN: Final = Space(0, 0, None)


def basic_overview(
    broker_id: int, keeper: StateKeeper, clock: Clock, cluster_id: str, loading: LoadProgress | None
) -> Overview:
    """The overview of a broker that starts or stops."""
    now = datetime.fromtimestamp(clock.wall_ms() / 1000, UTC)
    time = f"{now:%Y-%m-%d %H:%M:%S} UTC"
    return Overview(broker_id, __version__, keeper.state.name, time, cluster_id, loading=loading)


def running_overview(
    basic: Overview,
    *,
    cache: MetadataCache,
    controller: KafkaController,
    lag: ConsumerLag,
    logs: LogManager,
    replicas: ReplicaManager,
    unready: Sequence[str],
    holders: Holders | None,
) -> Overview:
    """The overview of a running broker, with the identity that ``basic`` has."""
    context = controller.context
    moves = list(_moves_led(replicas) if context is None else _moves_of(context.reassignments_copied()))
    lags = lag.current()
    return Overview(
        basic.broker_id,
        basic.version,
        basic.state,
        basic.time,
        basic.cluster_id,
        cache.controller_id,
        context is not None,
        True,
        tuple(unready),
        None,
        cluster_rows(cache.snapshot, adding_in(moves)),
        most_lagging(lags),
        len(lags.groups),
        tuple(map(_disk, (log_dir.health for log_dir in logs.dirs.all))),
        tuple(sorted(moves, key=lambda move: (move.topic, move.partition))[:MOST_ROWS]),
        len(moves),
        () if context is None else tuple(sorted(context.shutting_down.copy())),
        0 if context is None else len(context.topics_to_delete),
        lags.state,
        lags.left_out,
        holders,
    )


def _moves_led(replicas: ReplicaManager) -> Iterable[MoveRow]:
    for partition in replicas.partitions():
        if partition.is_being_reassigned:
            state, (topic, number) = partition.state, partition.topic_partition
            yield MoveRow(topic, number, state.adding_replicas, state.removing_replicas)


def _moves_of(
    found: Iterable[tuple[str, int, tuple[int, ...], tuple[int, ...]]],
) -> Iterable[MoveRow]:
    return (MoveRow(*each) for each in found)


def _disk(health: LogDirHealth) -> DiskRow:
    try:
        space = space_at(health.path)
    except OSError:
        space = _UNKNOWN
    return DiskRow(str(health.path), space.total_bytes, space.free_bytes, health.failure, health.refusal)
