# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""What systemd has to know of the disks that services are on. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.landline.cluster.plugins.module_utils.mounts import mount_unit

BOOT = "multi-user.target"


def disk_links(mounts: Mapping[str, Sequence[str]], unit_dir: str) -> list[dict[str, str]]:
    """Returns the links, each with `directory`, `path` and `src`, by which systemd starts a service at boot, and when a
    disk that it needs is mounted later. `mounts` has the mount points by the services' units. Units on no disk get
    none: they are enabled as all others.
    """
    # A disk that is mounted before systemd runs starts nothing. And where the disk's link makes the unit count as
    # enabled, nobody makes the one for the boot.
    return [
        {"directory": wants, "path": f"{wants}/{unit}", "src": f"{unit_dir}/{unit}"}
        for unit, points in mounts.items()
        if points
        for wants in (f"{unit_dir}/{by}.wants" for by in (BOOT, *map(mount_unit, points)))
    ]


class FilterModule:
    """The class that Ansible loads."""

    def filters(self) -> dict[str, Any]:
        return {"disk_links": disk_links}
