"""The collector of cycles looks at everything when that hurts nobody: when, and that it does not do so by itself."""

from __future__ import annotations

import gc
import subprocess
import sys

from broker.utils.collector import (
    GROWN_BYTES,
    IDLE_SHARE,
    LONGEST_WAIT_S,
    MIB,
    WORTH_LOOKS,
    CollectPolicy,
)

START = 60 * MIB
STEP_S = 5.0
BUSY, CALM, IDLE = 0.9, 0.2, IDLE_SHARE / 2
# New objects by the million, of which a look at everything takes a tenth of a second.
MANY_LOOKS = 400


class Looks:
    def __init__(self) -> None:
        self.policy = CollectPolicy(START)
        self.now_s = 1_000.0
        assert not self.after(0, CALM)

    def after(self, looks: int, share: float, *, resident: int = START, seconds: float = STEP_S) -> bool:
        self.now_s += seconds
        return self.policy.is_due(self.now_s, looks, resident, share)

    def collected(self, took_s: float, resident: int = START) -> None:
        self.policy.collected(self.now_s, took_s, resident)


def test_where_little_is_new_nothing_is_looked_for() -> None:
    assert not Looks().after(WORTH_LOOKS - 1, IDLE)


def test_a_short_look_is_taken_when_the_broker_has_time() -> None:
    looks = Looks()
    assert not looks.after(WORTH_LOOKS, BUSY)
    assert looks.after(WORTH_LOOKS, CALM)


def test_a_long_look_waits_until_nobody_is_there() -> None:
    looks = Looks()
    assert not looks.after(MANY_LOOKS, CALM)
    assert looks.after(MANY_LOOKS, IDLE)


def test_a_process_that_grows_much_is_looked_at_all_the_same() -> None:
    looks = Looks()
    assert not looks.after(MANY_LOOKS, BUSY, resident=START + GROWN_BYTES - 1)
    assert looks.after(MANY_LOOKS, BUSY, resident=START + GROWN_BYTES)
    looks.collected(0.1, START + GROWN_BYTES)
    assert not looks.after(MANY_LOOKS, BUSY, resident=START + GROWN_BYTES, seconds=60)


def test_a_process_that_grows_much_is_looked_at_though_little_is_new() -> None:
    assert Looks().after(1, BUSY, resident=START + GROWN_BYTES)
    assert not Looks().after(0, BUSY, resident=START + GROWN_BYTES), "nothing is"


def test_it_has_grown_since_it_was_smallest() -> None:
    looks = Looks()
    looks.collected(0.001, START + GROWN_BYTES)
    assert not looks.after(MANY_LOOKS, BUSY, resident=START)
    assert looks.after(MANY_LOOKS, BUSY, resident=START + GROWN_BYTES)


def test_nothing_waits_for_ever() -> None:
    looks = Looks()
    assert not looks.after(1, BUSY, seconds=LONGEST_WAIT_S - 3 * STEP_S)
    assert looks.after(1, BUSY, seconds=3 * STEP_S)


def test_what_took_long_is_done_seldom_and_only_for_as_much_again() -> None:
    looks = Looks()
    looks.collected(0.2)
    assert not looks.after(MANY_LOOKS, IDLE, seconds=19)
    assert not looks.after(WORTH_LOOKS, IDLE, seconds=60)
    assert looks.after(MANY_LOOKS, IDLE)


def test_the_collector_leaves_old_objects_alone_and_finds_young_cycles() -> None:
    program = """
import gc
from broker.utils.collector import leave_old_objects

leave_old_objects()
whole = gc.get_stats()[2]["collections"]
kept = [[] for _ in range(300_000)]
for _ in range(100_000):
    cycle = []
    cycle.append(cycle)
collected = sum(one["collected"] for one in gc.get_stats()[:2])
print(gc.get_stats()[2]["collections"] - whole, collected > 90_000)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "0 True\n"
    assert gc.get_threshold()[2] < 1_000, "this process's own is as it was"
