"""Runs that move partitions, on a pretended cluster whose brokers die, whose other operators move partitions, and where
a run may be killed after any part of a step: the next one brings all about, and leaves no throttle.
"""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.server.moves.judge import Pace, Step, View, judge, pause
from broker.server.moves.layout import Layout, TooFewError, Wish, of_brokers
from broker.server.moves.throttles import ThrottledPairs, Throttles
from tests.support.layouts import layouts

PACE = Pace(1000, at_once=2)


class Pretended:
    """A cluster as its brokers would show it. A move is done when all its replicas live and time goes on."""

    def __init__(self, layout):
        self.racks = dict(layout.racks)
        self.live = set(layout.racks)
        self.partitions = dict(layout.partitions)
        self.throttles = Throttles()
        self.foreign = {}

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
                self.partitions[partition] = found._replace(
                    isr=frozenset(found.replicas), adding=(), removing=()
                )
                if found.is_moving:
                    self.foreign.pop(partition, None)


def finish(cluster, wish, rounds=400):
    for _ in range(rounds):
        verdict = judge(cluster.look(), wish, PACE)
        if verdict.is_done or (not verdict.step.moves and verdict.step.elected):
            return
        cluster.take(replace(verdict.step, elected=()))
        cluster.go_on()
    raise AssertionError(f"it does not end: {verdict}")


@settings(max_examples=60, deadline=None)
@given(layouts(min_brokers=3), st.data())
def test_whatever_happens_meanwhile_the_next_run_ends_with_all_moved_and_no_throttle(layout, data):
    cluster = Pretended(layout)
    drained = frozenset(data.draw(st.sets(st.sampled_from(sorted(layout.racks)), max_size=1)))
    wish = Wish(drained, only_drain=bool(drained), slack=0)
    factors = {partition: len(found.replicas) for partition, found in layout.partitions.items()}
    theirs = data.draw(st.sampled_from(sorted(layout.partitions)))
    (target,) = [(each,) for each in layout.racks if each not in drained][:1]
    try:
        for _ in range(data.draw(st.integers(1, 8))):
            verdict = judge(cluster.look(), wish, PACE, gone=())
            cluster.take(replace(verdict.step, elected=()), data.draw(st.integers(0, 4)))
            event = data.draw(st.sampled_from(("die", "return", "foreign", "time", "pause")))
            if event == "die" and len(cluster.live) > 1:
                cluster.live.discard(data.draw(st.sampled_from(sorted(cluster.live))))
            elif event == "return":
                cluster.live = set(cluster.racks)
            elif event == "foreign" and not (
                cluster.partitions[theirs].is_moving or cluster.is_listed(theirs)
            ):
                if set(target) <= cluster.live and cluster.partitions[theirs].replicas != target:
                    cluster.move(theirs, target)
                    factors[theirs] = 1
                    cluster.foreign[theirs] = target
            elif event == "time":
                cluster.go_on()
            elif event == "pause":
                while not (verdict := pause(cluster.look())).is_done:
                    cluster.take(verdict.step)
                assert cluster.throttles == Throttles()
                assert all(not f.adding for p, f in cluster.partitions.items() if p not in cluster.foreign)
            for partition, found in cluster.partitions.items():
                assert len(found.replicas) == len(set(found.replicas)) >= factors[partition]
        cluster.live = set(cluster.racks)
        cluster.go_on()
        finish(cluster, wish)
    except TooFewError:
        return
    assert cluster.throttles == Throttles()
    assert not any(found.is_moving for found in cluster.partitions.values())
    assert of_brokers(cluster.look().layout, drained) == []
    assert {partition: len(found.replicas) for partition, found in cluster.partitions.items()} == factors
