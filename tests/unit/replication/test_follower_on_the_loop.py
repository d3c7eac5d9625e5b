"""A fetcher whose conversation with its leader is a guest of a Processor's loop: what goes on there, and what
comes back to the fetcher's own thread.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from broker.cluster.partition import Partition
from broker.config.log_config import LogConfig
from broker.log.log import Log
from broker.network.guests import Guest
from broker.network.request_channel import Verdict
from broker.protocol.control_messages import PartitionRole
from broker.protocol.errors import Errors
from broker.protocol.fetch_messages import FetchedPartition
from broker.protocol.fetch_requests import parse_fetch_request
from broker.replication.broker_channel import BrokerChannel
from broker.replication.cluster_view import BrokerAddress
from broker.replication.fetcher import ReplicaFetcher
from broker.replication.fetcher_parts import FetcherParts, FetcherSettings
from broker.replication.follower_fetch import Followed
from broker.utils.clock import SYSTEM_CLOCK
from broker.utils.topic_partition import TopicPartition
from rig.wait import wait_until
from tests.support.logs import TP, batch, open_log
from tests.support.loops import bound_server
from tests.support.scripted_leader import ScriptedLeader

TOPIC_ID = UUID(int=9)
LEADER, ME = 1, 2
WAIT_S = 30
BACKOFF_MS = 10
LOOP = "network-thread-0"
_FETCHER_HEADER = 2 + len("fetcher") + 1  # the rest of a request's header: client id, no tags


class Site:
    """A follower of t-0, its loop, its leader and the leader's log."""

    def __init__(self, directory: Path, config: LogConfig | None = None) -> None:
        self.leader = ScriptedLeader()
        self.theirs = open_log(directory / "theirs")
        self.log = open_log(directory / "ours", config)
        self.partition = Partition(
            TP, self.log, broker_id=ME, max_lag_ms=60_000, clock=SYSTEM_CLOCK, alive=lambda _: True
        )
        state = PartitionRole(TP, TOPIC_ID, 1, LEADER, 0, (LEADER, ME), 0, (LEADER, ME))
        self.partition.make_follower(state)
        self.followed = Followed(self.partition, TOPIC_ID, 0)
        self.appended_on: list[str] = []
        self.guests = 0
        self.while_connecting: Callable[[], None] = lambda: None
        self._loop = bound_server()
        self._loop.start(lambda _request: Verdict.SERVED)
        self.fetcher = ReplicaFetcher(
            FetcherParts(
                name="fetcher",
                broker_id=ME,
                broker_epoch=lambda: 5,
                address=lambda: BrokerAddress(LEADER, "127.0.0.1", self.leader.port),
                make_channel=self._make_channel,
                settings=FetcherSettings(backoff_ms=BACKOFF_MS),
                clock=SYSTEM_CLOCK,
                on_appended=self._on_appended,
                on_reached=lambda: None,
                on_refused=lambda: None,
                invite=self._invite,
            )
        )
        self.fetcher.start()

    def _make_channel(self, address: BrokerAddress, client_id: str) -> BrokerChannel:
        self.while_connecting()
        return BrokerChannel(address.host, address.port, client_id=client_id)

    def _invite(self, guest: Guest) -> bool:
        self.guests += 1
        return self._loop.invite(guest)

    def _on_appended(self, _topic_partition: TopicPartition) -> None:
        self.appended_on.append(threading.current_thread().name)

    def follow(self) -> None:
        self.fetcher.add((self.followed,))
        self.leader.accept()

    def send_a_record(self) -> None:
        """The leader gets a record and answers with it."""
        offset = self.theirs.append_as_leader(batch(b"v"), 0).first_offset
        end = self.theirs.log_end_offset
        read = self.theirs.reader.read(offset, 1000, end_offset=end, min_one_batch=True)
        self.answer(FetchedPartition(0, Errors.NONE, end, end, 0, records=read.region))

    def answer(self, *partitions: FetchedPartition) -> None:
        self.leader.answer_fetch(TOPIC_ID, partitions)

    def has(self, records: int) -> bool:
        return self.log.log_end_offset == records and len(self.appended_on) == records

    def close(self) -> None:
        self.fetcher.stop()
        self.fetcher.join()
        self._loop.stop()
        self.leader.close()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    site.follow()
    yield site
    site.close()


