"""Runs a PySpark job on the cluster with the driver on this machine: spark-submit's arguments
and environment.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sparkctl.errors import Error, UsageError
from sparkctl.inventory import bracketed
from sparkctl.ssh import words_of

# How long a driver that was interrupted may take to end its job: it stops its executors and finishes its event log.
END_S = 30.0
# Driver and executors may run as different users, who share files through their group.
UMASK = 0o002


@dataclass(frozen=True, slots=True)
class Submission:
    """A job's file, the job's own arguments, and Spark settings that override those of ``defaults``."""

    job: Path
    arguments: tuple[str, ...] = ()
    settings: Mapping[str, str] | None = None
    # A file like spark-defaults.conf. A secret belongs there: everybody sees the arguments of a process.
    defaults: Path | None = None
    # Environment variables of the driver: the defaults for options that the job is not given.
    variables: Mapping[str, str] | None = None


def find_job(text: str, root: Path) -> Path:
    """The file of a job: a path, or the bare name of a module in ``pipeline/``. Raises ``UsageError``."""
    for path in (Path(text), root / text, root / "pipeline" / f"{text}.py"):
        if path.is_file() and path.suffix == ".py":
            return path.resolve()
    raise UsageError(f"no job {text}: give the path of a .py file, or a job's name such as journal_stream")


def parse_settings(text: str) -> dict[str, str]:
    """Spark settings from ``key=value key=value``. Raises ``UsageError``."""
    settings = {}
    for word in words_of(text, "--conf"):
        key, separator, value = word.partition("=")
        if not separator or not key.startswith("spark."):
            raise UsageError(f"{word!r} is not a Spark setting: give spark.some.key=value")
        settings[key] = value
    return settings


def address_towards(host: str, port: int) -> str:
    """This machine's address on the route to ``host``, where executors on that side reach a driver here.

    Raises ``Error``.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
        # Of a name's addresses IPv4's, as the JVMs prefer it.
        family, _, _, _, place = min(found, key=lambda each: each[0] != socket.AF_INET)
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            # Connecting a datagram socket sends nothing: it only queries the routing table.
            probe.connect(place)
            return str(probe.getsockname()[0])
    except OSError as error:
        raise Error(f"no address of this machine is on a route to {host}: {error}") from error


def command_line(submission: Submission, master_url: str, driver_host: str) -> list[str]:
    """The spark-submit command in client mode, with the pyspark of this Python."""
    settings = {
        "spark.driver.host": bracketed(driver_host),
        "spark.driver.bindAddress": bracketed(driver_host),
        **(submission.settings or {}),
    }
    confs = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    # Of the operator's own, in SPARK_CONF_DIR, comes what the cluster's file does not have.
    files = [] if submission.defaults is None else ["--properties-file", str(submission.defaults)]
    files += ["--load-spark-defaults"] if files else []
    return [
        "spark-submit",
        "--master",
        master_url,
        *files,
        *confs,
        str(submission.job),
        *submission.arguments,
    ]


def environment(root: Path, variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """The driver's environment: ``variables``, overridden by this process's environment.

    The project is on the driver's path, and the driver runs this Python.
    """
    path = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH", "")]))
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    # PYSPARK_PYTHON is not set: it applies to the executors, and their hosts have a Python of their own.
    known = {**(variables or {}), **os.environ}
    return {**known, "PYTHONPATH": path, "PATH": programs, "PYSPARK_DRIVER_PYTHON": sys.executable}


def submit(command: Sequence[str], root: Path, variables: Mapping[str, str] | None = None) -> int:
    """Runs the command in the foreground until it ends, and returns its exit code.

    ^C reaches the command as well, by the terminal, and it has ``END_S`` to end. A second one ends it at once.
    """
    process = subprocess.Popen(list(command), env=environment(root, variables), umask=UMASK)
    try:
        return process.wait()
    except KeyboardInterrupt:
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_S)
        raise
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
