"""The status page: what it shows, how much at most, and that foreign names stay text."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from broker.log.loading.load_progress import LoadProgress
from broker.protocol.control_messages import BrokerInfo, PartitionInfo
from broker.server.consumer_lag import GroupLag, LagSnapshot, LagState, PartitionLag
from broker.server.http.overview import (
    MOST_ROWS,
    BrokerRow,
    DiskRow,
    Holders,
    MoveRow,
    Overview,
    PermitRow,
    TurnRow,
    adding_in,
    cluster_rows,
    most_lagging,
)
from broker.server.http.status_page import html_of, name, problems_of
from broker.server.metadata_cache import Snapshot
from broker.utils.topic_partition import TopicPartition

EVIL = '</td><script>alert(1)</script><img src=x onerror="alert(2)">'
HOSTILE = [EVIL, "a\x00b\nc", "\u202egnp.exe", "\ud800", "x" * 50_000, "&amp;", "' onload='x"]


def info(
    number: int, leader: int, isr: tuple[int, ...], replicas: tuple[int, ...] = (1, 2, 3)
) -> PartitionInfo:
    return PartitionInfo(number, leader, 0, isr, replicas)


def snapshot(topics: dict[str, list[PartitionInfo]], live: tuple[int, ...] = (1, 2, 3)) -> Snapshot:
    return Snapshot(
        1,
        1,
        {each: BrokerInfo(each, {"PLAINTEXT": (f"10.0.0.{each}", 9092)}, f"rack-{each}") for each in live},
        {topic: {info.partition_index: info for info in infos} for topic, infos in topics.items()},
    )


def group(group_id: str, *lags: int | None) -> GroupLag:
    rows = {TopicPartition("orders", number): PartitionLag(0, lag) for number, lag in enumerate(lags)}
    return GroupLag(group_id, "Stable", 1, rows)


@pytest.fixture
def view() -> Overview:
    found = cluster_rows(snapshot({"orders": [info(0, 1, (1, 2, 3)), info(1, 2, (1, 2, 3))]}))
    return Overview(1, "0.2.0", "RunningAsBroker", "now", "c", 1, True, True, cluster=found)


def text_of(view: Overview) -> str:
    """What a reader sees, one line for each piece."""
    body = html_of(view).decode().partition("<body>")[2]
    return re.sub(r"\n+", "\n", re.sub(r"<[^>]+>", "\n", body))


def test_a_cluster_in_order_says_so(view: Overview) -> None:
    assert problems_of(view) == []
    assert "Everything is well, as far as this broker knows." in text_of(view)
    assert "Every partition has a leader and all its replicas in sync." in text_of(view)


def test_partitions_without_a_leader_come_before_those_that_are_under_replicated(view: Overview) -> None:
    found = cluster_rows(
        snapshot({"a": [info(0, 1, (1, 2))], "b": [info(0, 3, (3,)), info(1, 1, (1, 2))]}, live=(1, 2))
    )
    assert (found.offline, found.under_replicated, found.problems_total) == (1, 3, 3)
    assert [(row.topic, row.partition, row.leader) for row in found.problems] == [
        ("b", 0, None),
        ("a", 0, 1),
        ("b", 1, 1),
    ]
    assert found.missing == (3,)
    problems = problems_of(replace(view, cluster=found))
    assert [problem.text for problem in problems] == [
        "1 partition has no leader.",
        "Broker 3 is not registered.",
        "3 partitions are under-replicated.",
    ]


def test_a_brokers_row_counts_what_it_leads_and_where_it_is_out_of_sync() -> None:
    found = cluster_rows(snapshot({"a": [info(0, 1, (1, 2)), info(1, 1, (1, 2, 3)), info(2, 2, (2, 3))]}))
    assert [(row.leaders, row.replicas, row.out_of_sync) for row in found.brokers] == [
        (2, 3, 1),
        (1, 3, 0),
        (0, 3, 1),
    ]
    assert found.brokers[0] == BrokerRow(1, ("PLAINTEXT://10.0.0.1:9092",), "rack-1", 2, 3, 1)


def test_a_replica_that_is_being_added_is_not_missing() -> None:
    """As in the metric, the alert and kafka-topics.sh: a rebalance is no trouble. The page told of it."""
    moved = {"a": [info(0, 1, (1, 2), (1, 2, 3)), info(1, 1, (1,), (1, 2, 3)), info(2, 1, (1, 3), (1, 2, 3))]}
    adding = adding_in(MoveRow("a", number, (3,), (2,)) for number in range(3))
    found = cluster_rows(snapshot(moved), adding)
    assert (found.under_replicated, found.problems_total) == (1, 1)
    assert [(row.partition, row.isr) for row in found.problems] == [(1, (1,))]
    assert [(row.broker_id, row.out_of_sync) for row in found.brokers] == [(1, 0), (2, 2), (3, 0)]
    assert cluster_rows(snapshot(moved)).under_replicated == 3


def test_ten_thousand_partitions_in_trouble_make_a_page_of_bounded_size(view: Overview) -> None:
    topics = {
        f"topic-{number:03}" + "x" * 230: [info(each, 9, (9,)) for each in range(100)]
        for number in range(100)
    }
    found = cluster_rows(snapshot(topics, live=tuple(range(1000, 1200))))
    groups = most_lagging(LagSnapshot(tuple(group(f"g{n}" + "y" * 30_000, n) for n in range(300))))
    moves = tuple(MoveRow(topic, 0, tuple(range(500)), ()) for topic in topics)[:MOST_ROWS]
    page = html_of(
        replace(view, cluster=found, groups=groups, groups_total=300, moves=moves, moves_total=10_000)
    )
    assert found.problems_total == 10_000
    assert len(page) < 150_000
    text = page.decode()
    assert all(
        words in text for words in ("and 9,950 more partitions", "and 250 more groups", "more brokers")
    )


def test_the_groups_with_the_largest_lag_come_first(view: Overview) -> None:
    found = most_lagging(LagSnapshot((group("a", 1, 2), group("b", 50), group("c", None), group("d", 0))))
    assert [each.group_id for each in found] == ["b", "a", "c", "d"]
    assert "+ 1 unknown" in text_of(replace(view, groups=found, groups_total=4))


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_name_stays_text(view: Overview, text: str) -> None:
    harmless = html_of(view).decode()
    broker = BrokerRow(2, (text, "PLAINTEXT://h:1"), text, 0, 0, 0)
    page = html_of(
        replace(
            view,
            cluster_id=text,
            unready=(text,),
            cluster=replace(view.cluster, brokers=(*view.cluster.brokers, broker)),
            groups=(group(text, 1),),
            disks=(DiskRow(text, 10, 5, text, text),),
            moves=(MoveRow(text, 0, (1,), ()),),
            holders=Holders(PermitRow(text, 2, "", "soon"), TurnRow(text, text, "", "soon")),
        )
    ).decode()
    tags = set(re.findall(r"<(\w+)", page))
    assert tags <= set(re.findall(r"<(\w+)", harmless)) | {"meter", "bdi", "small", "br"}
    assert 'onerror="' not in page
    assert "onload='" not in page
    assert not re.search(r"[\x00-\x09\x0b-\x1f\u202e\u2066]", page)
    assert len(page) < len(harmless) + 20_000


def test_a_name_is_shown_as_it_is_written() -> None:
    assert name("<b>&") == "<bdi>&lt;b&gt;&amp;</bdi>"
    assert name("\u202eevil\x07") == "<bdi>\ufffdevil\ufffd</bdi>"
    assert len(name("x" * 1000)) < 150


def test_a_recovery_shows_how_far_it_is() -> None:
    view = Overview(1, "0.2.0", "RecoveringFromUncleanShutdown", "now", loading=LoadProgress(1, 9, 340, 512))
    assert "Recovering: 340 of 512 segments verified, 1 of 9 logs loaded." in text_of(view)
    assert '<progress value="340" max="512">' in html_of(view).decode()


def test_what_is_under_way_is_told(view: Overview) -> None:
    text = text_of(
        replace(view, moves=(MoveRow("orders", 7, (4,), (1,)),), moves_total=3, stopping=(2, 3), deleting=1)
    )
    for words in ("Brokers 2, 3 are shutting down.", "1 topic is being deleted.", "orders", "and 2 more"):
        assert words in text


def test_who_has_the_stop_permit_and_the_turn_to_move_is_told(view: Overview) -> None:
    permit = PermitRow("deploy@control", 2, "2026-11-30 03:00:00Z", "2026-11-30 03:05:00Z")
    turn = TurnRow("alice@laptop", "rebalance --broker=3", "", "2026-11-30 03:01:00Z", is_ending=True)
    text = " ".join(text_of(replace(view, holders=Holders(permit, turn))).split())
    assert (
        "deploy@control has the stop permit, for broker 2, since 2026-11-30 03:00:00Z. "
        "It ends at 2026-11-30 03:05:00Z if it is not renewed."
    ) in text
    assert (
        "alice@laptop has the turn to move partitions, by rebalance --broker=3 , and takes back what it has set."
    ) in text
    assert "Nothing is under way" not in text


def test_nobody_with_the_permit_is_told_from_nobody_known(view: Overview) -> None:
    assert "in the cluster, and nobody has the stop permit or the turn" in text_of(view)
    unknown = text_of(replace(view, holders=None))
    assert "Nothing is under way in the cluster." in unknown
    assert "is not known: ZooKeeper does not answer" in unknown
    assert "nobody has" not in unknown


def test_a_page_says_where_the_groups_and_disks_of_other_brokers_are(view: Overview) -> None:
    disks = (DiskRow("/a", 100, 60, None, None),)
    one_of_three = text_of(replace(view, disks=disks, groups=(group("a", 1),), groups_total=1))
    assert one_of_three.count("those of other brokers are on their pages") == 2
    assert "those of other brokers are on their pages" in text_of(view), "it coordinates none, but others may"
    assert "at its HTTP port (landline.http.port)" in one_of_three
    alone = replace(view, cluster=replace(view.cluster, brokers=view.cluster.brokers[:1]))
    assert "their pages" not in text_of(alone)
    assert "HTTP port" not in text_of(alone)


def test_a_broker_that_is_not_the_controller_says_who_knows_more(view: Overview) -> None:
    text = text_of(replace(view, is_controller=False, controller_id=3))
    assert "the controller, broker 3, knows all of it" in text
    assert "broker -1" not in text_of(replace(view, is_controller=False, controller_id=-1))


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (LagState.KNOWN, "This broker coordinates no group."),
        (LagState.LATER, "not known yet"),
        (LagState.OFF, "landline.consumer.lag.max.partitions is 0"),
    ],
)
def test_no_groups_are_told_from_groups_that_are_not_known(
    view: Overview, state: LagState, words: str
) -> None:
    text = text_of(replace(view, lags=state))
    assert words in text
    assert ("coordinates no group" in text) is (state is LagState.KNOWN)


def test_groups_without_a_lag_are_counted(view: Overview) -> None:
    text = text_of(replace(view, groups=(group("a", 1),), groups_total=1, lags_left_out=1_234))
    assert "1,234 groups and offsets are left out: landline.consumer.lag.max.partitions is too low" in text


def test_a_disk_that_fails_or_refuses_records_is_a_problem(view: Overview) -> None:
    disks = (
        DiskRow("/a", 100, 1, None, "log directory /a is full"),
        DiskRow("/b", 0, 0, "cannot append: Input/output error", None),
        DiskRow("/c", 100, 60, None, None),
    )
    shown = replace(view, disks=disks)
    assert [problem.kind for problem in problems_of(shown)] == ["bad", "bad"]
    text = text_of(shown)
    assert "Log directory /a is full" in text
    assert "cannot append: Input/output error" in text
    assert re.search(r"\b40 %", text)
