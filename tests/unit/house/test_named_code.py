"""Files, functions and classes that the design documents name exist where the documents say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.stress.lock_sites import lock_sites
from tests.support.mutations import MUTATIONS
from tests.support.named_code import (
    ROOT,
    Named,
    broker_has,
    classes_in,
    is_defined,
    named_in,
    named_tests,
    rows_of,
)

DOCS = ("design.md", "replication.md")
BROKER = ROOT / "broker"


def text_of(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def found(text: str) -> list[tuple[str, str | None]]:
    return [
        (str(named.path.relative_to(ROOT)) if named.path else named.text, named.word)
        for named in named_in(text)
    ]


@pytest.mark.parametrize("name", DOCS)
def test_every_file_that_is_named_exists(name: str) -> None:
    named = list(named_in(text_of(name)))
    assert len(named) > 50
    assert [str(one) for one in named if one.path is None] == []


@pytest.mark.parametrize("name", DOCS)
def test_what_is_named_of_a_file_is_defined_in_it(name: str) -> None:
    assert [str(one) for one in named_in(text_of(name)) if one.word and not is_defined(one)] == []


@pytest.mark.parametrize("name", DOCS)
def test_every_class_that_is_named_is_the_brokers(name: str) -> None:
    assert [one for one in classes_in(text_of(name)) if not broker_has(*one)] == []


def test_every_member_that_any_document_names_is_one_of_the_brokers() -> None:
    pages = {
        page.name: classes_in(page.read_text(encoding="utf-8")) for page in (ROOT / "docs").rglob("*.md")
    }
    named = [(page, *one) for page, found in pages.items() for one in found if one[1]]
    assert any(page.startswith("0011") for page, *_ in named)
    assert [one for one in named if not broker_has(*one[1:])] == []


def test_a_lock_is_made_where_the_order_of_locks_says() -> None:
    written = {
        row[1].strip("`"): row[2].strip("`") for row in rows_of(text_of("design.md"), "## The order of locks")
    }
    assert written == {site.name: str(site.path.relative_to(BROKER)) for site in lock_sites()}


def test_the_parts_of_the_controller_are_its_modules() -> None:
    parts = " ".join(row[0] for row in rows_of(text_of("design.md"), "## The controller"))
    modules = {path.stem for path in (BROKER / "controller").rglob("*.py")}
    assert set(re.findall(r"`(\w+)`", parts)) - modules == set()


def test_the_floors_are_all_packages_of_the_broker() -> None:
    packages = " ".join(row[1] for row in rows_of(text_of("design.md"), "## Layers"))
    named = set(re.findall(r"`(\w+)`", packages))
    assert named == {path.parent.name for path in BROKER.glob("*/__init__.py")} | {"__main__"}


def test_every_rule_that_is_said_to_be_broken_on_purpose_is() -> None:
    text = text_of("replication.md")
    named = set(re.findall(r"\*([a-z]+(?:-[a-z]+)+)\*", text))
    named |= {row[0] for row in rows_of(text, "## Rules broken on purpose")}
    assert len(named) > 8
    assert named - MUTATIONS.keys() == set()


def test_every_threat_names_a_test_that_shows_what_protects() -> None:
    rows = [row for row in rows_of(text_of("security.md"), "## Threats") if any(row[1:])]
    assert len(rows) > 70
    assert [row for row in rows if len(row) != 3 or not row[1] or not named_tests(row[2])] == []


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: page.name)
def test_every_test_that_a_document_names_exists(page: Path) -> None:
    assert [str(one) for one in named_tests(page.read_text(encoding="utf-8")) if not is_defined(one)] == []


def test_a_test_that_is_not_there_is_found() -> None:
    here = "tests/unit/house/test_named_code.py"
    named = named_tests(
        f"| x | `{here}::test_a_test_that_is_not_there_is_found`, `{here}::test_x`, `no.py::test_x` |"
    )
    assert [is_defined(one) for one in named] == [True, False, False]


def test_a_path_is_below_the_checkout_the_broker_or_the_tests() -> None:
    text = (
        "`pyproject.toml`, `cluster/isr.py` and `unit/cluster/test_isr.py`, in `tests/` and `tests/mixed`\n"
    )
    assert [path for path, _ in found(text)] == [
        *("pyproject.toml", "broker/cluster/isr.py", "tests/unit/cluster/test_isr.py", "tests", "tests/mixed")
    ]


def test_a_bare_file_was_named_before_or_lies_beside_the_last() -> None:
    text = "`cluster/isr.py`, `replica.py`\n`replication/fetcher.py`, `replica.py`, `replica_manager.py`\n`isr.py`\n"
    assert [path for path, _ in found(text)] == [
        *("broker/cluster/isr.py", "broker/cluster/replica.py", "broker/replication/fetcher.py"),
        *("broker/cluster/replica.py", "broker/replication/replica_manager.py", "broker/cluster/isr.py"),
    ]
    assert found("`cluster/isr.py`\n`partition_machine.py`\n")[1] == ("partition_machine.py", None)


def test_a_word_after_a_file_is_of_that_file_until_the_cell_ends() -> None:
    text = "| `may_join` | `cluster/isr.py` `may_join`, `acks=all`, `compression.type` | `IsrState` |\n"
    assert found(text) == [("broker/cluster/isr.py", None), ("broker/cluster/isr.py", "may_join")]


@pytest.mark.parametrize(("word", "is_there"), [("may_join", True), ("IsrState", True), ("may_leave", False)])
def test_a_function_and_a_class_are_definitions(word: str, is_there: bool) -> None:
    path: Path = BROKER / "cluster/isr.py"
    assert is_defined(Named(1, word, path, word)) is is_there


def test_a_member_may_be_a_base_classs_or_an_attribute() -> None:
    assert broker_has("Log", "append_as_leader")
    assert broker_has("KafkaController", "broker_id")
    assert not broker_has("KafkaController", "no_such_thing")
    assert not broker_has("NoSuchThing", None)
