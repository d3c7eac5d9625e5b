"""A coordinator whose groups change between the classic and the consumer protocol (KIP-848), and classic consumers."""

from __future__ import annotations

from broker.coordinator.group.embedded import decode_assignment, encode_assignment
from broker.protocol.errors import Errors
from broker.protocol.primitives import INT16, INT32, pack_string
from tests.support.consumer_group_fakes import TOPIC, ConsumerHarness
from tests.support.group_fakes import REBALANCE_MS


def subscription(*owned, topics=("t",)):
    """A ConsumerProtocolSubscription, version 1, whose client owns these partitions of ``t``."""
    names = INT32.pack(len(topics)) + b"".join(map(pack_string, topics))
    partitions = INT32.pack(len(owned)) + b"".join(map(INT32.pack, owned))
    owns = INT32.pack(1) + pack_string("t") + partitions if owned else INT32.pack(0)
    return INT16.pack(1) + names + INT32.pack(-1) + owns


def range_of(*owned, topics=("t",)):
    return (("range", subscription(*owned, topics=topics)),)


def assignment(*numbers):
    return encode_assignment(1, {"t": frozenset(numbers)})


def assigned(synced):
    assert synced.error is Errors.NONE
    return set(decode_assignment(synced.result.assignment).get("t", ()))


class MigrationHarness(ConsumerHarness):
    """A coordinator that lets groups change their protocol, and classic consumers."""

    def __init__(self, policy="bidirectional", **config):
        super().__init__(group_consumer_migration_policy=policy, group_initial_rebalance_delay_ms=0, **config)

    def classic_group(self, *shares, instances=(None, None, None)):
        """A stable classic group whose members have these partitions; the leader is the first."""
        waiting = [
            self.join(protocols=range_of(), instance=instance)
            for _, instance in zip(shares, instances, strict=False)
        ]
        # The first generation has the first member only: all the others join the second one.
        joined = [answers.results[-1] for answers in waiting if not answers.waiting]
        if len(shares) > 1:
            again = self.join(joined[0].member_id, protocols=range_of())
            joined = [again.result, *(answers.result for answers in waiting[1:])]
        given = {one.member_id: assignment(*share) for one, share in zip(joined, shares, strict=True)}
        synced = [self.sync(one, given if one is joined[0] else {}) for one in joined]
        assert [assigned(one) for one in synced] == [set(share) for share in shares]
        return joined

    def rejoin(self, member, *owned, **join):
        """A classic member joins again, and asks for its partitions. It returns its generation and these."""
        again = self.join(member.member_id, protocols=range_of(*owned), **join)
        assert again.error is Errors.NONE, again.error
        return again.result, assigned(self.sync(again.result, instance=join.get("instance")))

    def mixed_group(self, rebalance_ms=REBALANCE_MS):
        """A consumer group of ``a`` and a classic member, which is returned with its partitions: two for each."""
        self.enter("a")
        joined = self.join(protocols=range_of(), rebalance_ms=rebalance_ms).result
        self.sync(joined)
        self.beat("a", 1, owned={TOPIC: frozenset({0, 1, 2, 3})})
        assert self.beat("a", 1, owned={TOPIC: frozenset({0, 1})}).member_epoch == 2
        joined, has = self.rejoin(joined, rebalance_ms=rebalance_ms)
        assert has == {2, 3}
        return joined, has

    def classic_leader_after(self, member, *, instance=None):
        """The only member of a classic group joins, and assigns itself everything."""
        joined = self.join(member.member_id, protocols=range_of(), instance=instance).result
        assert (joined.error, joined.leader_id) == (Errors.NONE, member.member_id)
        synced = self.sync(joined, {joined.member_id: assignment(0, 1, 2, 3)}, instance=instance)
        return joined, assigned(synced)

    def kind(self):
        ((overview,),) = (self.coordinator.list_groups((), ())[1],)
        return overview.kind
