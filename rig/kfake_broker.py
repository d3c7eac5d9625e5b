"""franz-go's kfake with its records on disk, as a process on loopback: a peer of the benchmark that is no Kafka.

It is a Go module; the program that serves it is in ``bench/peers/kfake``, and is built once for all runs.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from rig.brokers import BrokerProcess, unused_port
from rig.processes import ManagedProcess

REPOSITORY = Path(__file__).resolve().parents[1]
SOURCE = REPOSITORY / "bench" / "peers" / "kfake"
PROGRAM = REPOSITORY / "build" / "peers" / "kfake"
BUILD_TIMEOUT_S = 900


class KfakeUnavailableError(RuntimeError):
    """There is no Go, or kfake could not be built. The message says what to do."""


def build() -> Path:
    """Builds the program, unless it is as new as its source; returns its path."""
    sources = [SOURCE / name for name in ("main.go", "go.mod", "go.sum")]
    if PROGRAM.exists() and all(each.stat().st_mtime <= PROGRAM.stat().st_mtime for each in sources):
        return PROGRAM
    go = shutil.which("go")
    if go is None:
        raise KfakeUnavailableError(
            "kfake needs the Go compiler, 1.26 or newer: install it, or leave kfake out"
        )
    PROGRAM.parent.mkdir(parents=True, exist_ok=True)
    command = [go, "build", "-o", str(PROGRAM), "."]
    done = subprocess.run(
        command, check=False, cwd=SOURCE, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S
    )
    if done.returncode:
        raise KfakeUnavailableError(f"{' '.join(command)} in {SOURCE}: {done.stderr.strip()}")
    return PROGRAM


class KfakeBroker(BrokerProcess):
    """One kfake broker. ``log_dir`` has a directory of segments per partition, as Kafka's; it creates its parent's
    other files itself.
    """

    segments = "*.dat"

    def __init__(self, directory: Path) -> None:
        self.broker_id = 0
        self.port = unused_port()
        self.log_dir = directory / "partitions"
        self.process = ManagedProcess(
            "kfake",
            lambda: (str(build()), str(self.port), str(directory)),
            directory.with_name(directory.name + ".log"),
        )

    def _prepare(self) -> None:
        """It has no configuration file."""
