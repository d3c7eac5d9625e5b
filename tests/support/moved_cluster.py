"""A pretended cluster whose partitions move."""

from __future__ import annotations

from broker.server.moves.judge import Step, View
from broker.server.moves.layout import Layout
from broker.server.moves.throttles import ThrottledPairs, Throttles


class Pretended:
    """A cluster as its brokers would show it. A move is done when all its replicas live and time goes on. What brokers
    in ``filling`` lack they do not get meanwhile.
    """

    def __init__(self, layout):
        self.racks = dict(layout.racks)
        self.live = set(layout.racks)
        self.partitions = dict(layout.partitions)
        self.throttles = Throttles()
        self.foreign = {}
        self.filling = set()

    def look(self):
        racks = {broker: self.racks[broker] for broker in sorted(self.live)}
        shown = {
            partition: found._replace(
                leader=next((each for each in found.replicas if each in self.live and each in found.isr), -1)
            )
            for partition, found in self.partitions.items()
        }
        return View(Layout(racks, shown), self.throttles)

    def take(self, step: Step, parts=4):
        """Only the first parts of the step, for a run that dies in the middle of it."""
        actions = [
            lambda: [self.cancel(each) for each in step.cancelled],
            lambda: self.put_lists(step.lists),
            lambda: self.put_rate(step.rate),
            lambda: [self.move(each, target) for each, target in step.moves.items()],
        ]
        for action in actions[:parts]:
            action()
        return []

    def is_listed(self, partition):
        """Whether a run has begun to move it: what it begins to throttle is its own to whoever looks."""
        pairs = self.throttles.lists.get(partition.topic, ThrottledPairs())
        return any(pair.startswith(f"{partition.partition}:") for pair in (*pairs.leaders, *pairs.followers))

    def put_lists(self, lists):
        found = {
            topic: each
            for topic, each in {**self.throttles.lists, **lists}.items()
            if each != ThrottledPairs()
        }
        self.throttles = self.throttles._replace(lists=found)

    def put_rate(self, rate):
        if rate is not None:
            self.throttles = self.throttles._replace(leader_rate=rate or None, follower_rate=rate or None)

    def move(self, partition, target):
        found = self.partitions[partition]
        assert not found.is_moving, "a move of somebody is changed"
        new = tuple(each for each in target if each not in found.replicas)
        if set(new) <= self.live:
            gone = tuple(each for each in found.replicas if each not in target)
            self.partitions[partition] = found._replace(replicas=tuple(target), adding=new, removing=gone)

    def cancel(self, partition):
        assert partition not in self.foreign, "a move of somebody is taken back"
        found = self.partitions[partition]
        kept = tuple(each for each in found.replicas if each not in found.adding)
        self.partitions[partition] = found._replace(replicas=kept + found.removing, adding=(), removing=())

    def go_on(self):
        for partition, found in self.partitions.items():
            if self.live.issuperset(found.replicas):
                lacking = self.filling - found.isr - set(found.adding)
                self.partitions[partition] = found._replace(
                    isr=frozenset(found.replicas) - lacking, adding=(), removing=()
                )
                if found.is_moving:
                    self.foreign.pop(partition, None)
