"""A Spark home whose launch can be observed.

It has the real ``spark-daemon.sh``, and an ssh and a ``spark-class`` that record what they get. All hosts are
this machine, each with its own directory of pid and log files.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark

HOSTS = ("10.0.0.1", "10.0.0.2", "10.0.0.3")
MASTER = HOSTS[0]

_SSH = """#!/bin/bash
while [ "$1" = -o ]; do shift 2; done
host=${1#*@}; shift
printf '%s\\t%s\\n' "$host" "$*" >>"$RIG/ssh"
unset $(compgen -e SPARK_) PYTHONPATH PYSPARK_PYTHONPATH_SET
export RIG_HOST=$host SPARK_CONF_DIR=$RIG/conf
exec bash -c "$*"
"""
# Named java, because spark-daemon.sh checks whether a process of that name runs.
_SPARK_CLASS = """#!/bin/bash
. "$SPARK_HOME/bin/load-spark-env.sh"
{ printf '%s\\n' "$RIG_HOST" "$*"; env | grep -E '^(SPARK_|PYTHONPATH=)' | sort; } >"$RIG/half.$RIG_HOST.$1"
mv "$RIG/half.$RIG_HOST.$1" "$RIG/daemon.$RIG_HOST.$1"
exec "$RIG/bin/java" 30
"""
_SPARK_ENV = """SPARK_LOG_DIR=$RIG/hosts/$RIG_HOST/log
SPARK_PID_DIR=$RIG/hosts/$RIG_HOST/run
SPARK_IDENT_STRING=spark
SPARK_MASTER_HOST=10.0.0.1
SPARK_DAEMON_MEMORY=256m
"""


class SparkRig:
    """A rig that runs scripts and then shows what was recorded; ``close`` ends the processes that
    still run.
    """

    def __init__(self, directory: Path, sbin: Path | None = None) -> None:
        """``sbin``: a directory with Spark's scripts; by default those of pyspark."""
        self.root = directory
        self.home = directory / "spark"
        self.conf = directory / "conf"
        package = Path(pyspark.__file__).parent
        for place in ("spark/bin", "spark/jars", "conf", "bin"):
            (directory / place).mkdir(parents=True)
        shutil.copytree(package / "sbin", self.home / "sbin")
        if sbin is not None:
            shutil.copytree(sbin, self.home / "sbin", dirs_exist_ok=True)
        shutil.copy(package / "bin/load-spark-env.sh", self.home / "bin")
        (self.conf / "spark-env.sh").write_text(_SPARK_ENV)
        (self.conf / "workers").write_text("\n".join(HOSTS) + "\n")
        # spark-daemon.sh's pause would only take time.
        shutil.copy("/bin/sleep", directory / "bin/java")
        for path, text in {
            "bin/ssh": _SSH,
            "bin/sleep": "#!/bin/sh\n",
            "spark/bin/spark-class": _SPARK_CLASS,
        }.items():
            (directory / path).write_text(text)
            (directory / path).chmod(0o755)

    def run(self, command: Sequence[str], **more: str) -> str:
        """Runs a command on the master, as a person does; returns its output."""
        environment = self._environment(**more)
        done = subprocess.run(
            command, env=environment, text=True, capture_output=True, check=False, timeout=60
        )
        return done.stdout + done.stderr

    @contextmanager
    def foreground(self, command: Sequence[str], **more: str) -> Iterator[None]:
        """Runs a daemon in the foreground meanwhile, as under systemd."""
        process = subprocess.Popen(command, env=self._environment(**more))
        try:
            yield
        finally:
            process.kill()
            process.wait()

    def recorded(self) -> dict[str, Any]:
        """Which hosts ssh reached, how each daemon was started, and which files are left."""
        ssh = [line.split("\t", 1) for line in self._text("ssh").splitlines()]
        return {
            "ssh": [{"host": host, "command": command} for host, command in ssh],
            "daemons": [self._daemon(path.read_text()) for path in sorted(self.root.glob("daemon.*"))],
            "files": sorted(
                self._named(str(path.relative_to(self.root)))
                for path in (self.root / "hosts").rglob("*")
                if path.is_file()
            ),
        }

    def close(self) -> None:
        for file in self.root.glob("hosts/*/run/*.pid"):
            os.kill(int(file.read_text()), signal.SIGKILL)

    def _environment(self, **more: str) -> dict[str, str]:
        own = {"RIG": str(self.root), "RIG_HOST": MASTER, "HOME": str(self.root)}
        return {"PATH": f"{self.root}/bin:/usr/bin:/bin", **own, **more}

    def _daemon(self, text: str) -> dict[str, Any]:
        host, command, *environment = self._named(text).strip().splitlines()
        return {"host": host, "command": command, "environment": environment}

    def _named(self, text: str) -> str:
        """The text without names that are specific to this run."""
        return text.replace(str(self.root), "{rig}").replace(socket.gethostname(), "{hostname}")

    def _text(self, name: str) -> str:
        path = self.root / name
        return path.read_text().replace(str(self.root), "{rig}") if path.exists() else ""


def record(directory: Path, sbin: Path, target: Path) -> None:
    """Records what Spark's own ``start-all.sh`` does, all at once and one after another."""
    found = {}
    for name, foreground in (("parallel", ""), ("sequential", "yes")):
        rig = SparkRig(directory / name, sbin)
        try:
            rig.run(
                ["bash", str(rig.home / "sbin/start-all.sh")],
                SPARK_CONF_DIR=str(rig.conf),
                SPARK_SSH_FOREGROUND=foreground,
            )
            found[name] = rig.recorded()
        finally:
            rig.close()
    target.write_text(json.dumps(found, indent=2) + "\n")
