"""Fetches of data that is on the disk are a handler's, and so are those that follow on the same connection."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.log import look_ups
from broker.network.request_channel import ConnectionInfo
from broker.protocol.control_messages import PartitionRole
from broker.utils.clock import SYSTEM_CLOCK
from broker.utils.file_region import FileRegion
from broker.utils.topic_partition import TopicPartition
from tests.support.clocks import ManualClock
from tests.support.serving_site import EPOCH, HERE, ME, MORE, TOPIC, TOPIC_ID, ServingSite


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
        self.cold_files: set[int] = set()
        self.brought = 0
        monkeypatch.setattr(look_ups, "is_cached", self._is_cached)
        monkeypatch.setattr(look_ups, "bring_in", self._bring_in)

    def lead_another(self) -> None:
        """Leads the partition MORE too, which has a record."""
        another = TopicPartition(TOPIC, MORE)
        partition = self.replica_manager.get_or_create(
            another, lambda: self._logs.get_or_create(another, TOPIC_ID)
        )
        partition.make_leader(PartitionRole(another, TOPIC_ID, 1, ME, EPOCH, (ME,), EPOCH, (ME,)))
        self.produce(MORE, acks=1)
        self.answers.clear()
        partition.log._context.clock = ManualClock(1 << 41)

    def _is_cached(self, region: FileRegion) -> bool:
        return self.cached and region.file.fileno() not in self.cold_files

    def _bring_in(self, _region: FileRegion) -> None:
        self.brought += 1

    def ask(self, *partitions: int) -> int:
        """Asks for the partitions' first records; returns how many were brought into the page cache by a handler."""
        brought = self.brought
        self.fetch(*(partitions or (HERE,)))
        while self.work:
            self.work.pop(0)()
        assert len(self.answers) == 1
        self.answers.clear()
        return self.brought - brought


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
    assert brought == [1] * 8 + [0] * 4


def test_all_that_is_answered_with_cold_data_is_brought_in(site: Site) -> None:
    site.lead_another()
    site.cold_files = {site.partition.log._segments.active.file.fileno()}
    assert site.ask(HERE, MORE) == 2


def test_what_was_just_written_is_not_brought_in(site: Site) -> None:
    site.cached = False
    site.ask()
    site.partition.log._context.clock = SYSTEM_CLOCK
    assert site.ask() == 0


def test_another_connection_is_not_slowed_down_by_it(site: Site) -> None:
    site.cached = False
    site.ask()
    site.cached = True
    site.connection = ConnectionInfo("2", "10.0.0.1", "OUT")
    assert not site.ask()
