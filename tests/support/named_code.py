"""The code that a document names in backticks: files, definitions in them, and the broker's classes.

A path is below the checkout, ``broker/`` or ``tests/``. A bare file name refers to the file of that name that
the document named before, or else to one beside the path that the line named last. A word after a Python
file, in the same cell of a table, is something that is defined in it.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
BASES = (ROOT, ROOT / "broker", ROOT / "tests")
_QUOTED = re.compile(r"`([^`\n]+)`")
_PATH = re.compile(r"[\w.-]+(/[\w.-]+)*(\.(py|yml|toml)|/)|[\w.-]+(/[\w.-]+)+")
_TEST = re.compile(r"([\w./-]+\.py)::(\w+)")
_WORD = re.compile(r"[A-Za-z_]\w+")
_MEMBER = re.compile(r"([A-Z][a-z]\w*)(?:\.(\w+))?")


class Named(NamedTuple):
    """Something that a document names. ``path`` is None if there is no such file; ``word`` should be defined
    in it.
    """

    line: int
    text: str
    path: Path | None
    word: str | None = None

    def __str__(self) -> str:
        return f"line {self.line}: {self.text}"


def named_in(text: str) -> Iterator[Named]:
    """Files, and words after one, in the document's order."""
    known: dict[str, Path] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        folder: Path | None = None
        for cell in line.split(" | "):
            file: Path | None = None
            for token in _QUOTED.findall(cell):
                if _PATH.fullmatch(token):
                    file = _found(token, known, folder)
                    if file is not None:
                        known[file.name] = file
                        folder = file.parent if "/" in token else folder
                    yield Named(number, token, file)
                elif line.startswith("|") and file and file.suffix == ".py" and _WORD.fullmatch(token):
                    yield Named(number, f"{file.name} {token}", file, token)


def named_tests(text: str) -> list[Named]:
    """Each test of a file, ``file.py::test_name``, that a document names."""
    return [
        Named(text.count("\n", 0, match.start()) + 1, match[0], ROOT / match[1], match[2])
        for match in _TEST.finditer(text)
    ]


def classes_in(text: str) -> list[tuple[str, str | None]]:
    """Each ``Class`` and ``Class.member`` that a document names."""
    found = [_MEMBER.fullmatch(token) for token in _QUOTED.findall(text)]
    return [(match[1], match[2]) for match in found if match]


def is_defined(named: Named) -> bool:
    """Whether the file has a function, a method or a class with that name."""
    assert named.path is not None
    if not named.path.exists():
        return False
    return named.word in {node.name for node in ast.walk(_tree(named.path)) if isinstance(node, _DEFINITIONS)}


def broker_has(name: str, member: str | None) -> bool:
    """Whether the broker has such a class, with that member: a method, or an attribute that it sets."""
    members = _classes().get(name)
    return members is not None and (member is None or member in members)


def rows_of(text: str, heading: str) -> list[list[str]]:
    """The rows of the first table below a heading, cell by cell."""
    _, section = text.split(f"\n{heading}\n", 1)
    lines = section[section.index("\n|---") + 1 :].split("\n")[1:]
    end = next(index for index, line in enumerate(lines) if not line.startswith("|"))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[:end]]


def _found(token: str, known: dict[str, Path], folder: Path | None) -> Path | None:
    tried = [base / token for base in BASES]
    if "/" not in token:
        tried = [*filter(None, [known.get(token), folder and folder / token]), ROOT / token]
    return next((path for path in tried if path.exists()), None)


@cache
def _classes() -> dict[str, set[str]]:
    """The broker's classes by name, with their members and those of their bases."""
    members: dict[str, set[str]] = defaultdict(set)
    bases: dict[str, set[str]] = defaultdict(set)
    for path in (ROOT / "broker").rglob("*.py"):
        for node in ast.walk(_tree(path)):
            if isinstance(node, ast.ClassDef):
                members[node.name] |= set(_members(node))
                bases[node.name] |= {base.id for base in node.bases if isinstance(base, ast.Name)}
    for name in members:
        waiting = set(bases[name])
        while waiting:
            base = waiting.pop()
            members[name] |= members.get(base, set())
            waiting |= bases.get(base, set())
    return dict(members)


def _members(node: ast.ClassDef) -> Iterator[str]:
    for inner in ast.walk(node):
        if isinstance(inner, _DEFINITIONS):
            yield inner.name
        elif isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store):
            yield inner.attr
        elif isinstance(inner, ast.AnnAssign) and isinstance(inner.target, ast.Name):
            yield inner.target.id


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
