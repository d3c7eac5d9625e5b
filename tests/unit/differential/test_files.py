"""Files are compared by their names and by the records in them."""

from __future__ import annotations

from pathlib import Path

from broker.record.batch import Record, build_batch
from tests.differential.files import EPOCHS, plain_files
from tests.support.times import NOW_MS

LOG = "00000000000000000000.log"


def partition(root: Path, name: str, value: bytes = b"v") -> None:
    (root / name).mkdir()
    (root / name / LOG).write_bytes(build_batch([Record(None, value, (), NOW_MS)]))
    (root / name / EPOCHS).write_text("0\n1\n0 0\n")


def test_only_the_partitions_of_these_topics_count(tmp_path: Path) -> None:
    for name in ("t-0", "t-1", "other-0", "t-0.7f-delete"):
        partition(tmp_path, name)
    assert [each["name"] for each in plain_files(tmp_path, {"t"})["partitions"]] == ["t-0", "t-1"]


def test_a_partition_has_its_names_records_and_epochs(tmp_path: Path) -> None:
    partition(tmp_path, "t-0")
    (found,) = plain_files(tmp_path, {"t"})["partitions"]
    assert [each["name"] for each in found["files"]] == [LOG, EPOCHS]
    assert found["logs"][0]["records"][0]["records"][0][3] == b"v".hex()
    assert found["epochs"] == "0\n1\n0 0\n"
