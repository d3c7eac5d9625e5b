"""Which sources a benchmark measures: compiled code of other ones is not this checkout's."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.bytecode import differing_sources


@pytest.fixture
def both(tmp_path: Path) -> tuple[Path, Path]:
    """A checkout and a copy of it."""
    for name in ("checkout", "copy"):
        (tmp_path / name / "broker" / "log").mkdir(parents=True)
        (tmp_path / name / "broker" / "log" / "log.py").write_text("x = 1\n")
    return tmp_path / "checkout", tmp_path / "copy"


def test_a_copy_of_the_same_sources_may_be_measured(both: tuple[Path, Path]) -> None:
    checkout, copy = both
    (copy / "broker" / "log" / "log.so").write_bytes(b"\x7fELF")
    assert differing_sources(copy, checkout) == ""


@pytest.mark.parametrize(
    "change", [lambda path: path.write_text("x = 2\n"), Path.unlink], ids=["changed", "gone"]
)
def test_a_copy_of_other_sources_is_told_by_the_first_of_them(both: tuple[Path, Path], change) -> None:
    checkout, copy = both
    change(copy / "broker" / "log" / "log.py")
    assert differing_sources(copy, checkout) == "broker/log/log.py"
