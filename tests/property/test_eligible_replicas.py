"""A partition under a real controller's term, with brokers whose logs are lists of records: whatever happens,
who is elected though not in the ISR has every committed record.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from broker.controller import eligible_replicas
from broker.controller.eligible_replicas import led_though_eligible_could
from broker.server.registration.deposition import led_though_others_could
from broker.utils.topic_partition import TopicPartition
from broker.zookeeper.znodes import LeaderRecoveryState
from tests.support.mutations import Mutation, Patch, mutated
from tests.support.term_world import SETTINGS, TermWorld

pytestmark = pytest.mark.usefixtures("quiet")

T = TopicPartition("t", 0)
REPLICAS = (1, 2, 3)
MIN_ISR = "min.insync.replicas"
one_replica = st.sampled_from(REPLICAS)


class Partition(RuleBasedStateMachine):
    """``elected`` counts leaders from outside of the ISR, for the test to see that there are some."""

    elected = 0

    def __init__(self) -> None:
        super().__init__()
        self.world = TermWorld(
            dict.fromkeys((0, *REPLICAS), None), settings=replace(SETTINGS, eligible_replicas=True)
        )
        self.world.elect()
        self.min_isr = 2
        self.world.create("t", {0: REPLICAS}, **{MIN_ISR: "2"})
        self.logs: dict[int, list[int]] = {replica: [] for replica in REPLICAS}
        self.committed: set[int] = set()
        self.first_epochs = {replica: self.world.cluster.broker(replica).epoch for replica in REPLICAS}
        self.records = 0
        self.seen = self.world.state(T)

    # -- what is there

    def is_alive(self, replica: int) -> bool:
        return self.world.cluster.broker(replica) is not None

    def leader(self) -> int | None:
        leader = self.seen.leader
        return leader if leader in REPLICAS and self.is_alive(leader) else None

    @invariant()
    def look(self) -> None:
        """Who leads since the last look has what is committed, unless it is the ISR's own matter."""
        before, self.seen = self.seen, self.world.state(T)
        leader = self.seen.leader
        if leader < 0 or leader == before.leader:
            return
        lost = self.committed - set(self.logs[leader])
        if leader not in before.isr:
            assert self.seen.recovery_state is LeaderRecoveryState.RECOVERED
            assert not lost, f"{leader} lacks {lost}: {before} became {self.seen}"
            type(self).elected += 1
        self.committed -= lost  # power was lost on all of the ISR

    # -- records

    @rule()
    def produce_to_all(self) -> None:
        leader, isr = self.leader(), self.seen.isr
        if leader is None or not all(self.is_alive(member) for member in isr):
            return
        if len(isr) < min(self.min_isr, len(REPLICAS)):
            return
        self.records += 1
        self.logs[leader].append(self.records)
        for member in isr:
            self.logs[member] = list(self.logs[leader])
        self.committed.add(self.records)
        # What came before it is committed with it.
        self.committed |= set(self.logs[leader])

    @rule()
    def produce_to_the_leader_alone(self) -> None:
        if (leader := self.leader()) is not None:
            self.records += 1
            self.logs[leader].append(self.records)

    @rule(replica=one_replica)
    def fetch(self, replica: int) -> None:
        leader = self.leader()
        if leader is not None and self.is_alive(replica):
            self.logs[replica] = list(self.logs[leader])

    # -- the ISR, as its leader sees to it

    @precondition(lambda self: self.world.term is not None)
    @rule(gone=st.sets(one_replica, min_size=1))
    def shrink(self, gone: set[int]) -> None:
        leader = self.leader()
        if leader is not None:
            self.world.alter_isr(T, [m for m in self.seen.isr if m == leader or m not in gone])

    @precondition(lambda self: self.world.term is not None)
    @rule(replica=one_replica)
    def grow(self, replica: int) -> None:
        leader = self.leader()
        if leader is not None and self.is_alive(replica) and replica not in self.seen.isr:
            self.fetch(replica)
            self.world.alter_isr(T, [*self.seen.isr, replica])

    # -- brokers

    @rule(replica=one_replica, kept=st.integers(0, 5))
    def lose_power(self, replica: int, kept: int) -> None:
        """The end of the log goes: all but so many records, at most."""
        if self.is_alive(replica):
            self.world.leave(replica)
            self.look()
            log = self.logs[replica]
            self.logs[replica] = log[: max(0, len(log) - kept)]

    @rule(replica=one_replica)
    def kill(self, replica: int) -> None:
        if self.is_alive(replica):
            self.world.leave(replica)

    @rule(replica=one_replica, is_patient=st.booleans())
    def start(self, replica: int, is_patient: bool) -> None:
        """Who has to wait to be deposed is not registered yet; not for ever, though."""
        if self.is_alive(replica):
            return
        states, brokers = {T: self.seen}, self.world.cluster.brokers()
        by_others = led_though_others_could(replica, states, brokers)
        if is_patient and (by_others or led_though_eligible_could(replica, states, brokers)):
            return
        self.first_epochs[replica] = self.world.join(replica)

    @rule(replicas=st.sets(one_replica, min_size=1))
    def lose_sessions(self, replicas: set[int]) -> None:
        """Processes live on and register again, when all of these sessions have ended."""
        lost = [replica for replica in replicas if self.is_alive(replica)]
        for replica in lost:
            self.world.leave(replica)
            self.look()
        for replica in lost:
            self.world.join(replica, first_epoch=self.first_epochs[replica])
            self.look()

    # -- the controller, and the configs

    @precondition(lambda self: self.world.term is not None)
    @rule()
    def lose_the_controller(self) -> None:
        self.world.depose()

    @rule()
    def elect_a_controller(self) -> None:
        self.world.elect()

    @rule(value=st.integers(1, 3))
    def set_min_isr(self, value: int) -> None:
        self.min_isr = value
        self.world.cluster.set_entity_config("topics", "t", {MIN_ISR: str(value)})


