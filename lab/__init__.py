"""The lab: real systemd hosts on one Linux machine, to try, test and break a cluster on.

Hosts are systemd-nspawn containers, each with its own network namespace and cgroups. `Lab` is the API; the
command is `.venv/bin/lab`, or `python -m lab`. The lab knows nothing about the software on its hosts.
"""

from __future__ import annotations

from lab.errors import CommandFailedError, LabError, UsageError
from lab.faults import Faults
from lab.lab import HostState, HostStatus, Lab, all_labs
from lab.links import Direction
from lab.naming import CONTROLLER_ADDRESS, Host
from lab.state import Bind

__all__ = [
    "CONTROLLER_ADDRESS",
    "Bind",
    "CommandFailedError",
    "Direction",
    "Faults",
    "Host",
    "HostState",
    "HostStatus",
    "Lab",
    "LabError",
    "UsageError",
    "all_labs",
]
