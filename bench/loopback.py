"""The benchmark's own loopback: a network namespace in which TCP uses the congestion control that is asked for.

BBR, which some machines use for all TCP, paces senders by its estimate of the bandwidth, and on loopback a
reader's pauses look like a slow line: rates fell to a third, and not equally for all. Nothing is lost on
loopback, so Reno, which every kernel has, slows no sender down: it is the default.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

CONGESTION_CONTROL = Path("/proc/sys/net/ipv4/tcp_congestion_control")
AVAILABLE = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
DEFAULT = "reno"
_INSIDE = "LANDLINE_BENCH_NETWORK"


def enter(module: str, arguments: Sequence[str], wanted: str = DEFAULT) -> None:
    """Restarts ``python -m module`` in its own namespace, once, and sets that up. SystemExit if the kernel has no such
    congestion control.

    Without root or ``unshare`` it only returns: the report says which congestion control was used.
    """
    if wanted not in (available := AVAILABLE.read_text().split()):
        raise SystemExit(f"TCP here has no {wanted}; it has {', '.join(available)}")
    if _INSIDE in os.environ:
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        CONGESTION_CONTROL.write_text(wanted)
    elif os.geteuid() == 0 and (unshare := shutil.which("unshare")) is not None:
        command = [unshare, "--net", sys.executable, "-m", module, *arguments]
        sys.stdout.flush()
        os.execve(unshare, command, {**os.environ, _INSIDE: "1"})


def congestion_control() -> str:
    """TCP's congestion control here."""
    return CONGESTION_CONTROL.read_text().strip()
