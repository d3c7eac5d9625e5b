"""A consumer group under any sequence of requests, losses and restarts: nobody has a partition that another has."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from broker.coordinator.group.consumer.group import ConsumerGroup, ConsumerGroupState, current_of, metadata_of
from broker.coordinator.group.consumer.heartbeats import heartbeat, on_time, start
from broker.coordinator.group.consumer.messages import (
    ClusterTopics,
    ConsumerGroupLimits,
    HeartbeatRequest,
    HeartbeatResult,
)
from broker.coordinator.group.consumer.records import TopicRecord, decode_key
from broker.coordinator.group.consumer.stored import StoredConsumerGroup
from broker.coordinator.group.messages import Append, Moment, Reply
from broker.coordinator.group.regex_matches import RegexMatches, regex_to_match
from broker.protocol.errors import Errors

LIMITS = ConsumerGroupLimits(session_timeout_ms=45_000)
REBALANCE_MS = 30_000
NAMES = ["t1", "t2", "t3"]
REGEX_NAMES = frozenset({"t1", "t2"})
CLIENTS = ["a", "b", "c", "d"]


@dataclass
class Client:
    """A consumer as KIP-848 has it: it uses what it was assigned, and gives up what it was not."""

    name: str
    names: frozenset[str]
    instance_id: str | None
    member_id: str
    epoch: int = 0
    owned: dict = field(default_factory=dict)
    told: dict | None = None  # what it has been assigned, while it still has to revoke something
    due_ms: int = 0
    by_regex: bool = False  # both or neither of the first two topics


class Groups(RuleBasedStateMachine):
    """One group, its clients, and the log that outlives the group."""

    def __init__(self):
        super().__init__()
        self.group = ConsumerGroup("g")
        self.matches = RegexMatches()
        self.clients: dict[str, Client] = {}
        self.log: dict[bytes, bytes | None] = {}
        self.now_ms = 0
        self.serial = 0
        self.fails = False
        self.topics = ClusterTopics(
            0, {name: TopicRecord(uuid.UUID(int=n + 1), name, 2 + n) for n, name in enumerate(NAMES)}
        )

    # -- what the coordinator does

    def now(self):
        return Moment(self.now_ms, self.now_ms)

    def carry_out(self, effects):
        pending = list(effects)
        while pending:
            effect = pending.pop(0)
            if isinstance(effect, Reply):
                effect.respond(effect.result)
                continue
            assert isinstance(effect, Append)
            error = Errors.NOT_ENOUGH_REPLICAS if self.fails else Errors.NONE
            if not self.fails:
                self.log.update(effect.records)
            pending += effect.then(error, 0, self.now())

    def ask(self, client, epoch, **fields) -> HeartbeatResult:
        answers: list[HeartbeatResult] = []
        request = HeartbeatRequest(
            client.member_id, epoch, answers.append, instance_id=client.instance_id, **fields
        )
        missing = regex_to_match(self.group, request, self.topics)
        request = self.matches.matched(request, missing, self.topics)
        self.carry_out(heartbeat(self.group, request, self.now(), LIMITS, self.topics))
        (answer,) = answers
        return answer

    # -- what clients do

    def beat(self, client, *, lost=False, slow=False):
        if client.told is not None and not slow:  # it has revoked
            client.owned, client.told = client.told, None
        whole = {
            "rebalance_timeout_ms": REBALANCE_MS,
            "subscribed_names": client.names - REGEX_NAMES if client.by_regex else client.names,
            "subscribed_regex": "t[12]" if client.by_regex and client.names & REGEX_NAMES else "",
        }
        owned = {} if client.epoch == 0 else {topic: frozenset(n) for topic, n in client.owned.items()}
        answer = self.ask(client, client.epoch, owned=owned, **whole)
        if lost:
            return
        if answer.error in {
            Errors.FENCED_MEMBER_EPOCH,
            Errors.UNKNOWN_MEMBER_ID,
            Errors.UNRELEASED_INSTANCE_ID,
        }:
            # It gives up everything and joins as another member.
            self.serial += 1
            client.owned, client.told, client.epoch, client.member_id = (
                {},
                None,
                0,
                f"{client.name}{self.serial}",
            )
            return
        if answer.error is not Errors.NONE:
            assert self.fails
            return
        client.epoch = answer.member_epoch
        client.due_ms = self.now_ms + LIMITS.session_timeout_ms
        if answer.assignment is not None:
            self.take(client, dict(answer.assignment))

    def take(self, client, assignment):
        """It uses what is new at once, unless it must revoke something first."""
        if all(numbers <= assignment.get(topic, frozenset()) for topic, numbers in client.owned.items()):
            client.owned, client.told = assignment, None
        else:
            client.told = assignment

    @rule(
        name=st.sampled_from(CLIENTS),
        names=st.frozensets(st.sampled_from(NAMES), min_size=1),
        static=st.booleans(),
        by_regex=st.booleans(),
    )
    def join(self, name, names, static, by_regex):
        if name not in self.clients:
            self.serial += 1
            self.clients[name] = Client(name, names, f"i-{name}" if static else None, f"{name}{self.serial}")
        if by_regex and names & REGEX_NAMES:
            names |= REGEX_NAMES
        self.clients[name].names, self.clients[name].by_regex = names, by_regex
        self.beat(self.clients[name])

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), lost=st.booleans(), slow=st.booleans())
    def any_beat(self, data, lost, slow):
        client = self.clients[data.draw(st.sampled_from(sorted(self.clients)))]
        self.beat(client, lost=lost, slow=slow)

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), for_now=st.booleans())
    def leave(self, data, for_now):
        name = data.draw(st.sampled_from(sorted(self.clients)))
        client = self.clients.pop(name)
        self.ask(client, -2 if for_now and client.instance_id else -1)

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def stop_without_a_word(self, data):
        del self.clients[data.draw(st.sampled_from(sorted(self.clients)))]

    # -- what else happens

    @rule(after_ms=st.sampled_from([1_000, REBALANCE_MS, LIMITS.session_timeout_ms]))
    def time_passes(self, after_ms):
        self.now_ms += after_ms
        for client in self.clients.values():
            if client.due_ms <= self.now_ms or client.epoch == 0:
                client.owned, client.told = {}, None  # a consumer gives up all when its session is over
            elif after_ms >= REBALANCE_MS:
                client.owned, client.told = {}, None  # max.poll.interval.ms has passed, too
        self.carry_out(on_time(self.group, self.now()))

    @rule(more=st.integers(1, 3), name=st.sampled_from(NAMES))
    def topic_grows(self, more, name):
        topic = self.topics.by_name[name]
        if topic.partitions < 9:
            grown = TopicRecord(topic.topic_id, name, topic.partitions + more)
            self.topics = ClusterTopics(self.topics.version + 1, {**self.topics.by_name, name: grown})

    @rule(fails=st.booleans())
    def log_fails_or_recovers(self, fails):
        self.fails = fails

    @rule()
    def coordinator_moves(self):
        """Another broker reads the log."""
        self.group = self.stored()
        start(self.group, self.now(), LIMITS)

    def stored(self) -> ConsumerGroup:
        stored = StoredConsumerGroup("g")
        for key, value in self.log.items():
            stored.feed(decode_key(key), value)
        return stored.restore()

    @rule()
    def everything_settles(self):
        """With a few heartbeats of everybody the group is stable, and every partition has its consumer."""
        self.fails = False
        self.now_ms += 2 * LIMITS.session_timeout_ms  # whoever has stopped is gone
        self.carry_out(on_time(self.group, self.now()))
        for client in self.clients.values():
            client.owned, client.told = {}, None
        for _ in range(12):
            for client in self.clients.values():
                self.beat(client)
        if not self.clients:
            return
        assert self.group.state is ConsumerGroupState.STABLE
        used = [
            p
            for client in self.clients.values()
            for t, n in client.owned.items()
            for p in ((t, one) for one in n)
        ]
        wanted = {name for client in self.clients.values() for name in client.names}
        assert len(used) == sum(self.topics.by_name[name].partitions for name in wanted)

    # -- invariants

    @invariant()
    def nobody_uses_what_another_uses(self):
        used = [(t, one) for client in self.clients.values() for t, n in client.owned.items() for one in n]
        assert len(used) == len(set(used))

    @invariant()
    def no_partition_has_two_holders(self):
        held = [
            (topic, one)
            for member in self.group.members.values()
            for assignment in (member.assigned, member.pending_revocation)
            for topic, numbers in assignment.items()
            for one in numbers
        ]
        assert len(held) == len(set(held))
        assert not any(self.group.is_free(*partition) for partition in held)

    @invariant()
    def no_epoch_passes_the_groups(self):
        assert self.group.assignment_epoch <= self.group.epoch
        assert all(m.member_epoch <= self.group.assignment_epoch for m in self.group.members.values())

    @invariant()
    def nothing_is_held_for_members_that_are_gone(self):
        members = self.group.members.keys()
        assert self.group.targets.keys() <= members
        assert set(self.group.static_members.values()) <= members
        assert self.group.sessions.keys() <= members
        assert self.group.revocations.keys() <= members
        if not members:
            assert self.group.weight == ConsumerGroup("g").weight
            assert not self.group.subscribed_topics

    @invariant()
    def what_is_not_to_be_written_is_in_the_log(self):
        if self.group.unstored.noted:
            return
        stored = self.stored()
        assert stored.epoch == self.group.epoch
        assert stored.assignment_epoch == self.group.assignment_epoch
        assert dict(stored.topics) == dict(self.group.topics)
        assert {m: t for m, t in stored.targets.items() if t} == {
            m: t for m, t in self.group.targets.items() if t
        }
        assert {m: (metadata_of(one), current_of(one)) for m, one in stored.members.items()} == {
            m: (metadata_of(one), current_of(one)) for m, one in self.group.members.items()
        }
        assert dict(stored.regexes) == dict(self.group.regexes)
        assert stored.weight == self.group.weight


TestGroups = Groups.TestCase
TestGroups.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
