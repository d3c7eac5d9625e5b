"""Ansible's strategy of this file's name by way of Mitogen: one interpreter for each host, which runs a module within
milliseconds, in place of a new one for each task. Ansible finds it by ``ANSIBLE_STRATEGY_PLUGINS``.
"""

import gc
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import ansible.plugins.strategy
from ansible.plugins.loader import filter_loader, test_loader
from ansible_mitogen.strategy import StrategyMixin

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

# Each collection in a worker looks at all that it was forked with, which is a third of a worker's time.
gc.disable()


class StrategyModule(StrategyMixin, _original.StrategyModule):
    """What it does and in which order is Ansible's."""
