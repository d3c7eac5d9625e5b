"""A partition over real logs: leading, following, the ISR and the high watermark."""

from __future__ import annotations

import ast
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.cluster import partition as partition_module
from broker.cluster.isr import IsrState
from broker.cluster.partition import Partition
from broker.cluster.results import Awaited
from broker.config.log_config import LogConfig
from broker.log.log_manager import LogManager
from broker.log.results import LogRead
from broker.protocol.control_messages import PartitionRole
from broker.protocol.errors import Errors, KafkaError
from broker.record.batch import Record, build_batch
from broker.record.validator import AppendOrigin
from broker.utils.topic_partition import TopicPartition
from tests.support.clocks import ManualClock

TP = TopicPartition("orders", 0)
TOPIC_ID = uuid.UUID(int=7)
LAG_MS = 1000


class Brokers:
    """Partition replicas of several brokers in one process; fetches are carried by hand."""

    def __init__(self, directory: Path, min_isr: int = 1) -> None:
        self.clock = ManualClock(50_000, 1_700_000_000_000)
        self.dead: set[int] = set()
        self._directory = directory
        self._config = LogConfig(min_insync_replicas=min_isr)
        self._managers: list[LogManager] = []
        self.partitions: dict[int, Partition] = {}

    def add(self, broker_id: int) -> Partition:
        directory = self._directory / str(broker_id)
        directory.mkdir()
        manager = LogManager([str(directory)], self._config, clock=self.clock)
        manager.startup()
        self._managers.append(manager)
        partition = Partition(
            TP,
            manager.get_or_create(TP, TOPIC_ID),
            broker_id=broker_id,
            max_lag_ms=LAG_MS,
            clock=self.clock,
            alive=lambda other: other not in self.dead,
        )
        self.partitions[broker_id] = partition
        return partition

    def close(self) -> None:
        for manager in self._managers:
            manager.shutdown()


def state(
    leader: int, epoch: int, isr: tuple[int, ...], replicas=(1, 2, 3), partition_epoch=0
) -> PartitionRole:
    return PartitionRole(TP, TOPIC_ID, 1, leader, epoch, isr, partition_epoch, replicas)


def records(count: int = 1) -> memoryview:
    batch = build_batch([Record(key=None, value=b"v%d" % n) for n in range(count)])
    return memoryview(bytearray(batch))


NOTHING = Awaited(-1, -1)  # what a committed append waits for


def append(partition: Partition, count: int = 1, acks: int = -1) -> Awaited:
    _, _, awaited = partition.append_as_leader(records(count), required_acks=acks, origin=AppendOrigin.CLIENT)
    return NOTHING if awaited is None else awaited


def fetch(partition: Partition, broker_id: int, offset: int, last_epoch: int = -1, epoch: int = -1):
    return partition.fetch_as_follower(
        broker_id,
        77,
        offset,
        0,
        1 << 20,
        current_leader_epoch=epoch,
        last_fetched_epoch=last_epoch,
        min_one=True,
    )


@pytest.fixture
def make_brokers(tmp_path: Path):
    made: list[Brokers] = []

    def make(min_isr: int = 1) -> Brokers:
        made.append(Brokers(tmp_path / str(len(made)), min_isr))
        (tmp_path / str(len(made) - 1)).mkdir()
        return made[-1]

    yield make
    for brokers in made:
        brokers.close()


@pytest.fixture
def brokers(make_brokers: Callable[..., Brokers]) -> Brokers:
    return make_brokers()


@pytest.fixture
def leader(brokers: Brokers) -> Partition:
    partition = brokers.add(1)
    partition.make_leader(state(1, 5, (1, 2, 3)))
    return partition


def test_only_replica_commits_at_once(brokers: Brokers) -> None:
    partition = brokers.add(1)
    partition.make_leader(state(1, 0, (1,), replicas=(1,)))
    _, advanced, awaited = partition.append_as_leader(
        records(3), required_acks=-1, origin=AppendOrigin.CLIENT
    )
    assert (advanced, awaited, partition.log.high_watermark) == (True, None, 3)


def test_record_is_committed_when_every_isr_member_has_fetched_past_it(leader: Partition) -> None:
    end = append(leader, 2)
    assert leader.has_reached(end) is None
    assert not fetch(leader, 2, 2).hw_advanced
    assert fetch(leader, 3, 2).hw_advanced
    assert leader.has_reached(end) is Errors.NONE


def test_follower_that_read_has_acknowledged_nothing_yet(leader: Partition) -> None:
    end = append(leader, 2)
    for broker_id in (2, 3):
        assert fetch(leader, broker_id, 0).read.size > 0
    assert leader.has_reached(end) is None


