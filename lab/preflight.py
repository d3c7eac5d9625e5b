"""Checks whether this machine can run a lab. The error is one line that says what to do. Changes nothing."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable

from lab.errors import UsageError

PACKAGE_OF = {
    "systemd-nspawn": "systemd-container",
    "mmdebstrap": "mmdebstrap",
    "nft": "nftables",
    "ip": "iproute2",
    "tc": "iproute2",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "mkfs.ext4": "e2fsprogs",
    "e2fsck": "e2fsprogs",
    "nsenter": "util-linux",
    "setsid": "util-linux",
    "mount": "mount",
    "losetup": "mount",
    "journalctl": "systemd",
}
"""The programs that the lab runs, and the Debian package of each."""

SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def problem(platform: str, user_id: int, find: Callable[[str], str | None]) -> str | None:
    """The reason why a lab cannot run here, as one line, or None."""
    if platform != "linux":
        return f"hosts are Linux containers and this is {platform}: run it on Debian 12 or in a VM of it"
    missing = [program for program in PACKAGE_OF if find(program) is None]
    if missing:
        packages = " ".join(dict.fromkeys(PACKAGE_OF[program] for program in missing))
        return f"missing {', '.join(missing)}: run `apt-get install {packages}` as root"
    if user_id != 0:
        return "hosts, namespaces and mounts need root: run it again with sudo or as root"
    return None


def check() -> None:
    """Raise `UsageError` when a lab cannot run on this machine."""
    found = problem(sys.platform, os.geteuid(), _find)
    if found:
        raise UsageError(found)


def _find(program: str) -> str | None:
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:{SEARCH_PATH}")
