"""Ansible's strategy of this file's name by way of Mitogen: one interpreter for each host, which runs a module within
milliseconds, in place of a new one for each task. Ansible finds it by ``ANSIBLE_STRATEGY_PLUGINS``.
"""

import gc
import hashlib
import json
import os
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import ansible.constants
import ansible.plugins.strategy
import ansible_mitogen.module_finder
from ansible.plugins.loader import filter_loader, test_loader
from ansible_mitogen.strategy import StrategyMixin

SCANNED = Path(__file__).parents[3] / "build" / "scanned-modules"

# This file has the original's name as a module too.
_spec = spec_from_file_location(
    "original_strategy", Path(ansible.plugins.strategy.__file__).with_name(Path(__file__).name)
)
_original = module_from_spec(_spec)
_spec.loader.exec_module(_original)

# What is imported here is not imported again by each worker, one of which is forked for each task and host.
list(filter_loader.all())
list(test_loader.all())
for _path in sorted((Path(__file__).parents[3] / "plugins" / "filter").glob("*.py")):
    import_module(f"ansible_collections.landline.cluster.plugins.filter.{_path.stem}")

# What modules import is found by compiling them and all that they import, which each run did anew.
_scan = ansible_mitogen.module_finder.scan


def _stamp(path):
    """Changes when the file does."""
    found = Path(path).stat()
    return [path, found.st_mtime_ns, found.st_size]


def scan(module_name, module_path, search_path):
    """Mitogen's scan, from the last one's file if none of the files that it read has changed."""
    key = repr((module_name, module_path, search_path))
    kept = SCANNED / hashlib.sha256(key.encode()).hexdigest()
    try:
        stamps, found = json.loads(kept.read_text())
        if all(_stamp(each[0]) == each for each in stamps):
            return [tuple(each) for each in found]
    except (OSError, ValueError):
        pass
    found = _scan(module_name, module_path, search_path)
    stamps = [_stamp(os.fsdecode(path)) for path in [module_path, *(path for _, path, _ in found)]]
    SCANNED.mkdir(parents=True, exist_ok=True)
    beside = kept.with_name(f"{kept.name}.{os.getpid()}")
    beside.write_text(json.dumps([stamps, found]))
    beside.replace(kept)
    return found


ansible_mitogen.module_finder.scan = scan

# A run looks for results a thousand times a second, beside other runs on two cores.
ansible.constants.DEFAULT_INTERNAL_POLL_INTERVAL = 0.005

# Each collection in a worker looks at all that it was forked with, which is a third of a worker's time.
gc.disable()


class StrategyModule(StrategyMixin, _original.StrategyModule):
    """What it does and in which order is Ansible's."""
