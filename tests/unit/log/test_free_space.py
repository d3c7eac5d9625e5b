"""The floor of free space: when clients' records are refused, and when they are taken again."""

from __future__ import annotations

import pytest

from broker.log.free_space import FreeSpaceFloor, Space, check_free_space, space_at
from broker.log.log_dir_health import LogDirHealth

GIB, MIB = 1 << 30, 1 << 20
FLOOR = FreeSpaceFloor(GIB, 5)


def space(total: int, free: int, inodes: int | None = 1000) -> Space:
    return Space(total, free, inodes)


def test_the_floor_is_the_smaller_of_bytes_and_share():
    assert FLOOR.bytes_on(1000 * GIB) == GIB
    assert FLOOR.bytes_on(10 * GIB) == GIB // 2
    assert FreeSpaceFloor(0, 5).bytes_on(GIB) == FreeSpaceFloor(GIB, 0).bytes_on(GIB) == 0


@pytest.mark.parametrize(
    ("free", "refusing", "expected"),
    [(GIB - 1, False, True), (GIB, False, False), (GIB, True, True), (GIB + GIB // 10, True, False)],
)
def test_space_must_exceed_the_floor_by_a_tenth_before_records_are_taken_again(free, refusing, expected):
    assert FLOOR.refuses(space(100 * GIB, free), refusing=refusing, was_full=False) is expected


def test_without_a_floor_a_full_disk_is_tried_again_once_a_mebibyte_is_free():
    none = FreeSpaceFloor(0, 0)
    assert not none.refuses(space(GIB, 0), refusing=False, was_full=False)
    assert none.refuses(space(GIB, MIB - 1), refusing=True, was_full=True)
    assert not none.refuses(space(GIB, MIB), refusing=True, was_full=True)


def test_a_disk_without_inodes_is_full_whatever_its_bytes():
    assert FLOOR.refuses(space(100 * GIB, 50 * GIB, 0), refusing=False, was_full=False)
    assert not FLOOR.refuses(space(100 * GIB, 50 * GIB, None), refusing=False, was_full=False)


def test_a_directory_enters_and_leaves_refusal_with_the_space_of_its_disk(tmp_path):
    health = LogDirHealth(tmp_path)
    found = space_at(tmp_path)
    check_free_space(FreeSpaceFloor(2 * found.total_bytes, 100), [health])
    assert health.refusal is not None
    assert str(tmp_path) in health.refusal
    assert "landline.log.dir.min.free.bytes" in health.refusal
    check_free_space(FreeSpaceFloor(0, 0), [health])
    assert health.refusal is None
    assert health.failure is None


def test_a_directory_that_is_gone_has_failed(tmp_path):
    health = LogDirHealth(tmp_path / "gone")
    check_free_space(FLOOR, [health])
    assert health.failure is not None
