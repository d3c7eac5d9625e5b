"""A class name in the broker has one meaning: a reader need not look where it was imported from."""

import ast
from collections import defaultdict
from pathlib import Path

BROKER = Path(__file__).resolve().parents[3] / "broker"
# Messages have the names of Kafka's schemas, by which the codec finds the fields of other versions.
MESSAGES = "protocol/later/"


def shared_names(root):
    """The class names that several modules define: name to modules."""
    found = defaultdict(list)
    for path in sorted(root.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(str(path.relative_to(root)))
    return {name: places for name, places in found.items() if len(places) > 1}


def test_no_two_classes_of_the_broker_have_one_name():
    found = {
        name: [place for place in places if not place.startswith(MESSAGES)]
        for name, places in shared_names(BROKER).items()
    }
    assert {name: places for name, places in found.items() if len(places) > 1} == {}


def test_two_classes_of_one_name_are_found(tmp_path):
    (tmp_path / "a.py").write_text("class Same: ...\nclass Other: ...\n")
    (tmp_path / "b.py").write_text("def made():\n    class Same: ...\n")
    assert shared_names(tmp_path) == {"Same": ["a.py", "b.py"]}
