"""Runs that move partitions, on a pretended cluster whose brokers die, whose other operators move partitions, and where
a run may be killed after any part of a step: the next one brings all about, and leaves no throttle.
"""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.server.moves.judge import Pace, fill, judge, pause
from broker.server.moves.layout import TooFewError, Wish, of_brokers
from broker.server.moves.throttles import Throttles
from tests.support.layouts import layouts
from tests.support.moved_cluster import Pretended

PACE = Pace(1000, at_once=2)


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


@settings(max_examples=60, deadline=None)
@given(layouts(min_brokers=3), st.data())
def test_while_a_broker_is_filled_no_run_and_no_interrupt_lifts_the_throttle_of_what_it_lacks(layout, data):
    cluster = Pretended(layout)
    empty = data.draw(st.sampled_from(sorted(layout.racks)))
    cluster.filling = {empty}
    for partition, found in layout.partitions.items():
        if empty in found.replicas and len(found.replicas) > 1:
            cluster.partitions[partition] = found._replace(isr=found.isr - {empty})
    for _ in range(3):
        cluster.take(fill(cluster.look(), empty, PACE, is_prepared=False).step)
    try:
        for _ in range(data.draw(st.integers(1, 12))):
            wish = data.draw(st.sampled_from((Wish(slack=0), Wish(frozenset({empty}), only_drain=True))))
            event = data.draw(st.sampled_from(("run", "run", "time", "interrupt")))
            if event == "run":
                cluster.take(replace(judge(cluster.look(), wish, PACE).step, elected=()))
            elif event == "time":
                cluster.go_on()
            else:
                while not (verdict := pause(cluster.look(), by_whoever=False)).is_done:
                    cluster.take(verdict.step)
                assert not any(found.adding for found in cluster.partitions.values())
            for partition, found in cluster.partitions.items():
                kept = {*found.replicas, *found.removing} - {*found.isr, *found.adding}
                assert not kept or (cluster.throttles.is_on and cluster.throttles.lists_all(partition, kept))
        cluster.filling = set()
        cluster.go_on()
        finish(cluster, Wish(slack=0))
    except TooFewError:
        return
    assert cluster.throttles == Throttles()
