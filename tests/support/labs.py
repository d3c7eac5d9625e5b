"""Labs for tests: real systemd hosts with a name of this run's own, destroyed at its end.

    @pytest.fixture(scope="module")
    def lab():
        with lab_session("groups", hosts=3) as lab:
            yield lab

`lab.run("h1", "systemctl is-active ssh")` runs on a host; `lab.enter_argv([...])` is the command line of a
program inside the lab's network; `with lab.inside():` puts this thread, and what it starts, there; faults are
`lab.faults.power_loss("h2")` and the like. Without root or a package the test is skipped and says why.
LANDLINE_KEEP_LABS=1 keeps the labs for a look afterwards.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from lab import Bind, Lab, all_labs, preflight

KEEP_ENV = "LANDLINE_KEEP_LABS"

_NAME_OF_A_RUN = re.compile(r"t-.+-(\d+)")


def skip_without_hosts() -> None:
    """Skip the test that asks, with the reason, on a machine that cannot have hosts."""
    reason = preflight.problem(sys.platform, os.geteuid(), _find)
    if reason:
        pytest.skip(f"no systemd hosts here: {reason}")


@contextlib.contextmanager
def lab_session(
    name: str, hosts: int = 3, *, binds: Sequence[Bind] = (), data_disk_mb: int = 0
) -> Iterator[Lab]:
    """A lab `t-<name>-<pid>` with this many hosts that answer ssh; gone when the block ends."""
    skip_without_hosts()
    remove_labs_of_dead_runs()
    lab = Lab(f"t-{name}-{os.getpid()}")
    try:
        lab.up(hosts, binds=binds, data_disk_mb=data_disk_mb, report=lambda line: print(f"lab: {line}"))
        yield lab
    finally:
        if not os.environ.get(KEEP_ENV):
            lab.down()


def remove_labs_of_dead_runs() -> None:
    """Destroy labs of test runs that were killed before they could."""
    if os.environ.get(KEEP_ENV):
        return
    for name in all_labs():
        match = _NAME_OF_A_RUN.fullmatch(name)
        if match and not Path("/proc", match[1]).exists():
            Lab(name).down()


def _find(program: str) -> str | None:
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:{preflight.SEARCH_PATH}")