def test_acks_all_below_min_isr_is_refused_before_the_append_with_numbers(make_brokers) -> None:
    partition = make_brokers(min_isr=2).add(1)
    partition.make_leader(state(1, 0, (1,)))
    with pytest.raises(
        KafkaError,
        match=r"orders-0: 1 of 3 replicas are in sync \(ISR \[1\], missing \[2, 3\]\), .* 2 \(min.insync.replicas\)",
    ) as error:
        append(partition)
    assert error.value.error_code is Errors.NOT_ENOUGH_REPLICAS
    assert partition.log.log_end_offset == 0
    assert append(partition, acks=1).offset == 1


def test_isr_that_shrank_below_the_minimum_after_the_append_is_told(make_brokers) -> None:
    partition = make_brokers(min_isr=2).add(1)
    partition.make_leader(state(1, 0, (1, 2, 3)))
    end = append(partition)
    for broker_id in (2, 3):
        fetch(partition, broker_id, 1)
    partition.isr = IsrState(frozenset({1}))
    assert partition.has_reached(end) is Errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND


def test_silent_member_is_dropped_after_the_lag_time_and_the_mark_moves_on(
    leader: Partition, brokers: Brokers
) -> None:
    end = append(leader, 2)
    fetch(leader, 2, 2)
    brokers.clock.now_ms += LAG_MS + 1
    fetch(leader, 2, 2)
    assert not leader.is_under_replicated
    change = leader.maybe_shrink_isr()
    assert change.isr == (1, 2)
    assert leader.has_reached(end) is None, "the old, larger ISR counts until the controller has agreed"
    assert leader.is_under_replicated, (
        "but who asks whether a broker may be stopped, is told of the smaller one"
    )
    assert leader.maybe_shrink_isr() is None, "one change at a time"
    assert leader.on_isr_changed(change, (1, 2), 5, 1)
    assert leader.has_reached(end) is Errors.NONE


def moving_state(leader: int, epoch: int, isr: tuple[int, ...]) -> PartitionRole:
    """Broker 4 comes for broker 1."""
    return PartitionRole(TP, TOPIC_ID, 1, leader, epoch, isr, 0, (4, 2, 1), (4,), (1,))


def test_a_partition_that_moves_is_counted_and_whole_when_the_old_replicas_are_in_sync(
    brokers: Brokers,
) -> None:
    partition = brokers.add(1)
    partition.make_leader(moving_state(1, 0, (1, 2)))
    assert partition.is_being_reassigned
    assert not partition.is_under_replicated
    partition.make_leader(moving_state(1, 1, (1,)))
    assert partition.is_under_replicated
    partition.make_follower(moving_state(2, 2, (1, 2)))
    assert not partition.is_being_reassigned
    partition.make_leader(state(1, 3, (1, 2), (1, 2)))
    assert not partition.is_being_reassigned


def test_a_member_of_the_isr_that_is_no_replica_any_more_is_dropped_at_once(brokers: Brokers) -> None:
    leader = brokers.add(1)
    leader.make_leader(state(1, 5, (1, 2, 9), (1, 2)))
    append(leader, 1, acks=1)
    assert leader.maybe_shrink_isr().isr == (1, 2)


def test_follower_that_caught_up_asks_to_join_and_counts_at_once(brokers: Brokers) -> None:
    partition = brokers.add(1)
    partition.make_leader(state(1, 0, (1,)))
    append(partition, 2, acks=1)
    change = fetch(partition, 2, 2).isr_change
    assert (change.isr, change.broker_epochs) == ((1, 2), (-1, 77))
    end = append(partition, 1, acks=1)
    assert partition.has_reached(end) is None, "it may be in the ISR already, for all this leader knows"
    fetch(partition, 2, 3)
    assert partition.has_reached(end) is Errors.NONE


def test_dead_broker_may_not_join(brokers: Brokers) -> None:
    partition = brokers.add(1)
    partition.make_leader(state(1, 0, (1,)))
    brokers.dead.add(2)
    assert fetch(partition, 2, 0).isr_change is None


def test_ineligible_replica_goes_back_to_the_committed_isr(brokers: Brokers) -> None:
    partition = brokers.add(1)
    partition.make_leader(state(1, 0, (1,)))
    change = fetch(partition, 2, 0).isr_change
    assert not partition.on_isr_change_refused(change, Errors.INELIGIBLE_REPLICA)
    assert partition.isr == IsrState(frozenset({1}))


def test_fenced_leader_keeps_its_change_pending_until_the_controller_speaks(brokers: Brokers) -> None:
    partition = brokers.add(1)
    partition.make_leader(state(1, 0, (1,)))
    change = fetch(partition, 2, 0).isr_change
    assert not partition.on_isr_change_refused(change, Errors.FENCED_LEADER_EPOCH)
    assert partition.isr.is_pending
    assert partition.on_isr_change_refused(change, Errors.UNKNOWN_SERVER_ERROR), (
        "anything else is tried again"
    )


