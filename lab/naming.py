"""Every name and address that a lab uses, derived from the lab's name alone.

All labs have the same addresses, each in its own network namespace. Names that are global to the machine
(namespace, cgroup, machine name) or limited in length (interfaces: 15 characters) contain the lab's name or a
tag derived from it. Pure: reads no file and runs nothing.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from lab.errors import UsageError

DEFAULT_LAB = "default"
SUBNET = "10.89.0"
PREFIX_LENGTH = 24
CONTROLLER = "controller"
CONTROLLER_ADDRESS = f"{SUBNET}.1"
BRIDGE = "br0"
MAX_HOSTS = 64

_FIRST_HOST_OCTET = 11
_VALID_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")
_LONGEST_PLAIN_TAG = 8
"""`vb-` + 8 + `-h64` is 15 characters, the longest name that Linux allows for an interface."""


@dataclass(frozen=True, slots=True)
class Host:
    """One host of a lab: h1 is index 1 at 10.89.0.11."""

    name: str
    index: int
    address: str
    machine: str
    interface: str
    """The host's end of the cable on the bridge, in the lab's namespace."""


def checked_lab_name(name: str) -> str:
    """Return `name` or raise `UsageError`: 1 to 32 of a-z, 0-9 and inner hyphens."""
    if not _VALID_NAME.fullmatch(name):
        raise UsageError(f"bad lab name {name!r}: use 1 to 32 of a-z, 0-9 and inner hyphens")
    return name


def tag(lab: str) -> str:
    """At most eight characters that stand for the lab in names of limited length."""
    if len(lab) <= _LONGEST_PLAIN_TAG:
        return lab
    return lab[:3] + hashlib.sha256(lab.encode()).hexdigest()[: _LONGEST_PLAIN_TAG - 3]


def namespace(lab: str) -> str:
    """Name of the lab's network namespace."""
    return f"ll-{lab}"


def host(lab: str, index: int) -> Host:
    """The `index`-th host (from 1) of a lab."""
    machine = f"{tag(lab)}-h{index}"
    return Host(f"h{index}", index, f"{SUBNET}.{_FIRST_HOST_OCTET + index - 1}", machine, f"vb-{machine}")


def hosts(lab: str, count: int) -> tuple[Host, ...]:
    """Hosts h1 to h`count`; raises `UsageError` unless the count is 1 to `MAX_HOSTS`."""
    if not 1 <= count <= MAX_HOSTS:
        raise UsageError(f"{count} hosts: a lab has 1 to {MAX_HOSTS}")
    return tuple(host(lab, index) for index in range(1, count + 1))
