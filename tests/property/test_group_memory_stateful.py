"""The memory of groups under random members, offsets, floods, failing logs and new coordinators.

Its account is what a recount gives; it stays within its bound; and whoever is in already is never refused.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from broker.coordinator.group.messages import JoinResult, MemberIdentity
from broker.coordinator.group.records import OffsetAndMetadata
from broker.protocol.errors import Errors
from broker.utils.topic_partition import TopicPartition
from tests.support.group_fakes import Answers, Harness, recounted_bytes

MOST = 60_000
GROUPS = st.sampled_from(["a", "b", "gruppe-ü", "d" * 500])
PARTITIONS = st.sampled_from([TopicPartition(topic, number) for topic in ("t", "u") for number in range(15)])
METADATA = st.sampled_from(["", "m" * 10, "m" * 500, "ü" * 900])
WORDS = st.sampled_from(
    [(("range", b"r"),), (("sticky", b"s" * 3_000), ("range", b"r")), (("range", b"r" * 9_000),)]
)


class MemoryMachine(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.h = Harness(landline_group_max_bytes=MOST, offsets_retention_minutes=1)
        self.epoch = 0
        self.loaded = 0
        self.joining: list[tuple[str, Answers]] = []
        self.members: dict[str, tuple[str, JoinResult]] = {}

    @rule(group=GROUPS, words=WORDS, static=st.booleans(), known=st.booleans())
    def join(self, group: str, words: tuple[tuple[str, bytes], ...], static: bool, known: bool) -> None:
        instance = f"i-{group}" if static else None
        require = known and not static
        self.joining.append(
            (group, self.h.join(group=group, protocols=words, instance=instance, require_known=require))
        )
        self.collect()

    @rule(member=st.integers(0, 9), words=WORDS)
    def join_again(self, member: int, words: tuple[tuple[str, bytes], ...]) -> None:
        for group, joined in list(self.members.values())[member : member + 1]:
            self.joining.append((group, self.h.join(joined.member_id, group=group, protocols=words)))
            self.collect()

    @rule(member=st.integers(0, 9))
    def join_again_with_the_same_words(self, member: int) -> None:
        for group, joined in list(self.members.values())[member : member + 1]:
            cell = self.h.coordinator._registry.find(group)
            known = None if cell is None else cell.group.members.get(joined.member_id)
            if known is not None and known.group_instance_id is None:
                answers = self.h.join(joined.member_id, group=group, protocols=known.protocols)
                self.joining.append((group, answers))
                assert answers.waiting or answers.error is not Errors.GROUP_MAX_SIZE_REACHED
                self.collect()

    @rule(member=st.integers(0, 9), size=st.sampled_from([0, 100, 5_000, 40_000]))
    def sync(self, member: int, size: int) -> None:
        for group, joined in list(self.members.values())[member : member + 1]:
            self.h.sync(joined, {one.member_id: bytes(size) for one in joined.members}, group=group)
            self.collect()

    @rule(member=st.integers(0, 9))
    def leave(self, member: int) -> None:
        for group, joined in list(self.members.values())[member : member + 1]:
            self.h.leave(MemberIdentity(joined.member_id), group=group)
            self.collect()

    @rule(group=GROUPS, partitions=st.sets(PARTITIONS, min_size=1), metadata=METADATA)
    def commit(self, group: str, partitions: set[TopicPartition], metadata: str) -> None:
        value = OffsetAndMetadata(1, -1, metadata, self.h.clock.wall_ms())
        self.h.commit(dict.fromkeys(partitions, value), group=group)

    @rule(group=GROUPS)
    def commit_again_what_is_there(self, group: str) -> None:
        cell = self.h.coordinator._registry.find(group)
        known = {} if cell is None else cell.group.offsets.all()
        if known and not self.h.appender.hold:
            answer = self.h.commit(known, group=group).result
            assert Errors.INVALID_COMMIT_OFFSET_SIZE not in answer.values()

    @rule(topic=st.sampled_from(["t", "u"]))
    def delete_topic(self, topic: str) -> None:
        self.h.coordinator.on_partitions_deleted([TopicPartition(topic, number) for number in range(15)])

    @rule(group=GROUPS)
    def delete_group(self, group: str) -> None:
        self.h.coordinator.delete(group, lambda _error: None)

    @rule(duration_ms=st.sampled_from([500, 3_000, 11_000, 61_000, 301_000]))
    def time_passes(self, duration_ms: int) -> None:
        self.h.advance(duration_ms)
        self.collect()

    @rule()
    def what_expired_is_cleaned(self) -> None:
        self.h.coordinator.delete_expired()

    @rule(error=st.sampled_from([Errors.NONE, Errors.NONE, Errors.NOT_ENOUGH_REPLICAS]), hold=st.booleans())
    def log_changes_its_mood(self, error: Errors, hold: bool) -> None:
        self.h.appender.error, self.h.appender.hold = error, hold
        self.h.appender.release(error)
        self.collect()

    @rule()
    def another_broker_takes_over(self) -> None:
        self.epoch += 1
        before = self.h.coordinator
        before.on_resignation(0, self.epoch)
        assert before._memory.held == 0
        self.h.restart(self.epoch)
        self.loaded = self.h.held_bytes
        self.collect()

    def collect(self) -> None:
        waiting = [(group, answers) for group, answers in self.joining if answers.waiting]
        for group, answers in self.joining:
            if not answers.waiting and answers.error in (Errors.NONE, Errors.MEMBER_ID_REQUIRED):
                self.members[answers.result.member_id] = (group, answers.result)
        self.joining = waiting

    @invariant()
    def the_account_is_what_a_recount_gives(self) -> None:
        if hasattr(self, "h"):
            assert self.h.held_bytes == recounted_bytes(self.h.coordinator)

    @invariant()
    def no_more_is_held_than_there_may_be(self) -> None:
        """But for what was loaded, and commits under way, each of them beside the one that it is to replace."""
        if hasattr(self, "h"):
            cells = self.h.coordinator._registry.cells()
            under_way = sum(sum(map(len, cell.group.offsets._pending.values())) for cell in cells)
            assert self.h.held_bytes <= max(MOST, self.loaded) + under_way * 5_000


MemoryMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestMemory = MemoryMachine.TestCase
