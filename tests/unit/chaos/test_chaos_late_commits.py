"""A commit is undone, not lost, only where the log of the groups' offsets holds it and an older one behind it."""

from __future__ import annotations

import pytest

from broker.coordinator.group.records import OffsetAndMetadata, encode_offset_key, encode_offset_value
from broker.record.batch import Record, build_batch
from broker.utils.topic_partition import TopicPartition
from chaos.checker import check
from chaos.history import Acked, Assigned, Committed, GroupOffset, History, Polled, Sent
from chaos.late_commits import undone_by_late_commits

RECORDS = [f"p-{number}" for number in range(6)]


def history(at_last: int) -> History:
    """A group that read and committed all six records, and whose offset is another at last."""
    times = iter(range(100))
    events = [
        *(Sent("p", record, "t", next(times)) for record in RECORDS),
        *(Acked("p", record, 0, offset, "t", next(times)) for offset, record in enumerate(RECORDS)),
        Assigned("m", 0, "t", "g", next(times)),
        *(Polled("m", 0, offset, record, "t", next(times)) for offset, record in enumerate(RECORDS)),
        Committed("m", 0, 4, "t", None, next(times)),
        Committed("m", 0, 6, "t", None, next(times)),
        GroupOffset("g", 0, at_last, "t", next(times)),
    ]
    return History(events, frozenset({"p"}))


def logged(root, group, *offsets):
    """The broker's log dir with these commits in __consumer_offsets-7."""
    directory = root / "__consumer_offsets-7"
    directory.mkdir(parents=True)
    key = encode_offset_key(group, TopicPartition("t", 0))
    values = [encode_offset_value(OffsetAndMetadata(offset, -1, "", 1000)) for offset in offsets]
    batches = b"".join(build_batch([Record(key, value, (), 1000)]) for value in values)
    (directory / f"{0:020d}.log").write_bytes(batches)
    return {1: root / "none", 2: root}


@pytest.mark.parametrize(
    ("group", "commits", "undone"),
    [
        ("g", (4, 6, 4), True),
        ("g", (4, 6), False),
        ("g", (4, 4), False),  # the newer one is nowhere: it was lost
        ("g", (6, 5), False),  # another offset than the group went on at
        ("other", (4, 6, 4), False),
    ],
)
def test_the_log_tells_a_commit_that_was_undone_from_one_that_was_lost(tmp_path, group, commits, undone):
    seen = history(at_last=4)
    found = check(seen)
    assert [anomaly.kind.value for anomaly in found] == ["commit-lost"]
    explained = undone_by_late_commits(found, seen, logged(tmp_path, group, *commits))
    assert explained == (set(found) if undone else set())


def test_nothing_is_looked_at_without_a_lost_commit(tmp_path):
    seen = history(at_last=6)
    assert undone_by_late_commits(check(seen), seen, {1: tmp_path / "nowhere"}) == set()