def test_after_the_first_answer_the_loop_takes_the_records(site: Site) -> None:
    for _ in range(4):
        site.send_a_record()
    wait_until(lambda: site.has(4), WAIT_S)
    assert site.appended_on == ["fetcher", LOOP, LOOP, LOOP]
    assert site.log.high_watermark == 4
    assert site.guests == 1


def test_an_answer_without_records_changes_nothing(site: Site) -> None:
    site.send_a_record()
    for _ in range(3):
        site.answer()
    site.send_a_record()
    wait_until(lambda: site.has(2), WAIT_S)
    assert site.appended_on == ["fetcher", LOOP]


def test_a_refused_partition_is_the_threads_and_goes_on_as_a_guest_later(site: Site) -> None:
    site.send_a_record()
    site.answer(FetchedPartition(0, Errors.UNKNOWN_LEADER_EPOCH))
    for _ in range(3):
        site.send_a_record()
    wait_until(lambda: site.has(4), WAIT_S)
    assert site.appended_on == ["fetcher", "fetcher", LOOP, LOOP]
    assert site.guests == 2


def test_a_damaged_batch_is_told_once_and_taken_when_the_leader_has_it_whole(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.send_a_record()
    site.theirs.append_as_leader(batch(b"v"), 0)
    read = site.theirs.reader.read(1, 1000, end_offset=2, min_one_batch=True)
    assert read.region is not None
    path, place = site.theirs.segments[0].path(".log"), read.region.position + 65
    sound = path.read_bytes()
    damaged = sound[:place] + bytes([sound[place] ^ 1]) + sound[place + 1 :]
    path.write_bytes(damaged)
    for _ in range(3):
        site.answer(FetchedPartition(0, Errors.NONE, 2, 2, 0, records=read.region))
    for _ in range(3):
        site.answer(FetchedPartition(0, Errors.CORRUPT_MESSAGE))
    assert site.log.log_end_offset == 1
    path.write_bytes(sound)
    site.answer(FetchedPartition(0, Errors.NONE, 2, 2, 0, records=read.region))
    wait_until(lambda: site.has(2), WAIT_S)
    assert capsys.readouterr().out.count("replica_append_failed") == 2  # a checksum, and what the leader said


def test_records_whose_sync_failed_are_not_acknowledged_before_one_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process had no file descriptor left, which fails no directory."""
    site = Site(tmp_path, LogConfig(flush_messages=1))
    refused, real = [], os.open

    def open_file(path: Any, *arguments: Any, **named: Any) -> int:
        if path == site.log.dir and len(refused) < 3:
            refused.append(path)
            raise OSError(errno.EMFILE, "Too many open files")
        return real(path, *arguments, **named)

    monkeypatch.setattr(os, "open", open_file)
    try:
        site.follow()
        site.send_a_record()
        site.leader.request()
        assert len(refused) == 3
        assert site.log.durability.synced_end == site.log.log_end_offset == 1
    finally:
        site.close()


def test_a_log_that_parted_from_the_leaders_is_cut_by_the_thread(site: Site) -> None:
    site.send_a_record()
    site.send_a_record()
    wait_until(lambda: site.has(2), WAIT_S)
    site.theirs.truncate_to(1)
    site.answer(FetchedPartition(0, Errors.NONE, 1, 1, 0, diverging=(0, 1)))
    site.send_a_record()
    wait_until(lambda: len(site.appended_on) == 3, WAIT_S)
    assert site.log.log_end_offset == 2
    assert site.appended_on[-1] == "fetcher"


def test_a_partition_that_is_added_interrupts_the_guest(site: Site) -> None:
    site.send_a_record()
    wait_until(lambda: site.guests == 1, WAIT_S)
    site.fetcher.add((replace(site.followed),))
    site.leader.socket.close()
    site.leader.accept()
    site.send_a_record()
    wait_until(lambda: site.has(2), WAIT_S)


def test_what_is_followed_anew_while_it_connects_is_not_asked_for_as_before(tmp_path: Path) -> None:
    site = Site(tmp_path)
    try:
        newer = replace(site.followed, leader_epoch=1)
        site.while_connecting = lambda: site.fetcher.add((newer,))
        site.follow()
        _, body = site.leader.request_and_body()
        topics = parse_fetch_request(memoryview(body)[_FETCHER_HEADER:], 17).topics
        assert [(key, [row[1] for row in rows]) for key, rows in topics] == [(TOPIC_ID, [1])]
    finally:
        site.close()


def test_a_partition_that_waits_out_an_error_is_not_held_up_by_the_others(tmp_path: Path) -> None:
    site = Site(tmp_path)
    try:
        other = Partition(
            TopicPartition("t", 1),
            open_log(tmp_path / "other"),
            broker_id=ME,
            max_lag_ms=60_000,
            clock=SYSTEM_CLOCK,
            alive=lambda _: True,
        )
        other.make_follower(
            PartitionRole(TopicPartition("t", 1), TOPIC_ID, 1, LEADER, 0, (LEADER, ME), 0, (LEADER, ME))
        )
        site.fetcher.add((site.followed, Followed(other, TOPIC_ID, 0)))
        site.leader.accept()
        site.answer(FetchedPartition(1, Errors.NOT_LEADER_OR_FOLLOWER))  # it does not lead it yet
        asked = parse_fetch_request(memoryview(site.leader.request_and_body()[1])[_FETCHER_HEADER:], 17)
        assert asked.max_wait_ms <= BACKOFF_MS
    finally:
        site.close()


def test_a_removed_partition_is_forgotten_with_the_next_request(site: Site) -> None:
    site.send_a_record()
    wait_until(lambda: site.guests == 1, WAIT_S)
    site.leader.await_request()
    site.fetcher.remove(frozenset({TP}))
    site.answer()
    _, body = site.leader.request_and_body()
    assert TOPIC_ID.bytes in body


def test_records_of_a_partition_that_was_removed_meanwhile_are_not_taken(site: Site) -> None:
    site.send_a_record()
    wait_until(lambda: site.guests == 1, WAIT_S)
    site.leader.await_request()
    site.fetcher.remove(frozenset({TP}))
    site.send_a_record()
    site.leader.request()
    assert site.log.log_end_offset == 1


def test_a_leader_that_comes_back_is_followed_again(site: Site) -> None:
    site.send_a_record()
    site.send_a_record()
    wait_until(lambda: site.has(2), WAIT_S)
    site.leader.socket.close()
    site.leader.accept()
    site.send_a_record()
    site.send_a_record()
    wait_until(lambda: site.has(4), WAIT_S)
    assert site.appended_on[2:] == ["fetcher", LOOP]


def test_appends_that_wait_for_the_disk_stay_off_the_loop(tmp_path: Path) -> None:
    site = Site(tmp_path, LogConfig(flush_messages=1))
    try:
        site.follow()
        for _ in range(3):
            site.send_a_record()
        wait_until(lambda: site.has(3), WAIT_S)
        assert set(site.appended_on) == {"fetcher"}
    finally:
        site.close()


def test_a_stop_ends_the_guest_at_once(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.follow()
    site.send_a_record()
    wait_until(lambda: site.guests == 1, WAIT_S)
    site.close()
    assert site.log.log_end_offset == 1


def test_logs_that_part_from_their_leader_at_once_lower_their_recovery_points_at_once(tmp_path: Path) -> None:
    """Each by itself would write a directory's checkpoint, in which all logs stand."""
    site = Site(tmp_path)
    other_log = open_log(tmp_path / "other")
    other = Partition(
        TopicPartition("t", 1),
        other_log,
        broker_id=ME,
        max_lag_ms=60_000,
        clock=SYSTEM_CLOCK,
        alive=lambda _: True,
    )
    other.make_follower(
        PartitionRole(other.topic_partition, TOPIC_ID, 1, LEADER, 0, (LEADER, ME), 0, (LEADER, ME))
    )
    told: list[set[Log]] = []

    def lowered(points: Mapping[Log, int]) -> None:
        told.append(set(points))
        for log, point in points.items():
            log.recovery_point = point

    for log in (site.log, other_log):
        for _ in range(3):
            log.append_as_leader(batch(b"v"), 0)
        log.flush()
        log.on_recovery_points_lowered = lowered
    site.fetcher.add((site.followed, Followed(other, TOPIC_ID, 0)))
    site.leader.accept()
    site.answer(*(FetchedPartition(number, Errors.NONE, 1, 1, 0, diverging=(0, 1)) for number in (0, 1)))
    wait_until(lambda: site.log.log_end_offset == other_log.log_end_offset == 1)
    site.close()
    assert told == [{site.log, other_log}]
