"""Hypothesis's machine over the modelled cluster: what may happen to a replicated partition, in any order.

Each rule is one thing that threads, networks, operators or disasters do. Messages are chosen by number
among those on their way, so that they are delayed, reordered, repeated and lost. Some rules do several
things undisturbed: a search needs records that are committed and roles that are taken before there is
something to lose.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.model.broker import TP, ModelBroker
from tests.model.cluster import BROKERS, ModelCluster

T = TypeVar("T")
# Where the partition is moved: another order, one replica fewer, all of them again; None cancels.
TARGETS = st.sampled_from([None, (2, 1, 3), (3, 2), (1, 3), BROKERS])
# By role, not by number: most that can go wrong is about the leader, or a follower of it.
ROLES = st.integers(0, len(BROKERS) - 1)
NUMBER = st.integers(0, 3)
_SHM = Path("/dev/shm")


def pick(items: Sequence[T], number: int) -> T:
    return items[number % len(items)]


class ReplicationMachine(RuleBasedStateMachine):
    """``cluster`` is checked after every step: see :mod:`tests.model.ledger`."""

    unclean = False
    eligible = False

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(
            tempfile.mkdtemp(prefix="replication-model-", dir=_SHM if _SHM.is_dir() else None)
        )

    @initialize()
    def begin(self) -> None:
        self.cluster = ModelCluster(self.directory, unclean=self.unclean, eligible=self.eligible)

    def teardown(self) -> None:
        if hasattr(self, "cluster"):
            self.cluster.close()
        shutil.rmtree(self.directory)

    def _broker(self, role: int) -> ModelBroker:
        """The leader that the store names is 0, the others follow by number."""
        state = self.cluster.state
        leader = 1 if state is None or state.leader < 0 else state.leader
        return self.cluster.brokers[(leader, *(b for b in BROKERS if b != leader))[role]]

    # -- clients

    @rule(acks=st.sampled_from([-1, -1, 1]), count=st.integers(1, 3))
    def produce(self, acks: int, count: int) -> None:
        leader = self.cluster.leader
        if leader is not None:
            self.cluster.produce(leader, acks, count)

    @rule(role=ROLES, acks=st.sampled_from([-1, 1]))
    def produce_by_old_metadata(self, role: int, acks: int) -> None:
        if self._broker(role).up:
            self.cluster.produce(self._broker(role), acks)

    @rule(role=ROLES, back=st.integers(0, 2))
    def consume(self, role: int, back: int) -> None:
        if self._broker(role).leads:
            self.cluster.consume(self._broker(role), max(len(self.cluster.ledger.values) - back, 0))

    # -- following

    @rule(role=ROLES)
    def replicate(self, role: int) -> None:
        self.cluster.replicate(self._broker(role))

    @rule()
    def commit(self) -> None:
        self.cluster.commit()

    @rule()
    def produce_and_commit(self) -> None:
        leader = self.cluster.leader
        if leader is not None:
            self.cluster.produce(leader, -1, 2)
            self.cluster.commit()

    @rule(role=ROLES)
    def fetch_without_hearing(self, role: int) -> None:
        self.cluster.fetch_without_hearing(self._broker(role))

    @rule(role=ROLES)
    def send_fetch(self, role: int) -> None:
        self.cluster.send_fetch(self._broker(role))

    @precondition(lambda self: self.cluster.messages.fetches)
    @rule(number=NUMBER)
    def serve_fetch(self, number: int) -> None:
        messages = self.cluster.messages
        flight = pick(messages.fetches, number)
        messages.fetches.remove(flight)
        frame = self.cluster.serve_fetch(flight)
        if frame is not None:
            messages.fetched.append((flight, frame))

    @precondition(lambda self: self.cluster.messages.fetched)
    @rule(number=NUMBER)
    def take_fetched(self, number: int) -> None:
        messages = self.cluster.messages
        flight, frame = messages.fetched.pop(number % len(messages.fetched))
        self.cluster.take_fetched(flight, frame)

    # -- the ISR

    @rule(role=ROLES, agreed=st.booleans())
    def fall_behind(self, role: int, agreed: bool) -> None:
        self.cluster.fall_behind(self._broker(role), agreed=agreed)

    @rule(role=ROLES)
    def change_isr(self, role: int) -> None:
        if self._broker(role).up:
            self.cluster.change_isr(self._broker(role))

    @rule(role=ROLES)
    def send_alter(self, role: int) -> None:
        if self._broker(role).up:
            self.cluster.send_alter(self._broker(role))

    @precondition(lambda self: self.cluster.messages.alters)
    @rule(number=NUMBER, keep=st.booleans(), stale=st.booleans())
    def serve_alter(self, number: int, keep: bool, stale: bool) -> None:
        """By whichever controller it reaches; kept, it arrives again, as after a lost answer."""
        messages, cluster = self.cluster.messages, self.cluster
        office = cluster.stale[-1] if stale and cluster.stale else cluster.office
        row = pick(messages.alters, number)
        if not keep:
            messages.alters.remove(row)
        if office is not None:
            broker_id, life, batch, message = row
            messages.altered.append((broker_id, life, batch, cluster.serve_alter(message, office)))

    @precondition(lambda self: self.cluster.messages.altered)
    @rule(number=NUMBER, lost=st.booleans())
    def take_altered(self, number: int, lost: bool) -> None:
        messages = self.cluster.messages
        broker_id, life, batch, fields = messages.altered.pop(number % len(messages.altered))
        self.cluster.take_altered(broker_id, life, batch, None if lost else fields)

    # -- the controller's word

    @precondition(lambda self: self.cluster.office is not None)
    @rule(count=st.integers(1, 3))
    def controller_works(self, count: int) -> None:
        assert self.cluster.office is not None
        self.cluster.run_events(self.cluster.office, count)

    @precondition(lambda self: self.cluster.stale)
    @rule(number=NUMBER, count=st.integers(1, 3))
    def stale_controller_works(self, number: int, count: int) -> None:
        self.cluster.run_events(pick(self.cluster.stale, number), count)

    @precondition(lambda self: self.cluster.office is not None)
    @rule(role=ROLES, count=st.sampled_from([1, 2, 9]), again=st.booleans())
    def deliver(self, role: int, count: int, again: bool) -> None:
        broker_id = self._broker(role).broker_id
        for _ in range(count):
            if self.cluster.office is not None:
                self.cluster.deliver(self.cluster.office, broker_id, again=again)

    @precondition(lambda self: self.cluster.stale)
    @rule(role=ROLES, number=NUMBER, again=st.booleans())
    def deliver_from_stale_controller(self, role: int, number: int, again: bool) -> None:
        office = pick(self.cluster.stale, number)
        self.cluster.deliver(office, self._broker(role).broker_id, again=again)

    @precondition(lambda self: self.cluster.messages.late)
    @rule()
    def deliver_late(self) -> None:
        self.cluster.deliver_late()

    @rule(role=ROLES)
    def change_controller(self, role: int) -> None:
        broker = self._broker(role)
        if self.cluster.is_registered(broker):
            self.cluster.elect_controller(broker.broker_id)

    @precondition(lambda self: self.cluster.office is not None)
    @rule()
    def elect_preferred(self) -> None:
        office = self.cluster.office
        assert office is not None
        self.cluster.govern(office, lambda: office.term.preferred.elect([TP]))

    @precondition(lambda self: self.cluster.office is not None)
    @rule(replicas=TARGETS)
    def reassign(self, replicas: tuple[int, ...] | None) -> None:
        self.cluster.reassign(replicas)

    # -- brokers

    @rule(role=ROLES)
    def kill(self, role: int) -> None:
        broker = self._broker(role)
        if broker.up:
            self.cluster.kill(broker)

    @rule(role=ROLES)
    def expire_session(self, role: int) -> None:
        self.cluster.expire_session(self._broker(role))

    @rule(role=ROLES)
    def register_again(self, role: int) -> None:
        broker = self._broker(role)
        if broker.up and not self.cluster.is_registered(broker):
            self.cluster.register(broker)

    @rule(role=ROLES)
    def restart(self, role: int) -> None:
        broker = self._broker(role)
        if not broker.up:
            self.cluster.restart(broker)

    @rule(role=ROLES, kept=st.integers(0, 3))
    def lose_power(self, role: int, kept: int) -> None:
        """Another member of the ISR has to be there, or an eligible replica: with the last one its unsynced
        records go, in Kafka too.
        """
        broker = self._broker(role)
        members = [*self.cluster.members, *self.cluster.eligible_replicas]
        others = [b for b in members if b is not broker and self.cluster.is_registered(b)]
        if broker.up and others:
            self.cluster.lose_power(broker, kept)

    @rule(role=ROLES)
    def sync(self, role: int) -> None:
        """The periodic flush and the high watermark's checkpoint."""
        broker = self._broker(role)
        if broker.up and broker.log is not None:
            broker.log.flush()
            broker.logs.checkpoint_recovery_points()
            broker.replicas.checkpoint_high_watermarks()

    @rule(role=ROLES, goes=st.booleans())
    def shut_down(self, role: int, goes: bool) -> None:
        broker = self._broker(role)
        if broker.up:
            self.cluster.shut_down(broker)
            if goes:
                self.cluster.stop(broker)

    @rule(role=ROLES)
    def fail_over(self, role: int) -> None:
        broker = self._broker(role)
        if broker.up:
            self.cluster.fail_over(broker)

    @rule(role=ROLES, joins=st.booleans())
    def come_back(self, role: int, joins: bool) -> None:
        self.cluster.come_back(self._broker(role), joins=joins)

    @rule()
    def settle(self) -> None:
        deleting = self.cluster.is_deleting
        self.cluster.settle()
        if deleting:
            assert self.cluster.state is None, "a deleted topic is still there"
        else:
            self.cluster.check_rest()

    # -- the topic

    @precondition(lambda self: not self.cluster.is_deleting)
    @rule()
    def delete_topic(self) -> None:
        """The controller may send what deletes the replicas, and be replaced before it has arrived everywhere."""
        self.cluster.delete_topic()
        if self.cluster.office is not None:
            self.cluster.run_events(self.cluster.office)

    @precondition(lambda self: self.cluster.is_deleting)
    @rule()
    def create_topic_again(self) -> None:
        self.cluster.settle()
        self.cluster.create_topic()

    # -- what must always hold

    @invariant()
    def nothing_committed_is_lost(self) -> None:
        self.cluster.check()

    @invariant()
    def the_isr_is_never_empty_and_has_its_leader(self) -> None:
        state = self.cluster.state
        if state is not None:
            assert state.isr, f"an empty ISR: {state}"
            assert state.leader in (*state.isr, -1), f"a leader out of its ISR: {state}"