class Restarts(Partition):
    """Without what those who break a rule need not: a search finds them ten times sooner."""

    set_min_isr = lose_the_controller = elect_a_controller = produce_to_the_leader_alone = None


SETTINGS_OF_SEARCH = settings(max_examples=200, stateful_step_count=40, deadline=None)


def test_who_is_elected_from_outside_of_the_isr_has_all_that_is_committed() -> None:
    Partition.elected = 0
    run_state_machine_as_test(Partition, settings=SETTINGS_OF_SEARCH)
    assert Partition.elected


def test_what_was_committed_while_fewer_were_required_is_not_lost_when_it_is_as_before() -> None:
    """Found by a search with a seed of chance."""
    partition = Partition()
    partition.lose_sessions({1, 2})
    partition.set_min_isr(1)
    partition.produce_to_all()
    partition.set_min_isr(2)
    partition.lose_sessions({1, 2, 3})
    partition.look()
    assert partition.committed == {1}


@pytest.mark.parametrize(
    ("rule_of", "broken"),
    [
        ("who_is_whole", lambda eligible, brokers: [each for each in eligible if each in brokers]),
        (
            "epochs_eligible",
            lambda before, after, replicas, configs: dict.fromkeys({*replicas} - {*after.isr}, 1 << 60),
        ),
    ],
    ids=["restarts are not looked at", "who left before counts too"],
)
@pytest.mark.timeout(600)
def test_the_search_finds_a_broken_rule(rule_of, broken) -> None:
    mutation = Mutation(rule_of, "", (Patch(eligible_replicas, rule_of, lambda _rule: broken),))
    found = settings(
        SETTINGS_OF_SEARCH,
        max_examples=5000,
        phases=[Phase.generate],
        database=None,
        print_blob=False,
        report_multiple_bugs=False,  # The first is enough.
    )
    with mutated(mutation), pytest.raises(AssertionError, match="lacks"):
        run_state_machine_as_test(Restarts, settings=found)
