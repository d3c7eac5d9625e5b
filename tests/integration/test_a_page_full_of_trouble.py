"""The status page of a cluster in trouble, with full tables and long names, in a browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.log.loading.load_progress import LoadProgress
from broker.protocol.control_messages import BrokerInfo, PartitionInfo
from broker.server.consumer_lag import GroupLag, PartitionLag
from broker.server.http.overview import (
    MOST_ROWS,
    DiskRow,
    Holders,
    MoveRow,
    Overview,
    PermitRow,
    TurnRow,
    cluster_rows,
)
from broker.server.http.status_page import html_of
from broker.server.metadata_cache import Snapshot
from broker.utils.topic_partition import TopicPartition
from tests.support.browser import look_at

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
LONG = "x" * 240
TOPICS = {
    f"topic-{number:03}-{LONG}": {0: PartitionInfo(0, -1 if number % 2 else 1, 0, (1,), (1, 2, 3))}
    for number in range(100)
}
BROKERS = {
    each: BrokerInfo(each, {"PLAINTEXT": (f"{LONG}.example.org", 9092)}, f"rack-{LONG}")
    for each in range(1, 80)
}


def group(number: int) -> GroupLag:
    lags = {TopicPartition(LONG, 0): PartitionLag(0, None if number % 3 else 10**15)}
    return GroupLag(f"group-{number}-{LONG}", "PreparingRebalance", 1000, lags)


IN_TROUBLE = Overview(
    2,
    "0.4.0",
    "RunningAsBroker",
    "now",
    "c" * 22,
    3,
    is_running=True,
    unready=("it does not reach ZooKeeper",),
    cluster=cluster_rows(Snapshot(1, 3, BROKERS, TOPICS)),
    groups=tuple(map(group, range(MOST_ROWS))),
    groups_total=3_000,
    disks=(
        DiskRow(f"/data/{LONG}", 10**13, 1, None, f"log directory /data/{LONG} is full"),
        DiskRow("/data/2", 0, 0, f"cannot append to {LONG}: Input/output error", None),
    ),
    moves=tuple(MoveRow(topic, 0, tuple(range(30)), (2,)) for topic in TOPICS)[:MOST_ROWS],
    moves_total=10_000,
    stopping=(4, 5),
    deleting=7,
    lags_left_out=10**6,
    holders=Holders(
        PermitRow(LONG, 4, "2026-11-30 03:00:00Z", "2026-11-30 03:05:00Z"),
        TurnRow(LONG, f"rebalance --broker={LONG}", "2026-11-30 03:00:00Z", "2026-11-30 03:01:00Z"),
    ),
)
RECOVERING = Overview(
    2, "0.4.0", "RecoveringFromUncleanShutdown", "now", loading=LoadProgress(1, 9, 340, 512)
)


def test_every_problem_is_shown_in_full_at_every_width(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    for view in (IN_TROUBLE, RECOVERING):
        page.write_bytes(html_of(view))
        for dark in (False, True):
            looked = look_at(page, (360, 1280), tmp_path, dark)
            assert looked.console == []
            for width, seen in looked.at.items():
                assert seen["scroll_width"] <= width
                assert seen["too_wide"] == []
                assert seen["smallest_text_px"] >= 13
                assert seen["headings"][0] == "Broker 2"
