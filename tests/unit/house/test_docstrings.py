"""A class's docstring begins with the thing: what it is, and Kafka's name for it. Its parameters
come later.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

BROKER = Path(__file__).resolve().parents[3] / "broker"


def public_classes(tree: ast.Module) -> Iterator[ast.ClassDef]:
    return (
        node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )


def parts_of(node: ast.ClassDef) -> set[str]:
    """The names of its constructor's parameters and of its fields."""
    names = set()
    for member in node.body:
        if isinstance(member, ast.FunctionDef) and member.name == "__init__":
            given = member.args
            names |= {parameter.arg for parameter in (*given.posonlyargs, *given.args, *given.kwonlyargs)}
        elif isinstance(member, ast.AnnAssign) and isinstance(member.target, ast.Name):
            names.add(member.target.id)
    return names


def begins_with_a_part(node: ast.ClassDef) -> bool:
    docstring = ast.get_docstring(node)
    if not docstring:
        return False
    return docstring.startswith("`") or docstring.split()[0].rstrip(",.:;") in parts_of(node)


def test_no_public_class_of_the_broker_is_introduced_by_one_of_its_parts() -> None:
    found = {
        f"{path.relative_to(BROKER)}: {node.name}"
        for path in BROKER.rglob("*.py")
        for node in public_classes(ast.parse(path.read_text(encoding="utf-8")))
        if begins_with_a_part(node)
    }
    assert found == set()


@pytest.mark.parametrize(
    ("docstring", "is_one"),
    [
        ("``alive`` says whether a broker is alive.", True),
        ("alive, but not for long", True),
        ("epoch: of the leader.", True),
        ("A replica; Kafka's Replica. ``alive`` says whether its broker is.", False),
        ("Alive replicas.", False),
    ],
)
def test_a_part_is_told_from_the_thing(docstring: str, is_one: bool) -> None:
    source = f'class Replica:\n    """{docstring}"""\n    epoch: int\n    def __init__(self, *, alive): ...\n'
    (node,) = public_classes(ast.parse(source))
    assert begins_with_a_part(node) is is_one


ROOT = BROKER.parent
WRITTEN_BY_HAND = [
    path
    for folder in (
        "broker",
        "rig",
        "lab",
        "chaos",
        "bench",
        "compare",
        "pipeline",
        "sparkctl",
        "plugins",
        "tools",
    )
    for path in sorted((ROOT / folder).rglob("*.py"))
]


def paragraphs(source: str) -> Iterator[list[str]]:
    """The paragraphs of all docstrings, each as its lines."""
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, kinds) and (text := ast.get_docstring(node)):
            yield from (paragraph.splitlines() for paragraph in text.split("\n\n"))


def ends_in_a_single_word(paragraph: list[str]) -> bool:
    return len(paragraph) > 1 and " " not in paragraph[-1].strip() and paragraph[-1].strip()[-1:] in ".,:;)"


def test_no_paragraph_of_a_docstring_leaves_one_word_for_its_last_line() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {paragraph[-1].strip()}"
        for path in WRITTEN_BY_HAND
        for paragraph in paragraphs(path.read_text(encoding="utf-8"))
        if ends_in_a_single_word(paragraph)
    }
    assert found == set()


def test_a_last_line_of_one_word_is_seen() -> None:
    (paragraph,) = paragraphs('"""A sentence that is\ntoo long."""\n')
    assert not ends_in_a_single_word(paragraph)
    (paragraph,) = paragraphs('"""A sentence that is too\nlong."""\n')
    assert ends_in_a_single_word(paragraph)
