"""Fetches of data that is on the disk are a handler's, and so are those that follow on the same connection."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.log import look_ups
from broker.network.request_channel import ConnectionInfo
from broker.utils.file_region import FileRegion
from tests.support.clocks import ManualClock
from tests.support.serving_site import EPOCH, HERE, ME, ServingSite


class Site(ServingSite):
    """A site that leads alone and has one reader. ``cached``: whether the page cache is said to have its data.
    ``brought``: how often data was brought into it.
    """

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(directory)
        self.partition.make_leader(self.role(ME, EPOCH + 1, (ME,)))
        self.produce(HERE, acks=1)
        self.answers.clear()
        self.partition.log._context.clock = ManualClock(1 << 41)  # it was written long ago
        self.connection = ConnectionInfo("1", "10.0.0.1", "OUT")
        self.cached = True
        self.brought = 0
        monkeypatch.setattr(look_ups, "is_cached", lambda _region: self.cached)
        monkeypatch.setattr(look_ups, "bring_in", self._bring_in)

    def _bring_in(self, _region: FileRegion) -> None:
        self.brought += 1

    def ask(self) -> bool:
        """Asks for the first record; returns whether a handler brought it into the page cache."""
        brought = self.brought
        self.fetch(HERE)
        while self.work:
            self.work.pop(0)()
        assert len(self.answers) == 1
        self.answers.clear()
        return self.brought > brought


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    made = Site(tmp_path, monkeypatch)
    yield made
    made.close()


def test_what_is_cached_is_answered_at_once(site: Site) -> None:
    assert not site.ask()


def test_what_is_not_is_brought_in_first(site: Site) -> None:
    site.cached = False
    assert site.ask()


def test_what_a_connection_reads_next_is_brought_in_too_although_both_its_ends_are_cached(site: Site) -> None:
    """What the kernel reads ahead arrives in any order."""
    site.cached = False
    site.ask()
    site.cached = True
    brought = [site.ask() for _ in range(12)]
    assert brought == [True] * 8 + [False] * 4


def test_another_connection_is_not_slowed_down_by_it(site: Site) -> None:
    site.cached = False
    site.ask()
    site.cached = True
    site.connection = ConnectionInfo("2", "10.0.0.1", "OUT")
    assert not site.ask()
