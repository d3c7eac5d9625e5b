"""A page that costs much is made once at a time, and what was made is everybody's for a second."""

from __future__ import annotations

import threading

from broker.server.http.shared_page import SharedPage
from rig.wait import wait_until
from tests.support.clocks import ManualClock


class Maker:
    """Makes pages while ``go`` is set; a page takes a minute by ``clock``."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.go = threading.Event()
        self.begun = self.done = 0

    def __call__(self) -> bytes:
        self.begun += 1
        assert self.go.wait(30)
        self.clock.now_ms += 60_000
        self.done += 1
        return b"page %d" % self.done


def test_all_who_come_while_it_is_made_get_the_one_that_is_being_made_however_long_it_takes() -> None:
    clock = ManualClock()
    maker = Maker(clock)
    page = SharedPage(maker, clock)
    got: list[bytes] = []
    readers = [threading.Thread(target=lambda: got.append(page.get())) for _ in range(20)]
    for reader in readers:
        reader.start()
    wait_until(lambda: maker.begun == 1, what="the first one that asks")
    maker.go.set()
    for reader in readers:
        reader.join(30)
    assert got == [b"page 1"] * 20
    assert maker.begun == 1


def test_it_lives_a_second_from_when_it_was_ready() -> None:
    clock = ManualClock()
    maker = Maker(clock)
    maker.go.set()
    page = SharedPage(maker, clock)
    assert page.get() == b"page 1"
    clock.now_ms += 999
    assert page.get() == b"page 1"
    clock.now_ms += 1
    assert page.get() == b"page 2"


def test_the_first_page_is_made_though_the_clock_has_just_begun() -> None:
    clock = ManualClock(0)
    maker = Maker(clock)
    maker.go.set()
    assert SharedPage(maker, clock).get() == b"page 1"
