"""A planted difference is found, from the bytes of an answer or the files of a partition to the finding."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.protocol import codec
from broker.protocol.api_keys import ApiKey
from broker.record.batch import Record, build_batch
from tests.differential.compare import ABSENT, Finding, Ledger, compare
from tests.differential.differences import TABLE
from tests.differential.files import plain_files
from tests.differential.normalise import Normaliser
from tests.differential.plain import plain_answer
from tests.support.times import NOW_MS

LOG = "00000000000000000000.log"


def answered(key: ApiKey, version: int, fields: dict[str, object]) -> object:
    body = codec.encode(key, version, "response", fields)
    return Normaliser(9092).normalise(plain_answer(key, version, body))


def unexplained(key: ApiKey, version: int, kafka: dict[str, object], landline: dict[str, object]):
    both = (answered(key, version, fields) for fields in (kafka, landline))
    return shown(Ledger(TABLE).unexplained(compare("a script/a step", key, version, *both)))


def shown(findings: list[Finding]) -> list[tuple[str, str, str]]:
    return [(each.path, each.kafka, each.landline) for each in findings]


def beat(error: int) -> dict[str, object]:
    return {"throttle_time": 0, "error_code": error}


def batch(value: bytes, **options: int) -> bytes:
    return build_batch([Record(b"k", value, (), NOW_MS)], **options)


def fetched(records: bytes) -> dict[str, object]:
    row = {"partition_index": 0, "error_code": 0, "high_watermark": 1, "last_stable_offset": 1}
    topics = [{"topic": "t", "partitions": [{**row, "aborted_transactions": [], "records": records}]}]
    return {"throttle_time": 0, "responses": topics}


def test_another_error_code_is_found() -> None:
    assert unexplained(ApiKey.HEARTBEAT, 1, beat(0), beat(0)) == []
    assert unexplained(ApiKey.HEARTBEAT, 1, beat(25), beat(22)) == [
        ("error_code", "UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION")
    ]


def test_another_value_of_a_field_is_found() -> None:
    def offsets(epoch: int) -> dict[str, object]:
        row = {"partition_index": 3, "error_code": 0, "timestamp": -1, "offset": 7, "leader_epoch": epoch}
        return {"throttle_time": 0, "topics": [{"name": "t", "partitions": [row]}]}

    assert unexplained(ApiKey.LIST_OFFSETS, 4, offsets(1), offsets(2)) == [
        ("topics/t/partitions/3/leader_epoch", "1", "2")
    ]


@pytest.mark.parametrize(
    ("records", "field"),
    [
        (batch(b"w"), "records"),
        (batch(b"v", base_offset=1), "base_offset"),
        (batch(b"v", producer_id=5), "producer_id"),
        (batch(b"v", leader_epoch=4), "leader_epoch"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_another_record_is_found(records: bytes, field: str) -> None:
    found = unexplained(ApiKey.FETCH, 4, fetched(batch(b"v")), fetched(records))
    assert f"responses/t/partitions/0/records/0/{field}" in [path for path, _, _ in found]


def test_a_missing_record_is_found() -> None:
    found = unexplained(ApiKey.FETCH, 4, fetched(batch(b"v")), fetched(b""))
    assert ("responses/t/partitions/0/records/0/record_count", "1", ABSENT) in found


def test_another_file_or_another_record_in_a_file_is_found(tmp_path: Path) -> None:
    roots = tmp_path / "kafka", tmp_path / "landline"
    for root, value in zip(roots, (b"v", b"w"), strict=True):
        (root / "t-0").mkdir(parents=True)
        (root / "t-0" / LOG).write_bytes(batch(value))
    (roots[1] / "t-0" / "more.snapshot").touch()
    both = (plain_files(root, {"t"}) for root in roots)
    found = shown(Ledger(TABLE).unexplained(compare("random walk/files", None, 0, *both)))
    assert ("partitions/t-0/files/more.snapshot/is", ABSENT, "there") in found
    assert any(path.startswith(f"partitions/t-0/logs/{LOG}/records") for path, _, _ in found)
