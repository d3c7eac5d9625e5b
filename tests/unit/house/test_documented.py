"""Commands are read from documents as a reader would type them, and the list of exceptions has no
needless entry.
"""

import re
from pathlib import Path

import pytest

from tests.support.documented import commands_of, documents
from tests.support.documented_plan import INSTEAD, RUNNING, VERBS, placed, running

ROOT = Path(__file__).resolve().parents[3]


def texts(markdown):
    return [(command.line, command.text) for command in commands_of("x.md", markdown)]


def test_in_a_console_what_follows_a_prompt_is_a_command_and_the_rest_is_output():
    page = "# Title\n\n```console\n$ one --a\nsaid by one\n# two   # a root's, with a word\n```\n"
    assert texts(page) == [(4, "one --a"), (6, "two   # a root's, with a word")]


def test_in_a_shells_block_each_line_is_a_command():
    assert texts("```sh\none\n\ntwo\n```\n") == [(2, "one"), (4, "two")]
    assert texts("Do:\n\n    one   # it's fast\n    two\n") == [(3, "one   # it's fast"), (4, "two")]


def test_a_block_in_a_list_is_read_too():
    assert texts("- first, do\n\n      one\n\n  and then more\n") == [(3, "one")]


def test_a_command_goes_on_after_a_backslash_and_in_an_open_quote():
    assert texts('```sh\none \\\n  --a "b\nc"\ntwo\n```\n') == [(2, 'one \\\n  --a "b\nc"'), (5, "two")]


def test_what_is_only_shown_is_no_command():
    assert texts("```python\nx = 1\n```\n\n```text\na --> b\n```\n") == []


def test_a_fence_that_does_not_say_what_it_is_is_refused():
    with pytest.raises(ValueError, match=r"x\.md:3: a fence is ''"):
        texts("Do\n\n```\none\n```\n")


def test_a_command_is_known_without_its_comment_and_blanks():
    (command,) = commands_of("x.md", "    one   --a 'b # c'     # it's a word\n")
    assert command.bare == "one --a 'b # c'"


def test_the_lab_and_the_directories_of_a_test_take_the_place_of_the_documentations():
    assert placed(".venv/bin/lab enter default -- x /srv/landline/default/y", "l", "/s") == (
        ".venv/bin/lab enter l -- x /srv/landline/l/y"
    )
    assert (
        placed("make x INVENTORY=inventory/mine/hosts.yml", "l", "/s") == "make x INVENTORY=/s/mine/hosts.yml"
    )


def test_those_that_go_on_are_told_from_those_that_end():
    assert running(".venv/bin/landline standalone --port 9092") == "ready on"
    assert running(".venv/bin/lab enter default -- fab spark.submit lake --args 'x'") is not None
    assert running(".venv/bin/lab enter default -- fab spark.status") is None


def test_every_exception_is_still_documented() -> None:
    written = {
        command.bare for path in documents(ROOT) for command in commands_of(str(path), path.read_text())
    }
    verbs = {words[1] for words in map(str.split, written) if words[0] == "make" and len(words) > 1}
    assert set(INSTEAD) <= written, set(INSTEAD) - written
    assert set(VERBS) <= verbs, set(VERBS) - verbs
    assert all(any(bare.startswith(begin) for bare in written) for begin in RUNNING)


def test_what_is_said_to_be_run_by_another_test_is():
    """A playbook by its name or by its verb."""
    said = {verb: re.findall(r"tests/\S+\.py", each.reason) for verb, each in VERBS.items()}
    said |= {bare: re.findall(r"tests/\S+\.py", each.reason) for bare, each in INSTEAD.items()}
    assert len([files for files in said.values() if files]) > 8
    for what, files in said.items():
        for text in [(ROOT / file).read_text() for file in files]:
            if (ROOT / f"playbooks/{what}.yml").exists():
                assert f'"{what}"' in text or f"playbooks/{what}.yml" in text, (what, files)


def test_commands_in_the_text_do_not_need_an_activated_environment() -> None:
    bare = re.compile(r"(?<![\w./])python3? -m (?:lab|pipeline|compare|tests|broker|bench|chaos|rig|tools)\b")
    for path in documents(ROOT):
        if "adr" in path.parts:
            continue
        found = [
            line for line in path.read_text().splitlines() if bare.search(line) and "lab enter" not in line
        ]
        assert not found, f"{path}: say .venv/bin/python: {found}"


def test_each_test_that_is_said_to_hold_a_defect_is_there():
    """A cell has the form ``file.py``: ``test_one``, ``test_other``; ... A file without a directory is a
    unit test.
    """
    section = (ROOT / "docs/reliability.md").read_text().split("## When threads meet")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ") and ".py`" in line]
    assert len(rows) > 20
    for row in rows:
        held = row.split(" | ")[1]
        for part in held.split("; "):
            file, *tests = re.findall(r"`([^`]+)`", part)
            (path,) = [ROOT / file] if "/" in file else (ROOT / "tests/unit").rglob(file)
            defined = re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)
            assert tests, row
            assert set(tests) <= set(defined), f"{file}: {set(tests) - set(defined)}"
