"""What systemd has to know of the disks that services are on. Pure."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# What modules use too. Ansible brings it to the hosts; a filter runs here, where it is found by its directory.
sys.path.append(str(Path(__file__).parents[1] / "module_utils"))

from mounts import mount_unit


def disk_links(mounts: Mapping[str, Sequence[str]], unit_dir: str) -> list[dict[str, str]]:
    """Returns the links, each with `directory`, `path` and `src`, by which systemd starts a service when a disk that
    it needs is mounted. `mounts` has the mount points by the services' units.
    """
    return [
        {"directory": wants, "path": f"{wants}/{unit}", "src": f"{unit_dir}/{unit}"}
        for unit, points in mounts.items()
        for wants in (f"{unit_dir}/{mount_unit(point)}.wants" for point in points)
    ]


class FilterModule:
    """The class that Ansible loads."""

    def filters(self) -> dict[str, Any]:
        return {"disk_links": disk_links}
