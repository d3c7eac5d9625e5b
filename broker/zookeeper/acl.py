"""A node's access control list, as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

PERMISSIONS: Final = "rwcda"
"""One letter for each of ZooKeeper's permission bits, the lowest first: read, write, create,
delete, admin.
"""


@dataclass(frozen=True, slots=True)
class Acl:
    """An entry of a node's ACL. ``permissions`` has letters of :data:`PERMISSIONS`."""

    scheme: str
    identity: str
    permissions: str
