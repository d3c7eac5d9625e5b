"""Loads the deployment's filters and modules as Ansible does: files that are not in a package."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import ansible.module_utils

ROOT = Path(__file__).parents[2]

# Where Ansible itself finds the modules' shared code.
ansible.module_utils.__path__.append(str(ROOT / "plugins/module_utils"))


def load(path: str) -> ModuleType:
    """Loads a file by its path in the repository."""
    spec = importlib.util.spec_from_file_location(f"deploy_{Path(path).stem}", ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look up their module
    spec.loader.exec_module(module)
    return module
