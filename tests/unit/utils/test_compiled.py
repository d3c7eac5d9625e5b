"""What a start finds out about compiled modules beside their sources."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from broker.network import processor
from broker.utils.compiled import MANIFEST, NOT_COMPILED, StaleCodeError, compiled_by, manifest_of
from tests.support.compiled import is_compiled

PATHS = ["log/log.py", "network/processor.py"]


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package with two modules, neither compiled."""
    for path in PATHS:
        (tmp_path / path).parent.mkdir()
        (tmp_path / path).write_text(f'"""{path}"""\n')
    return tmp_path


@pytest.fixture
def compiled(package: Path) -> Path:
    """The same, compiled."""
    for path in PATHS:
        (package / path).with_suffix(".so").write_bytes(b"\x7fELF")
    (package / MANIFEST).write_text(manifest_of(package, PATHS, "mypyc 2.4.1"))
    return package


def test_sources_alone_run_as_python(package: Path) -> None:
    assert compiled_by(package) == NOT_COMPILED


def test_compiled_modules_are_told_with_their_compiler(compiled: Path) -> None:
    assert compiled_by(compiled) == "mypyc 2.4.1"


def test_what_was_compiled_for_another_machine_is_not_taken_for_what_runs(compiled: Path) -> None:
    (compiled / "network/processor.so").rename(compiled / "network/processor.cpython-311-m68k-linux-gnu.so")
    assert compiled_by(compiled) == NOT_COMPILED


@pytest.mark.parametrize(
    "change", [lambda path: path.write_text("x = 1\n"), Path.unlink], ids=["changed", "gone"]
)
def test_a_source_that_is_not_what_was_compiled_is_refused_with_its_name(compiled: Path, change) -> None:
    change(compiled / "log/log.py")
    with pytest.raises(StaleCodeError, match=r"changed since \(log/log\.py\).*install the broker again"):
        compiled_by(compiled)


def test_compiled_modules_of_which_nothing_says_what_they_are_of_are_refused(compiled: Path) -> None:
    (compiled / MANIFEST).unlink()
    with pytest.raises(StaleCodeError, match=r"no compiled\.json.*-delete"):
        compiled_by(compiled)


def test_the_code_under_test_is_that_which_was_asked_for() -> None:
    """`make setup` compiles nothing; `make test` runs the tests on compiled code too, and says so to them."""
    if os.environ.get("TESTED_CODE") == "compiled":
        assert compiled_by() != NOT_COMPILED
        assert is_compiled(processor)
    else:
        assert compiled_by() == NOT_COMPILED
        assert not is_compiled(processor)
