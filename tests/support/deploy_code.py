"""Loads the deployment's filters and modules by their names in Ansible, and its programs and tasks by their files."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parents[2]

# Where Ansible itself finds the collection: `ansible_collections.landline.cluster` is this checkout.
sys.path.append(str(ROOT / ".collections"))


def load(path: str) -> ModuleType:
    """Loads a file by its path in the repository."""
    if path.startswith("plugins/"):
        dotted = path.removesuffix(".py").replace("/", ".")
        return importlib.import_module(f"ansible_collections.landline.cluster.{dotted}")
    spec = importlib.util.spec_from_file_location(f"deploy_{Path(path).stem}", ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look up their module
    spec.loader.exec_module(module)
    return module


def tasks_of(node: Any) -> Iterator[dict[str, Any]]:
    """All tasks in what a file of plays or tasks has, those in blocks too."""
    for each in node or []:
        yield each
        for key in ("tasks", "block", "rescue", "always"):
            yield from tasks_of(each.get(key))
