"""Where the broker makes its locks, by reading its source: each lock gets the name ``Class._attribute``."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
KINDS = ("Lock", "RLock", "Condition")
_NOTE = re.compile(r"#.*\block order (\d+)\b")


class LockSite(NamedTuple):
    """One line that makes a lock. ``noted`` is the number that its comment gives it in the order, None without one."""

    path: Path
    line: int
    name: str
    noted: int | None


def lock_sites(root: Path = ROOT / "broker") -> list[LockSite]:
    """Every ``threading.Lock()``, ``RLock()`` and ``Condition()`` below ``root``, by path and line."""
    return [site for path in sorted(root.rglob("*.py")) for site in _sites_of(path)]


def _sites_of(path: Path) -> Iterator[LockSite]:
    text = path.read_text()
    if not any(kind in text for kind in KINDS):
        return
    lines = text.splitlines()
    for owner, target, call in _creations(ast.parse(text), path.stem):
        note = _NOTE.search(lines[call.lineno - 1])
        yield LockSite(path, call.lineno, f"{owner}.{target}", int(note[1]) if note else None)


def _creations(tree: ast.AST, owner: str) -> Iterator[tuple[str, str, ast.Call]]:
    """``(owner, attribute or variable, call)``; the owner is the class where there is one, else module or function."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from _creations(node, node.name)
        elif isinstance(node, ast.FunctionDef) and not isinstance(tree, ast.ClassDef):
            yield from _creations(node, f"{owner}.{node.name}")
        elif isinstance(node, ast.Assign | ast.AnnAssign) and _makes_lock(node.value):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            assert isinstance(node.value, ast.Call)
            yield owner, target.attr if isinstance(target, ast.Attribute) else ast.unparse(target), node.value
        elif _makes_lock(node):
            assert isinstance(node, ast.Call)
            yield owner, "<unnamed>", node
        else:
            yield from _creations(node, owner)


def _makes_lock(node: ast.AST | None) -> bool:
    if not isinstance(node, ast.Call):
        return False
    called = node.func
    if isinstance(called, ast.Attribute):
        return called.attr in KINDS and isinstance(called.value, ast.Name) and called.value.id == "threading"
    return isinstance(called, ast.Name) and called.id in KINDS
