"""Freed memory goes back to the system: when it is tried, and that it helps where the C library is glibc."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from broker.utils.heap import (
    LEAST_BETWEEN_S,
    LONGEST_WAIT_S,
    MIB,
    WORTH_BYTES,
    HeapSample,
    Sizes,
    TrimPolicy,
)

IDLE = 60 * MIB
FREE = 2 * MIB
STEP_S = 5.0


class Looks:
    """A policy that is asked every few seconds; ``load`` is the CPUs that the process used since."""

    def __init__(self, *, first_look: bool = True) -> None:
        self.policy = TrimPolicy(IDLE)
        self.now_s = self.cpu_s = 0.0
        if first_look:
            assert not self.after(IDLE, FREE)

    def after(self, resident: int, free: int, load: float = 0.0, seconds: float = STEP_S) -> bool:
        self.now_s += seconds
        self.cpu_s += load * seconds
        return self.policy.is_due(HeapSample(self.now_s, self.cpu_s, Sizes(resident, free)))

    def trimmed(self, resident: int, free: int) -> None:
        self.policy.trimmed(self.now_s, Sizes(resident, free))


def test_what_is_in_use_is_no_reason() -> None:
    assert not Looks().after(IDLE + 500 * MIB, FREE)


def test_little_is_no_reason() -> None:
    assert not Looks().after(IDLE + 500 * MIB, WORTH_BYTES - 1)


def test_much_that_was_freed_is_given_back() -> None:
    assert Looks().after(IDLE + 500 * MIB, FREE + 500 * MIB)


def test_what_was_given_back_already_is_no_reason_though_it_still_counts_as_free() -> None:
    looks = Looks()
    assert looks.after(IDLE + 500 * MIB, FREE + 500 * MIB)
    looks.trimmed(IDLE, FREE + 500 * MIB)
    assert not looks.after(IDLE, FREE + 500 * MIB, seconds=10 * LEAST_BETWEEN_S)


def test_a_flood_that_came_and_went_between_two_looks_is_seen_by_the_size_of_the_process() -> None:
    looks = Looks()
    assert looks.after(IDLE + 500 * MIB, FREE + 500 * MIB)
    looks.trimmed(IDLE, FREE + 500 * MIB)
    assert looks.after(IDLE + 500 * MIB, FREE + 500 * MIB, seconds=LEAST_BETWEEN_S)


def test_a_flood_that_came_and_went_before_the_first_look_is_seen_too() -> None:
    looks = Looks(first_look=False)
    assert not looks.after(IDLE + 200 * MIB, 150 * MIB), "nothing says yet that it is calm"
    assert looks.after(IDLE + 200 * MIB, 150 * MIB)


def test_what_is_freed_after_a_trim_that_gave_nothing_is_given_back() -> None:
    looks = Looks()
    assert looks.after(IDLE + 500 * MIB, FREE + 100 * MIB)
    looks.trimmed(IDLE + 500 * MIB, FREE + 100 * MIB)
    assert not looks.after(IDLE + 500 * MIB, FREE + 100 * MIB, seconds=LEAST_BETWEEN_S)
    assert looks.after(IDLE + 500 * MIB, FREE + 600 * MIB)


def test_it_waits_for_a_calm_moment_but_not_for_ever() -> None:
    looks = Looks()
    waited = 0.0
    while not looks.after(IDLE + 500 * MIB, FREE + 500 * MIB, load=0.9):
        waited += STEP_S
        assert waited <= LONGEST_WAIT_S
    assert waited > LONGEST_WAIT_S / 2
    looks = Looks()
    assert not looks.after(IDLE + 500 * MIB, FREE + 500 * MIB, load=0.9)
    assert looks.after(IDLE + 500 * MIB, FREE + 500 * MIB, load=0.1)


def test_two_are_never_close_together() -> None:
    looks = Looks()
    assert looks.after(IDLE + 500 * MIB, FREE + 500 * MIB)
    looks.trimmed(IDLE, FREE)
    begin = looks.now_s
    while not looks.after(IDLE + 500 * MIB, FREE + 500 * MIB):
        assert looks.now_s - begin < LEAST_BETWEEN_S
    assert looks.now_s - begin >= LEAST_BETWEEN_S


FLOOD = """
from broker.utils.heap import MIB, HeapKeeper, resident_bytes
from rig.wait import wait_until
keeper = HeapKeeper()
keeper.look()
before = resident_bytes()
blocks = [bytes(4000) for _ in range(50_000)]
pin = blocks[-1]
full = resident_bytes()
del blocks
freed = resident_bytes()
def is_small() -> bool:
    keeper.look()
    return resident_bytes() <= before + 20 * MIB
wait_until(is_small, 30)
print(before, full, freed, resident_bytes())
"""


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="only glibc keeps what was freed, and can give it back"
)
def test_a_process_that_freed_much_is_small_again() -> None:
    done = subprocess.run([sys.executable, "-c", FLOOD], capture_output=True, text=True, check=True)
    before, full, freed, after = (int(word) for word in done.stdout.splitlines()[-1].split())
    assert full - before > 150 * MIB
    assert freed - before > 150 * MIB, "the C library gave it back by itself: this test shows nothing"
    assert after - before < 20 * MIB
