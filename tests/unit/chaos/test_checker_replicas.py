"""Replicas' files are compared byte for byte by offset, below the high watermark, whatever their segments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from broker.log.producers.markers import TransactionMarker, build_marker
from broker.record.batch import Record, build_batch
from chaos.anomalies import AnomalyKind
from chaos.checker import check_all
from chaos.history import Event, History, Sent, Stored, StoredRange
from chaos.values import value_of

IDS = [f"p-{number}" for number in range(6)]


def batch(first: int, ids: Sequence[str], epoch: int = 0) -> bytes:
    records = [Record(None, value_of(record, 50)) for record in ids]
    return build_batch(records, base_offset=first, leader_epoch=epoch)


BATCHES = [batch(0, IDS[0:2]), batch(2, IDS[2:4]), batch(4, IDS[4:6])]


def replica(root: Path, segments: Mapping[int, bytes], topic: str = "t") -> Path:
    directory = root / f"{topic}-0"
    directory.mkdir(parents=True)
    for base_offset, content in segments.items():
        (directory / f"{base_offset:020d}.log").write_bytes(content)
    return root


def history(end: int = 6, start: int = 0) -> History:
    events: list[Event] = [Sent("p", record, "t") for record in IDS]
    events += [StoredRange(0, start, end, "t")]
    events += [Stored(0, offset, IDS[offset], "t") for offset in range(start, end)]
    return History(events)


def details(seen: History, *roots: Path) -> list[str]:
    found = check_all(seen, dict(enumerate(roots, 1)))
    assert all(anomaly.kind is AnomalyKind.DIVERGED for anomaly in found)
    return [anomaly.detail for anomaly in found]


def whole(root: Path) -> Path:
    return replica(root, {0: b"".join(BATCHES)})


def test_the_same_bytes_in_other_segments_are_the_same(tmp_path: Path) -> None:
    other = replica(tmp_path / "b", {0: BATCHES[0], 2: BATCHES[1] + BATCHES[2]})
    assert details(history(), whole(tmp_path / "a"), other) == []


def test_retention_may_have_cut_the_start_of_one(tmp_path: Path) -> None:
    other = replica(tmp_path / "b", {4: BATCHES[2]})
    assert details(history(start=4), whole(tmp_path / "a"), other) == []


def test_a_replica_whose_segments_are_all_gone_starts_at_the_end(tmp_path: Path) -> None:
    other = replica(tmp_path / "b", {6: b""})
    assert details(history(start=6), whole(tmp_path / "a"), other) == []


def test_above_the_high_watermark_they_may_differ(tmp_path: Path) -> None:
    other = replica(tmp_path / "b", {0: BATCHES[0] + BATCHES[1] + batch(4, ["p-x"], epoch=3)})
    assert details(history(end=4), whole(tmp_path / "a"), other) == []


def test_a_changed_byte_is_found_and_the_wrong_checksum_named(tmp_path: Path) -> None:
    content = bytearray(b"".join(BATCHES))
    content[len(BATCHES[0]) + 80] ^= 1
    roots = [whole(tmp_path / "a"), replica(tmp_path / "b", {0: bytes(content)}), whole(tmp_path / "c")]
    (detail,) = details(history(), *roots)
    assert detail.startswith(
        "from offset 2 on, below the high watermark 6: broker 1, 3 holds a batch of 2 to 3"
    )
    assert "broker 2 holds a batch of 2 to 3, epoch 0" in detail
    assert detail.count("a WRONG CRC") == 1


def test_another_leader_epoch_is_a_divergence_though_the_checksum_is_right(tmp_path: Path) -> None:
    other = replica(tmp_path / "b", {0: BATCHES[0] + batch(2, IDS[2:4], epoch=1) + BATCHES[2]})
    (detail,) = details(history(), whole(tmp_path / "a"), other)
    assert "epoch 0" in detail
    assert "epoch 1" in detail


def test_a_replica_that_ends_below_the_high_watermark_diverges(tmp_path: Path) -> None:
    (detail,) = details(history(), whole(tmp_path / "a"), replica(tmp_path / "b", {0: BATCHES[0]}))
    assert "from offset 2 on" in detail
    assert "broker 2 ends" in detail


def test_a_half_written_batch_below_the_high_watermark_diverges(tmp_path: Path) -> None:
    torn = replica(tmp_path / "b", {0: b"".join(BATCHES)[:-1]})
    (detail,) = details(history(), whole(tmp_path / "a"), torn)
    assert "from offset 4 on" in detail


def test_replicas_that_all_end_below_the_high_watermark_diverge(tmp_path: Path) -> None:
    roots = [replica(tmp_path / name, {0: BATCHES[0]}) for name in "ab"]
    (detail,) = details(history(), *roots)
    assert detail == "every replica (1, 2) ends at 2, below the high watermark 6"


def test_a_gap_that_all_share_is_a_divergence_from_what_was_read(tmp_path: Path) -> None:
    roots = [replica(tmp_path / name, {0: BATCHES[0] + BATCHES[2]}) for name in "ab"]
    (detail,) = details(history(), *roots)
    assert detail == "the files hold nothing at offset 2, read as p-2"


def test_replicas_that_agree_with_each_other_but_not_with_what_was_read_diverge(tmp_path: Path) -> None:
    content = BATCHES[0] + batch(2, ["p-x", "p-3"]) + BATCHES[2]
    roots = [replica(tmp_path / name, {0: content}) for name in "ab"]
    (detail,) = details(history(), *roots)
    assert detail == "the files hold p-x at offset 2, read as p-2"


def test_a_corruption_that_all_share_is_named(tmp_path: Path) -> None:
    content = bytearray(b"".join(BATCHES))
    content[-1] ^= 1
    roots = [replica(tmp_path / name, {0: bytes(content)}) for name in "ab"]
    (detail,) = details(history(), *roots)
    assert detail.startswith("every replica is corrupt: ")


def test_a_partition_of_which_nobody_has_files_diverges(tmp_path: Path) -> None:
    (detail,) = details(history(), replica(tmp_path / "a", {0: b""}, topic="other"))
    assert detail == "no replica has files, the log ends at 6"


def test_directories_below_a_brokers_root_are_found(tmp_path: Path) -> None:
    whole(tmp_path / "a" / "disk2")
    other = replica(tmp_path / "b", {0: BATCHES[0]})
    assert len(details(history(), tmp_path / "a", other)) == 1


def test_without_a_final_log_the_checkpointed_high_watermark_counts(tmp_path: Path) -> None:
    first, second = whole(tmp_path / "a"), replica(tmp_path / "b", {0: BATCHES[0]})
    sent_only = History([Sent("p", IDS[0], "t")])
    for root, offset in ((first, 6), (second, 2)):
        (root / "replication-offset-checkpoint").write_text(f"0\n1\nt 0 {offset}\n")
    (detail,) = details(sent_only, first, second)
    assert "below the high watermark 6: broker 1 holds a batch of 2 to 3" in detail


def in_transaction(first: int, *ids: str, producer_id: int) -> bytes:
    records = [Record(None, value_of(record, 50)) for record in ids]
    return build_batch(
        records,
        base_offset=first,
        leader_epoch=0,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )


def marker(offset: int, producer_id: int, *, committed: bool) -> bytes:
    batch = build_marker(producer_id, 0, TransactionMarker(committed, 0), 1000)
    batch[:8] = offset.to_bytes(8)
    return bytes(batch)


def transactions(end: int, *stored: tuple[int, str]) -> History:
    events: list[Event] = [Sent("p", record, "t") for record in IDS]
    events += [StoredRange(0, 0, end, "t"), *(Stored(0, offset, record, "t") for offset, record in stored)]
    return History(events)


def test_of_transactions_only_what_is_committed_must_have_been_read(tmp_path: Path) -> None:
    log = b"".join(
        [
            in_transaction(0, IDS[0], IDS[1], producer_id=1),
            in_transaction(2, IDS[2], producer_id=2),
            marker(3, 1, committed=False),
            batch(4, IDS[3:4]),
            marker(5, 2, committed=True),
            in_transaction(6, IDS[4], producer_id=1),
            marker(7, 1, committed=True),
        ]
    )
    root = replica(tmp_path, {0: log})
    committed = ((2, IDS[2]), (4, IDS[3]), (6, IDS[4]))
    assert details(transactions(8, *committed), root) == []
    assert details(transactions(8, *committed[1:]), root) == [
        f"the files hold {IDS[2]} at offset 2, read as nothing"
    ]
    assert details(transactions(8, (0, IDS[0]), *committed), root) == [
        f"the files hold nothing at offset 0, read as {IDS[0]}"
    ]
