"""README's comparison with other deployments: what it says of Landline is what a test shows."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
HAS = re.compile(r'\[✔\]\((\S+) "(\w+)"\)')


def rows():
    text = (
        (ROOT / "README.md")
        .read_text(encoding="utf-8")
        .split("## Beside other deployments")[1]
        .split("\n## ")[0]
    )
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if "|" in line
    ][2:]


def is_of_day_two(file, name):
    """Whether `make day-two` runs the test, and `make test` does not: it, or its whole file, is marked."""
    for node in ast.parse((ROOT / file).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            marks = [node.value]
        elif isinstance(node, ast.FunctionDef) and node.name == name:
            marks = node.decorator_list
        else:
            continue
        if any("mark.day_two" in ast.unparse(mark) for mark in marks):
            return True
    return False


def functions_in(file):
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_each_thing_that_landline_has_is_shown_by_a_test():
    told = rows()
    assert len(told) > 15
    assert all(len(row) == 5 for row in told)
    claims = [row[1] for row in told if "✔" in row[1]]
    assert [claim for claim in claims if HAS.sub("", claim).strip()] == []
    shown = [found for claim in claims for found in HAS.findall(claim)]
    assert [name for file, name in shown if name not in functions_in(file)] == []


def test_it_says_of_how_many_things_the_test_is_not_one_of_make_test():
    later = [row for row in rows() if any(is_of_day_two(*found) for found in HAS.findall(row[1]))]
    words = {9: "nine", 10: "ten", 11: "eleven", 12: "twelve"}[len(later)]
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert f"The tests of {words} rows (" in text
    assert "`make day-two` runs them, `make test` does not" in text
