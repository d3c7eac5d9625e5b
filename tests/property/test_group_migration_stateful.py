"""A group under any sequence of requests by members of both protocols, which change its protocol while it has members.

No partition has two owners, by what clients were told; every live member gets its share; offsets stay; and no epoch or
generation goes back while the group has members.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker.coordinator.group.embedded import decode_assignment, decode_subscription
from broker.coordinator.group.messages import JoinResult
from broker.protocol.errors import Errors
from broker.utils.topic_partition import TopicPartition
from tests.support.consumer_group_fakes import SESSION_MS as CONSUMER_SESSION_MS
from tests.support.consumer_group_fakes import TOPIC
from tests.support.group_fakes import REBALANCE_MS, SESSION_MS, Answers
from tests.support.migration_fakes import MigrationHarness, assignment, range_of

NAMES = ["a", "b", "c", "d"]
STEP_MS = 1_000


@dataclass
class Client:
    """A consumer. ``owned``: what it reads now. ``epoch``: the epoch or generation that it was told last."""

    world: Groups
    name: str
    member_id: str = ""
    epoch: int = 0
    least_epoch: int = 0
    owned: set[int] = field(default_factory=set)
    due_ms: int = 0

    def alive(self, session_ms: int) -> None:
        """It has heard from the coordinator."""
        self.due_ms = self.world.now_ms + session_ms

    def lose_all(self) -> None:
        self.owned, self.epoch, self.least_epoch = set(), 0, 0

    def told_epoch(self, epoch: int) -> None:
        assert epoch >= self.least_epoch, f"{self.name}: {epoch} after {self.least_epoch}"
        self.epoch = self.least_epoch = epoch
        self.world.greatest = max(self.world.greatest, epoch)

    def collect(self) -> None:
        """Takes the answers that have come."""

    def forget_generation(self) -> None:
        """The coordinator may not know the last generation."""


@dataclass
class Modern(Client):
    """A consumer of KIP-848. ``told``: its assignment, while it has still to revoke something."""

    told: set[int] | None = None

    def act(self, *, slow: bool = False) -> None:
        if self.told is not None and not slow:
            self.owned, self.told = self.told, None  # it has revoked
        joins = self.epoch == 0
        answer = self.world.h.beat(
            self.member_id,
            self.epoch,
            rebalance_timeout_ms=REBALANCE_MS,
            subscribed_names=frozenset({"t"}),
            owned={TOPIC: frozenset(self.owned)} if self.owned and not joins else {},
        )
        if answer.error in (Errors.FENCED_MEMBER_EPOCH, Errors.UNKNOWN_MEMBER_ID, Errors.GROUP_ID_NOT_FOUND):
            self.lose_all()
            self.member_id = self.world.new_id(self.name)
        if answer.error is not Errors.NONE:
            return
        self.told_epoch(answer.member_epoch)
        self.alive(CONSUMER_SESSION_MS)
        if answer.assignment is not None:
            numbers = set(answer.assignment.get(TOPIC, ()))
            if self.owned <= numbers:
                self.owned, self.told = numbers, None
            else:
                self.told = numbers

    def lose_all(self) -> None:
        super().lose_all()
        self.told = None

    def leave(self) -> None:
        self.world.h.beat(self.member_id, -1)


@dataclass
class Classic(Client):
    """A consumer of the classic protocol. An eager one gives up all before it joins; a cooperative one gives up only
    what it is not assigned again, and then joins once more.
    """

    joining: Answers | None = None
    syncing: Answers | None = None
    is_in: bool = False
    divided: int | None = None  # how many partitions it divided as the leader of a classic group

    def act(self, *, slow: bool = False) -> None:
        if self.joining is not None:
            return
        sees_more = self.divided is not None and self.divided != self.world.partitions
        if self.syncing is None and (sees_more or not self.is_in):
            self.join()
            return
        error = self.world.h.heartbeat(JoinResult(self.member_id, Errors.NONE, self.epoch))
        if error in (Errors.NONE, Errors.REBALANCE_IN_PROGRESS):
            self.alive(SESSION_MS)
        if error is Errors.REBALANCE_IN_PROGRESS and self.syncing is None and not slow:
            self.join()
        self.refused(error)

    def join(self) -> None:
        if not self.world.cooperative:
            self.owned = set()
        self.is_in = False
        self.joining = self.world.h.join(
            self.member_id, protocols=range_of(*sorted(self.owned)), require_known=True
        )
        self.collect()

    def collect(self) -> None:
        if self.joining is not None and not self.joining.waiting:
            joined, self.joining = self.joining.result, None
            self.take_joined(joined)
        if self.syncing is not None and not self.syncing.waiting:
            synced, self.syncing = self.syncing.result, None
            if synced.error is not Errors.NONE:
                self.refused(synced.error)
                return
            self.alive(SESSION_MS)
            numbers = set(decode_assignment(synced.assignment).get("t", ()))
            gives_up = self.owned - numbers
            self.owned, self.is_in = numbers, not gives_up

    def take_joined(self, joined: JoinResult) -> None:
        if joined.error is Errors.MEMBER_ID_REQUIRED:
            self.member_id = joined.member_id
            self.join()
        elif joined.error is not Errors.NONE:
            self.refused(joined.error)
        else:
            self.member_id = joined.member_id
            if self.world.kind == "classic":
                assert joined.generation_id >= self.world.greatest
            self.told_epoch(joined.generation_id)
            self.alive(SESSION_MS)
            self.divided = self.world.partitions if joined.members else None
            self.syncing = self.world.h.sync(joined, self.world.shares(joined))

    def refused(self, error: Errors) -> None:
        if error is Errors.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        if error in (Errors.UNKNOWN_MEMBER_ID, Errors.ILLEGAL_GENERATION):
            self.lose_all()
        if error not in (Errors.NONE, Errors.REBALANCE_IN_PROGRESS):
            self.is_in = False

    def forget_generation(self) -> None:
        self.least_epoch = 0

    def leave(self) -> None:
        if self.member_id:
            self.world.h.leave(self.member_id)


class Groups(RuleBasedStateMachine):
    """One group, its clients, and the log that outlives its coordinators."""

    @initialize(cooperative=st.booleans())
    def start(self, cooperative: bool) -> None:
        self.h = MigrationHarness()
        self.cooperative = cooperative
        self.clients: dict[str, Client] = {}
        self.offsets: dict[TopicPartition, int] = {}
        self.partitions = 4
        self.serial = 0
        self.leader_epoch = 0
        self.greatest = 0  # of the epochs that members were told, since the group had none

    # -- what clients ask of their world

    @property
    def now_ms(self) -> int:
        return self.h.clock.monotonic_ms()

    @property
    def group(self):
        cell = self.h.coordinator._registry.find(self.h.GROUP)
        return None if cell is None else cell.group

    @property
    def kind(self) -> str:
        return "classic" if self.group is None or self.group.consumer is None else "consumer"

    def new_id(self, name: str) -> str:
        self.serial += 1
        return f"{name}{self.serial}"

    def shares(self, joined: JoinResult) -> dict[str, bytes]:
        """The assignments by a classic leader. A cooperative one gives nobody what another has still to revoke."""
        owners = {
            number: one.member_id
            for one in joined.members
            for number in decode_subscription(one.metadata).owned.get("t", ())
        }
        ids = sorted(one.member_id for one in joined.members)
        shares: dict[str, set[int]] = {member_id: set() for member_id in ids}
        for number in range(self.partitions) if ids else ():
            taker = ids[number % len(ids)]
            if owners.get(number, taker) == taker:
                shares[taker].add(number)
        return {member_id: assignment(*sorted(numbers)) for member_id, numbers in shares.items()}

    def note_that_it_may_begin_anew(self) -> None:
        """A group without members begins with the first epoch when its protocol changes, as in Kafka."""
        group = self.group
        if group is None or not (group.members or (group.consumer is not None and group.consumer.members)):
            self.greatest = 0

    # -- rules

    def settle(self) -> None:
        """Answers reach their clients, and what answers make clients ask is answered, too."""
        for _ in range(3):
            for client in self.clients.values():
                client.collect()
        self.note_that_it_may_begin_anew()

    @rule(name=st.sampled_from(NAMES), modern=st.booleans())
    def begin(self, name: str, modern: bool) -> None:
        """A client starts, or is replaced by one of the other protocol as in a rolling upgrade."""
        if name in self.clients:
            self.clients.pop(name).leave()
            self.settle()
        made = Modern(self, name, self.new_id(name)) if modern else Classic(self, name)
        self.clients[name] = made
        made.act()
        self.settle()

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), slow=st.booleans())
    def one_acts(self, data: st.DataObject, slow: bool) -> None:
        self.clients[data.draw(st.sampled_from(sorted(self.clients)))].act(slow=slow)
        self.settle()

    @rule(rounds=st.integers(1, 4))
    def all_act(self, rounds: int) -> None:
        for _ in range(rounds):
            for client in self.clients.values():
                client.act()
                self.settle()

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), says_so=st.booleans())
    def end(self, data: st.DataObject, says_so: bool) -> None:
        client = self.clients.pop(data.draw(st.sampled_from(sorted(self.clients))))
        if says_so:
            client.leave()
        self.settle()

    @rule(seconds=st.sampled_from([1, 5, 20, 61]), silent=st.booleans())
    def time_passes(self, seconds: int, silent: bool) -> None:
        for _ in range(seconds):
            self.h.advance(STEP_MS)
            self.settle()
            for client in self.clients.values():
                if not silent:
                    client.act()
                    self.settle()
                is_waiting = isinstance(client, Classic) and client.joining is not None
                if client.due_ms <= self.now_ms and not is_waiting:
                    client.lose_all()

    @rule(more=st.integers(1, 2))
    def topic_grows(self, more: int) -> None:
        self.partitions = min(self.partitions + more, 8)
        self.h.has_topics(t=self.partitions)

    @rule(fails=st.booleans())
    def log_fails_or_recovers(self, fails: bool) -> None:
        self.h.appender.error = Errors.NOT_ENOUGH_REPLICAS if fails else Errors.NONE

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), offset=st.integers(1, 1_000))
    def commit(self, data: st.DataObject, offset: int) -> None:
        """A member commits for all that it owns; nobody else's commit counts."""
        client = self.clients[data.draw(st.sampled_from(sorted(self.clients)))]
        if not client.owned or client.epoch == 0:
            return
        wanted = {TopicPartition("t", number): offset for number in client.owned}
        answered = self.h.commit(wanted, client.member_id, client.epoch).result
        self.offsets |= {tp: offset for tp, error in answered.items() if error is Errors.NONE}

    @rule()
    def coordinator_moves(self) -> None:
        """Another broker reads the log. A generation that was not completed is not in it."""
        self.leader_epoch += 2
        self.h.coordinator.on_resignation(0, self.leader_epoch)
        self.h.restart(self.leader_epoch + 1)
        self.settle()
        self.greatest = 0
        for client in self.clients.values():
            client.forget_generation()

    @rule()
    def everything_settles(self) -> None:
        """When the dead are gone, a few heartbeats make the group stable, and every partition has its consumer."""
        self.h.appender.error = Errors.NONE
        for second in range(3 * REBALANCE_MS // STEP_MS):
            self.h.advance(STEP_MS)
            self.settle()
            for client in self.clients.values():
                client.act()
                self.settle()
            if second * STEP_MS > REBALANCE_MS and self.is_settled():
                break
        assert self.is_settled(), (self.kind, self.h.state(), self.clients)

    def is_settled(self) -> bool:
        owned = sorted(number for client in self.clients.values() for number in client.owned)
        if not self.clients:
            return not owned
        state = self.h.described().state if self.kind == "consumer" else self.h.state()
        modern = any(isinstance(client, Modern) for client in self.clients.values())
        return (
            state == "Stable"
            and owned == list(range(self.partitions))
            and self.kind == ("consumer" if modern else "classic")
        )

    # -- invariants

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        owned = [number for client in self.clients.values() for number in client.owned]
        assert len(owned) == len(set(owned)), self.clients

    @invariant()
    def offsets_are_those_that_were_committed(self) -> None:
        assert self.h.offsets() == self.offsets


TestGroups = Groups.TestCase
TestGroups.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
