"""A partition on this broker, as leader or follower: its ISR and high watermark."""

from __future__ import annotations

import threading
from collections.abc import Callable

import structlog

from broker.cluster import isr as isr_rule
from broker.cluster.follower_log import FollowerLog
from broker.cluster.isr import IsrState, NotEnoughReplicasError, Shortage
from broker.cluster.replica import FollowerState, low_watermark
from broker.cluster.results import Awaited, FollowerRead
from broker.log.log import AppendInfo, AppendOrigin, Log
from broker.log.producers.verification import VerificationGuard
from broker.protocol.alter_partition_messages import IsrChange
from broker.protocol.control_messages import PartitionRole
from broker.protocol.epochs import NO_EPOCH, NO_LEADER
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.offsets import HIGH_WATERMARK
from broker.protocol.produce_messages import ACKS_ALL
from broker.utils.clock import Clock
from broker.utils.topic_partition import TopicPartition

_log = structlog.get_logger(__name__)


class Partition(FollowerLog):
    """A partition on this broker, as leader or follower; Kafka's ``Partition``.

    Invariant: the high watermark never passes a record that some member of the maximal ISR lacks
    (``isr.py``). So a record acknowledged with acks=all survives whichever member leads next.

    Guarded by its lock, which only this class takes. Nobody else writes an attribute. Each attribute is
    replaced, not changed (except :attr:`followers`), so a reader without the lock sees a consistent value.
    Every public method may be called from any thread. No purgatory is called with the lock held: methods
    return what changed, and the ReplicaManager completes the waiting requests.

    ``alive`` says whether a broker is alive and not shutting down; no other broker may join the ISR. It is
    called with the lock held, and takes no lock itself.
    """

    def __init__(
        self,
        topic_partition: TopicPartition,
        log: Log,
        *,
        broker_id: int,
        max_lag_ms: int,
        clock: Clock,
        alive: Callable[[int], bool],
    ) -> None:
        #: The topic and the partition number.
        self.topic_partition = topic_partition
        self.log = log
        self.future = None
        self._truncations = 0
        #: The topic id; None until the log's files or the controller provide it.
        self.topic_id = log.topic_id
        #: The role from the controller's last request.
        self.state = PartitionRole(topic_partition, None, NO_EPOCH, NO_LEADER, NO_EPOCH, (), NO_EPOCH, ())
        #: Whether this broker leads: ``state`` says so, and it was not stopped since.
        self.is_leader = False
        #: The ISR and its pending change; empty on a follower.
        self.isr = IsrState(frozenset())
        #: The state of each other replica, by broker id; empty on a follower.
        self.followers: dict[int, FollowerState] = {}
        #: How often this broker became leader.
        self._term = 0
        #: The log's end offset when this broker became leader in the current epoch.
        self._leader_epoch_start = 0
        self._broker_id = broker_id
        self._max_lag_ms = max_lag_ms
        self._clock = clock
        self._alive = alive
        self._lock = threading.RLock()  # lock order 40

    def __repr__(self) -> str:
        state = self.state
        role = "leader" if self.is_leader else f"follower of {state.leader}"
        isr = sorted(self.isr.committed)
        return f"<Partition {self.topic_partition} {role}, epoch {state.leader_epoch}, isr {isr}>"

    # -- becoming leader or follower

    def make_leader(self, state: PartitionRole) -> bool:
        """Begins or continues a term as leader; True if this broker did not lead before."""
        with self._lock:
            was_leader = self.is_leader
            new_epoch = not was_leader or state.leader_epoch > self.state.leader_epoch
            # With the next epoch in sequence nobody else led. Otherwise followers may have lost to another leader
            # what they had acknowledged here.
            goes_on = was_leader and state.leader_epoch <= self.state.leader_epoch + 1
            now_ms = self._clock.monotonic_ms()
            self._take(state)
            self.isr = IsrState(frozenset(state.isr))
            end_offset = self.log.offsets.end
            if new_epoch:
                self._leader_epoch_start = end_offset
                # Even without data: a follower that asks for this epoch must find its start offset (KIP-101).
                self.log.leader_epochs.assign(state.leader_epoch, end_offset, write=False)
            previous = self.followers if was_leader else {}
            self.followers = {
                broker_id: previous.get(broker_id, FollowerState(broker_id)).reset(
                    now_ms,
                    in_isr=broker_id in self.isr.committed,
                    leader_end_offset=end_offset,
                    keep_position=goes_on,
                )
                for broker_id in state.replicas
                if broker_id != self._broker_id
            }
            self._term += not was_leader
            self.is_leader = True
            self._advance_high_watermark(now_ms)
            return not was_leader

    def make_follower(self, state: PartitionRole) -> bool:
        """Begins or continues to follow; True if leader or epoch changed, so that the fetcher
        must restart.
        """
        with self._lock:
            before = self.state
            changed = (
                self.is_leader or state.leader != before.leader or state.leader_epoch > before.leader_epoch
            )
            self._take(state)
            self.isr = IsrState(frozenset())
            self.followers = {}
            self.is_leader = False
            return changed

    def _take(self, state: PartitionRole) -> None:
        self.state = state
        if self.topic_id is None:
            self.topic_id = state.topic_id

    def step_down(self) -> None:
        """Stops leading without a new role: the replica is stopped, or the partition is dropped."""
        with self._lock:
            self.is_leader = False

    def forget_role(self) -> None:
        """Stops leading or following, and takes the role of any leader epoch next, also of the same once more."""
        with self._lock:
            self.is_leader = False
            self.state = self.state._replace(leader=NO_LEADER, leader_epoch=NO_EPOCH)

    # -- appending

    def append_as_leader(
        self,
        records: memoryview,
        *,
        required_acks: int,
        origin: AppendOrigin,
        guard: VerificationGuard | None = None,
    ) -> tuple[AppendInfo, bool, Awaited | None]:
        """Appends records; if this is the only replica, the high watermark advances at once. ``guard`` is that
        of a transactional batch, if transactions are verified.

        Returns the append, whether the high watermark advanced, and so waiting requests must be checked, and
        what must be committed before the append is (None: it is committed).

        Raises :class:`KafkaError` and appends nothing: NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS for
        acks=all, or the log's errors about the records.
        """
        # First check without the lock. A follower holds it while its log is truncated, and clients with stale
        # metadata must not wait for that. Nor should others wait while records are validated or recompressed.
        leads = self.is_leader
        if not leads:
            raise KafkaError(Errors.NOT_LEADER_OR_FOLLOWER)
        checked = self.log.appender.check(records, origin)
        with self._lock:
            if not self.is_leader:
                raise KafkaError(Errors.NOT_LEADER_OR_FOLLOWER)
            if required_acks == ACKS_ALL and (shortage := self.shortage()) is not None:
                raise NotEnoughReplicasError(self.topic_partition, shortage)
            log = self.log
            info = log.appender.append_checked(checked, self.state.leader_epoch, guard)
            # Without followers no time counts.
            advanced = self._advance_high_watermark(self._clock.monotonic_ms() if self.followers else 0)
            end = info.last_offset + 1
            return info, advanced, None if log.offsets.high_watermark >= end else Awaited(end, self._term)

    def effective_min_isr(self) -> int:
        """min.insync.replicas, but at most the number of replicas."""
        return min(self.log.config.min_insync_replicas, max(len(self.state.replicas), 1))

    def shortage(self) -> Shortage | None:
        """What the ISR lacks for acks=all; None if it is large enough."""
        required = self.effective_min_isr()
        isr = self.isr.committed
        return Shortage(self.state.replicas, tuple(sorted(isr)), required) if len(isr) < required else None

    # -- reading

    def require_leader(self, current_leader_epoch: int = NO_EPOCH, *, or_follower: bool = False) -> None:
        """Raises NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH (KIP-320). With
        ``or_follower``, only the epoch must be right.
        """
        if current_leader_epoch >= 0:
            leader_epoch = self.state.leader_epoch
            if current_leader_epoch < leader_epoch:
                raise KafkaError(Errors.FENCED_LEADER_EPOCH)
            if current_leader_epoch > leader_epoch:
                raise KafkaError(Errors.UNKNOWN_LEADER_EPOCH)
        if not self.is_leader and not or_follower:
            raise KafkaError(Errors.NOT_LEADER_OR_FOLLOWER)

    @property
    def high_watermark_is_behind_term(self) -> bool:
        """Whether this leader does not know yet that all records from before its term are committed."""
        return self.is_leader and self.log.offsets.high_watermark < self._leader_epoch_start

    def diverging_epoch(self, fetch_offset: int, last_fetched_epoch: int) -> tuple[int, int] | None:
        """Where the reader's log diverges from this one: (epoch, its end offset here), or None (KIP-595)."""
        if last_fetched_epoch < 0:
            return None
        log = self.log
        if last_fetched_epoch == log.leader_epochs.latest_epoch and fetch_offset <= log.offsets.end:
            return None  # as nearly always
        epoch, end_offset = log.end_offset_for_epoch(last_fetched_epoch)
        if epoch < 0 or end_offset < 0:
            raise KafkaError(
                Errors.OFFSET_OUT_OF_RANGE,
                f"{self.topic_partition}: epoch {last_fetched_epoch} is unknown here",
            )
        if epoch < last_fetched_epoch or end_offset < fetch_offset:
            return epoch, end_offset
        return None

    def fetch_as_follower(
        self,
        broker_id: int,
        broker_epoch: int,
        fetch_offset: int,
        log_start_offset: int,
        max_bytes: int,
        *,
        current_leader_epoch: int,
        last_fetched_epoch: int,
        min_one: bool,
    ) -> FollowerRead:
        """Reads up to the log's end. The fetch offset acknowledges everything before it.

        A diverging fetch acknowledges nothing. Raises :class:`KafkaError`: not leader, wrong epoch, offset
        out of range, or UNKNOWN_LEADER_EPOCH for a broker that is not a replica here (its metadata is newer).
        """
        self.require_leader(current_leader_epoch)  # also without the lock: see append_as_leader
        with self._lock:
            self.require_leader(current_leader_epoch)
            follower = self.followers.get(broker_id)
            if follower is None:
                raise KafkaError(
                    Errors.UNKNOWN_LEADER_EPOCH, f"{broker_id} is no replica of {self.topic_partition}"
                )
            diverging = self.diverging_epoch(fetch_offset, last_fetched_epoch)
            log, offsets = self.log, self.log.offsets
            # Before the read: the follower cannot move its log's start past the records that it gets.
            start = offsets.start
            if diverging is not None:
                return FollowerRead(None, diverging, offsets.high_watermark, start, False, None)
            end_offset = offsets.end
            read = log.reader.read(fetch_offset, max_bytes, end_offset=end_offset, min_one_batch=min_one)
            now_ms = self._clock.monotonic_ms()
            self.followers[broker_id] = follower.after_fetch(
                fetch_offset, log_start_offset, now_ms, end_offset, broker_epoch
            )
            change = None if broker_id in self.isr.committed else self._maybe_expand(broker_id)
            moved = follower.log_end_offset != fetch_offset or change is not None
            advanced = moved and self._advance_high_watermark(now_ms)
            return FollowerRead(read, None, offsets.high_watermark, start, advanced, change)

    def delete_records(self, offset: int) -> tuple[int, int]:
        """Moves the log start to ``offset``, -1 for the high watermark.

        Returns the offset and the low watermark.

        Raises :class:`KafkaError`: NOT_LEADER_OR_FOLLOWER, POLICY_VIOLATION for a topic that is only
        compacted, OFFSET_OUT_OF_RANGE, KAFKA_STORAGE_ERROR.
        """
        self.require_leader()  # also without the lock: see append_as_leader
        with self._lock:
            self.require_leader()
            log = self.log
            if not log.config.delete:
                raise KafkaError(
                    Errors.POLICY_VIOLATION,
                    f"{self.topic_partition}: the topic's cleanup.policy does not delete records",
                )
            wanted = log.offsets.high_watermark if offset == HIGH_WATERMARK else offset
            if wanted < 0:
                raise KafkaError(
                    Errors.OFFSET_OUT_OF_RANGE, f"{self.topic_partition}: offset {wanted} is negative"
                )
            log.increment_log_start_offset(wanted)
            return wanted, self.low_watermark()

    def low_watermark(self) -> int:
        """The smallest log start of the live replicas. Raises NOT_LEADER_OR_FOLLOWER."""
        with self._lock:
            self.require_leader()
            return low_watermark(self.log.offsets.start, self.followers.values(), self._alive)

    def has_reached(self, awaited: Awaited) -> Errors | None:
        """Whether an append with acks=all is committed: NONE, an error, or None if not yet."""
        leads = self.is_leader  # also without the lock: see append_as_leader
        if not leads:
            return Errors.NOT_LEADER_OR_FOLLOWER
        with self._lock:
            if not self.is_leader or awaited.term != self._term:
                return Errors.NOT_LEADER_OR_FOLLOWER
            if self.log.offsets.high_watermark < awaited.offset:
                return None
            if len(self.isr.committed) < self.effective_min_isr():
                return Errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            return Errors.NONE

    # -- the ISR

    # Operators use these before they stop a broker, so a member whose removal is pending does not count.

    @property
    def is_under_replicated(self) -> bool:
        state = self.state
        return self.is_leader and len(self.isr.certain) < len(state.replicas) - len(state.adding_replicas)

    @property
    def is_under_min_isr(self) -> bool:
        return self.is_leader and len(self.isr.certain) < self.effective_min_isr()

    @property
    def is_at_min_isr(self) -> bool:
        return self.is_leader and len(self.isr.certain) == self.effective_min_isr()

    @property
    def is_being_reassigned(self) -> bool:
        state = self.state
        return self.is_leader and bool(state.adding_replicas or state.removing_replicas)

    def maybe_shrink_isr(self) -> IsrChange | None:
        """The change that removes members which fell behind or are no longer replicas.

        None if there are no such members, or if a change is pending.
        """
        leads = self.is_leader  # also without the lock: a follower that truncates holds it for long
        if not leads:
            return None
        with self._lock:
            if not self.is_leader or self.isr.is_pending:
                return None
            late = isr_rule.out_of_sync_replicas(
                self.isr.committed,
                self.followers,
                self.log.offsets.end,
                self._clock.monotonic_ms(),
                self._max_lag_ms,
            )
            late |= self.isr.committed.difference(self.followers, {self._broker_id})
            if not late:
                return None
            _log.info(
                "isr_shrinks",
                partition=str(self.topic_partition),
                before=sorted(self.isr.committed),
                after=sorted(self.isr.committed - late),
                replica_lag_time_max_ms=self._max_lag_ms,
            )
            return self._propose(self.isr.committed - late)

    def _maybe_expand(self, broker_id: int) -> IsrChange | None:
        """The change that lets a caught-up follower join the ISR, which it is not in."""
        if self.isr.is_pending or not self._alive(broker_id):
            return None
        if not isr_rule.may_join(
            self.followers[broker_id], self.log.offsets.high_watermark, self._leader_epoch_start
        ):
            return None
        after = self.isr.committed | {broker_id}
        _log.info(
            "isr_expands",
            partition=str(self.topic_partition),
            before=sorted(self.isr.committed),
            after=sorted(after),
        )
        return self._propose(after)

    def _propose(self, isr: frozenset[int]) -> IsrChange:
        self.isr = self.isr.propose(isr)
        members = tuple(sorted(isr))
        epochs = tuple(self.followers[m].broker_epoch if m in self.followers else NO_EPOCH for m in members)
        state = self.state
        return IsrChange(
            self.topic_partition, self.topic_id, state.leader_epoch, state.partition_epoch, members, epochs
        )

    def on_isr_changed(
        self, change: IsrChange, isr: tuple[int, ...], leader_epoch: int, partition_epoch: int
    ) -> bool:
        """Applies a change that the controller accepted; True if the high watermark advanced."""
        with self._lock:
            state = self.state
            if not self._is_current(change) or leader_epoch != state.leader_epoch:
                return False
            if partition_epoch < state.partition_epoch:
                return False
            self.isr = IsrState(frozenset(isr))
            self.state = state._replace(isr=isr, partition_epoch=partition_epoch)
            return self._advance_high_watermark(self._clock.monotonic_ms())

    def on_isr_change_refused(self, change: IsrChange, error: Errors) -> bool:
        """Handles a refusal by the controller. True if the change should be sent again.

        INELIGIBLE_REPLICA and OPERATION_NOT_ATTEMPTED restore the committed ISR. Errors that mean this leader
        is outdated leave the change pending until the controller's LeaderAndIsr arrives.
        """
        with self._lock:
            if not self._is_current(change):
                return False
            if error in (Errors.INELIGIBLE_REPLICA, Errors.OPERATION_NOT_ATTEMPTED):
                self.isr = self.isr.rolled_back()
                return False
            return error not in isr_rule.WAIT_FOR_CONTROLLER

    def _is_current(self, change: IsrChange) -> bool:
        state = self.state
        return (
            self.is_leader
            and state.leader_epoch == change.leader_epoch
            and state.partition_epoch == change.partition_epoch
            and self.isr.proposed == frozenset(change.isr)
        )

    def advance_high_watermark(self) -> bool:
        """Recomputes the high watermark after time passed or configs changed; True if it advanced."""
        leads = self.is_leader  # also without the lock: see maybe_shrink_isr
        if not leads:
            return False
        with self._lock:
            return self.is_leader and self._advance_high_watermark(self._clock.monotonic_ms())

    def _advance_high_watermark(self, now_ms: int) -> bool:
        log = self.log
        before = log.offsets.high_watermark
        mark = isr_rule.next_high_watermark(
            before,
            log.durability.committable_end,
            self.isr,
            self.followers,
            min_isr=log.config.min_insync_replicas,
            now_ms=now_ms,
            max_lag_ms=self._max_lag_ms,
            may_come=self._alive,
        )
        if mark <= before:
            return False
        log.offsets.mark(mark)
        return True
