"""A follower whose offset its leader refuses although it lies within the leader's log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from broker.protocol import codec
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors
from broker.protocol.fetch_messages import FetchedPartition
from rig.wait import wait_until
from tests.support.logs import batch
from tests.unit.replication.test_follower_on_the_loop import Site

LEADER_END = 5


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """Three records here, and an epoch 7 that begins behind them or, told by the test, with the last."""
    site = Site(tmp_path)
    for _ in range(LEADER_END):
        site.theirs.append_as_leader(batch(b"v"), 0)
    for _ in range(3):
        site.log.append_as_leader(batch(b"v"), 0)
    yield site
    site.close()


def answer(site: Site, api: ApiKey, version: int, fields: Mapping[str, Any]) -> None:
    site.leader.answer(
        site.leader.request(), codec.encode(api, version, "response", {"throttle_time": 0, **fields})
    )


def refuse_offset(site: Site, *, epoch_is_known: bool) -> None:
    """One fetch refused, and what the follower asks then: where the log ends and begins, and where its epoch ends."""
    site.answer(FetchedPartition(0, Errors.OFFSET_OUT_OF_RANGE))
    for offset in (LEADER_END, 0):
        row = {"partition_index": 0, "error_code": 0, "timestamp": -1, "offset": offset, "leader_epoch": 0}
        answer(site, ApiKey.LIST_OFFSETS, 9, {"topics": [{"name": "t", "partitions": [row]}]})
    epoch, end = (7, LEADER_END) if epoch_is_known else (-1, -1)
    row = {"partition": 0, "error_code": 0, "leader_epoch": epoch, "end_offset": end}
    answer(site, ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, {"topics": [{"topic": "t", "partitions": [row]}]})


@pytest.mark.parametrize("start", [3, 2])
def test_what_stands_under_an_epoch_that_the_leader_never_knew_goes(site: Site, start: int) -> None:
    site.log.leader_epochs.assign(7, start)
    site.follow()
    refuse_offset(site, epoch_is_known=False)
    wait_until(lambda: site.log.leader_epochs.latest_epoch == 0)
    assert site.log.log_end_offset == start
    read = site.theirs.reader.read(start, 1000, end_offset=LEADER_END, min_one_batch=True)
    site.answer(FetchedPartition(0, Errors.NONE, LEADER_END, LEADER_END, 0, records=read.region))
    wait_until(lambda: site.log.log_end_offset == LEADER_END)


def test_an_offset_that_is_in_range_by_now_is_asked_for_again_later_not_at_once(site: Site) -> None:
    site.log.leader_epochs.assign(7, 3)
    site.follow()
    refuse_offset(site, epoch_is_known=True)
    wait_until(lambda: any(followed.not_before_ms for followed in site.fetcher._machine.followed.values()))
    assert site.log.log_end_offset == 3
    assert site.log.leader_epochs.latest_epoch == 7


def test_a_leader_that_is_replaced_while_it_is_asked_for_its_offsets_is_no_error(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.follow()
    site.answer(FetchedPartition(0, Errors.OFFSET_OUT_OF_RANGE))
    fenced = Errors.FENCED_LEADER_EPOCH
    row = {"partition_index": 0, "error_code": fenced, "timestamp": -1, "offset": -1, "leader_epoch": -1}
    answer(site, ApiKey.LIST_OFFSETS, 9, {"topics": [{"name": "t", "partitions": [row]}]})
    wait_until(lambda: any(followed.not_before_ms for followed in site.fetcher._machine.followed.values()))
    assert "replica_append_failed" not in capsys.readouterr().out
