# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""What systemd has to know of the disks that services are on. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.landline.cluster.plugins.module_utils.mounts import mount_unit


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