def test_member_that_the_controller_removed_is_not_waited_for(leader: Partition) -> None:
    end = append(leader, 1)
    fetch(leader, 2, 1)
    leader.make_leader(state(1, 6, (1, 2), partition_epoch=1))
    assert leader.has_reached(end) is Errors.NONE


def test_append_of_an_earlier_term_is_not_acknowledged_by_a_later_one(brokers: Brokers) -> None:
    partition = brokers.add(1)
    partition.make_leader(state(1, 0, (1,)))
    partition.isr = IsrState(frozenset({1, 2}))
    lost = append(partition, 1)
    partition.make_follower(state(2, 1, (1, 2)))
    partition.log.truncate_to(0)
    partition.make_leader(state(1, 2, (1,)))
    append(partition, 5)
    assert partition.log.high_watermark >= lost.offset
    assert partition.has_reached(lost) is Errors.NOT_LEADER_OR_FOLLOWER


def test_older_and_newer_leader_epochs_are_fenced(leader: Partition) -> None:
    for epoch, error in ((4, Errors.FENCED_LEADER_EPOCH), (6, Errors.UNKNOWN_LEADER_EPOCH)):
        with pytest.raises(KafkaError) as refusal:
            fetch(leader, 2, 0, epoch=epoch)
        assert refusal.value.error_code is error


def test_broker_that_is_no_replica_is_refused(leader: Partition) -> None:
    with pytest.raises(KafkaError, match="9 is no replica") as error:
        fetch(leader, 9, 0)
    assert error.value.error_code is Errors.UNKNOWN_LEADER_EPOCH


def test_diverging_fetch_acknowledges_nothing(leader: Partition) -> None:
    append(leader, 3)
    before = leader.followers[2]
    result = fetch(leader, 2, 9, last_epoch=5)
    assert (result.diverging, result.read) == ((5, 3), None)
    assert leader.followers[2] == before


def test_former_leader_finds_where_its_log_parted(brokers: Brokers) -> None:
    old, new = brokers.add(1), brokers.add(2)
    old.make_leader(state(1, 0, (1, 2)))
    shared = records(2)
    old.append_as_leader(shared, required_acks=1, origin=AppendOrigin.CLIENT)
    new.make_follower(state(1, 0, (1, 2)))
    new.append_as_follower(shared, 0, 0, 0)
    append(old, 5, acks=1)  # only here
    new.make_leader(state(2, 1, (1, 2)))
    append(new, 1, acks=1)
    old.make_follower(state(2, 1, (1, 2)))
    result = new.fetch_as_follower(
        1, 77, 7, 0, 1 << 20, current_leader_epoch=1, last_fetched_epoch=0, min_one=True
    )
    assert result.diverging == (0, 2)


def test_follower_refuses_records_of_an_epoch_it_no_longer_follows(brokers: Brokers) -> None:
    partition = brokers.add(2)
    partition.make_follower(state(1, 4, (1, 2)))
    assert partition.append_as_follower(records(), 3, 0, 0) is None
    assert partition.log.log_end_offset == 0


def test_followers_mark_is_the_leaders_but_not_past_its_own_end(brokers: Brokers) -> None:
    partition = brokers.add(2)
    partition.make_follower(state(1, 4, (1, 2)))
    partition.append_as_follower(records(2), 4, 9, 0)
    assert partition.log.high_watermark == 2


def read_as_consumer(partition: Partition, offset: int) -> LogRead:
    log = partition.log
    return log.reader.read(offset, 1 << 20, end_offset=log.high_watermark, min_one_batch=True)


def test_consumers_read_only_what_is_committed(leader: Partition) -> None:
    append(leader, 2)
    assert read_as_consumer(leader, 0).size == 0
    for broker_id in (2, 3):
        fetch(leader, broker_id, 2)
    assert read_as_consumer(leader, 0).size > 0
    with pytest.raises(KafkaError) as error:
        read_as_consumer(leader, 99)
    assert error.value.error_code is Errors.OFFSET_OUT_OF_RANGE


def test_repr_says_role_epoch_and_isr(leader: Partition) -> None:
    assert repr(leader) == "<Partition orders-0 leader, epoch 5, isr [1, 2, 3]>"


def test_nobody_else_writes_a_partition() -> None:
    """Or takes its lock: what is read without it belongs together, for it is written by one class."""
    root = Path(partition_module.__file__).parents[1]
    written = [
        f"{path.relative_to(root)}:{node.lineno}"
        for path in root.rglob("*.py")
        if path != Path(partition_module.__file__)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name | ast.Attribute)
        and (node.value.id if isinstance(node.value, ast.Name) else node.value.attr) == "partition"
        and (isinstance(node.ctx, ast.Store) or node.attr in {"lock", "_lock"})
    ]
    assert written == []
