"""A loopback of the benchmark's own: a network namespace in which TCP has its oldest congestion control.

BBR, which some machines have for all of TCP, paces senders by what it takes for the line's bandwidth, and on loopback
takes a reader's pauses for a slow line: rates fell to a third, and not alike for all. Nothing is lost on loopback, so
Reno, which every kernel has, holds no sender back.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

CONGESTION_CONTROL = Path("/proc/sys/net/ipv4/tcp_congestion_control")
WANTED = "reno"
_INSIDE = "LANDLINE_BENCH_NETWORK"


def enter(module: str, arguments: Sequence[str]) -> None:
    """Starts ``python -m module`` anew in a namespace of its own, once, and sets that up.

    Does nothing but return without root or ``unshare``: the report tells which congestion control there was.
    """
    if _INSIDE in os.environ:
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        CONGESTION_CONTROL.write_text(WANTED)
    elif os.geteuid() == 0 and (unshare := shutil.which("unshare")) is not None:
        command = [unshare, "--net", sys.executable, "-m", module, *arguments]
        sys.stdout.flush()
        os.execve(unshare, command, {**os.environ, _INSIDE: "1"})


def congestion_control() -> str:
    """Which one TCP has here."""
    return CONGESTION_CONTROL.read_text().strip()
