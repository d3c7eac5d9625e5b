"""A record's value tells its id, and whether a byte of it was changed."""

from __future__ import annotations

import pytest

from chaos.values import id_of, value_of


@pytest.mark.parametrize("size", [0, 5, 11, 12, 13, 200, 10_000])
def test_a_value_has_its_size_and_tells_its_id(size: int) -> None:
    value = value_of("p-0000001", size)
    assert len(value) == (size if size > len("p-0000001|") else len("p-0000001"))
    assert id_of(value) == "p-0000001"


def test_any_changed_byte_of_the_filler_makes_another_id() -> None:
    value = value_of("p-0000001", 60)
    for place in range(len(value)):
        changed = bytearray(value)
        changed[place] ^= 0x04
        assert id_of(bytes(changed)) != "p-0000001", place


def test_a_cut_value_keeps_its_id_only_when_the_rest_agrees() -> None:
    value = value_of("p-0000001", 60)
    assert "changed to 61 bytes" in id_of(value + b"?")


def test_values_that_are_no_text_have_an_id_that_nobody_sent() -> None:
    assert "changed to 3 bytes" in id_of(b"\xff\xfe|")
