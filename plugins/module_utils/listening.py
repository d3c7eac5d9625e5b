# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""Checks whether a process on this host may listen on a port or an address, and which process prevents it. For
the modules.
"""

from __future__ import annotations

import errno
import socket
from pathlib import Path

_LISTENS = "0A"  # state column of /proc/net/tcp
_ANY = "0.0.0.0"  # noqa: S104 (bound for a moment, never listened on)


def who_is_in_the_way(host: str, port: int, own_units: str, proc: Path = Path("/proc")) -> str | None:
    """Returns a description of the process that prevents listening there, or None.

    None also if the process is of a unit whose name begins with `own_units`; that of another one may end with it.
    Other errors of the address are not reported here.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the broker does
        try:
            probe.bind((host or _ANY, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                return None
        except (OverflowError, UnicodeError):
            return None
        else:
            return None
    found = _listeners(port, proc)
    if any(f"/{own_units}" in _text(each / "cgroup") for each in found):
        return None
    named = [f"{_text(each / 'comm').strip()}, process {each.name}" for each in found]
    return " and ".join(named) or "a process that is not to be seen from here"


def why_not_own(host: str) -> str | None:
    """Returns why no process on this host can listen on an address or name; None when one can."""
    if not host:
        return None
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((host.strip("[]"), 0))
    except (OSError, UnicodeError) as error:
        return (
            f"broker_http_host={host} is no address of this host ({error}): set it to one of its own that others "
            'reach, or to "" for all interfaces'
        )
    return None


def _listeners(port: int, proc: Path) -> list[Path]:
    """The directories, below /proc, of the processes that listen on a port, at any address."""
    sockets = {
        f"socket:[{inode}]" for table in ("tcp", "tcp6") for inode in _inodes(proc / "net" / table, port)
    }
    return [each for each in proc.glob("[0-9]*") if _holds(each, sockets)]


def _inodes(table: Path, port: int) -> list[str]:
    """The inodes of the listening sockets in /proc/net/tcp.

    Local address (hex, port after the colon) is the second column, the state the fourth, the inode the tenth.
    """
    rows = [line.split() for line in _text(table).splitlines()[1:]]
    return [row[9] for row in rows if row[3] == _LISTENS and int(row[1].rpartition(":")[2], 16) == port]


def _holds(process: Path, sockets: set[str]) -> bool:
    try:
        return any(str(each.readlink()) in sockets for each in (process / "fd").iterdir())
    except OSError:  # the process ended meanwhile
        return False


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
