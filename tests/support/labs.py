"""Labs for tests: real systemd hosts with a unique name for this run, destroyed at its end.

    @pytest.fixture(scope="module")
    def lab():
        with lab_session("groups", hosts=3) as lab:
            yield lab

`lab.run("h1", "systemctl is-active ssh")` runs on a host; `lab.enter_argv([...])` is the command line of a
program inside the lab's network; `with lab.inside():` moves this thread, and what it starts, into it; faults
are `lab.faults.power_loss("h2")` and the like. Without root or a needed package the test is skipped with the
reason. LANDLINE_KEEP_LABS=1 keeps the labs for inspection.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from lab import Bind, Lab, all_labs, naming, netns, preflight
from lab.cgroups import hosts_with_cgroups
from rig.wait import wait_until

KEEP_ENV = "LANDLINE_KEEP_LABS"

_NAME_OF_A_RUN = re.compile(r"t-.+-(\d+)")


def skip_without_hosts() -> None:
    """Skips the calling test, with the reason, on a machine that cannot run hosts."""
    reason = preflight.problem(sys.platform, os.geteuid(), _find)
    if reason:
        pytest.skip(f"no systemd hosts here: {reason}")


@contextlib.contextmanager
def lab_session(
    name: str,
    hosts: int = 3,
    *,
    binds: Sequence[Bind] = (),
    data_disk_mb: int = 0,
    suite: str | None = None,
) -> Iterator[Lab]:
    """A lab `t-<name>-<pid>` with this many hosts that answer ssh; destroyed at the end of the block."""
    skip_without_hosts()
    remove_labs_of_dead_runs()
    lab = Lab(f"t-{name}-{os.getpid()}")
    try:
        lab.up(
            hosts,
            binds=binds,
            data_disk_mb=data_disk_mb,
            suite=suite,
            report=lambda line: print(f"lab: {line}"),
        )
        yield lab
    finally:
        if not os.environ.get(KEEP_ENV):
            lab.down()


def remove_labs_of_dead_runs() -> None:
    """Destroys labs of test runs that were killed before they could."""
    if os.environ.get(KEEP_ENV):
        return
    for name in all_labs():
        match = _NAME_OF_A_RUN.fullmatch(name)
        if match and not Path("/proc", match[1]).exists():
            Lab(name).down()


def _find(program: str) -> str | None:
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:{preflight.SEARCH_PATH}")


def traces_of(name: str) -> dict[str, list[str]]:
    """Everything on the machine that belongs to a lab."""
    processes = []
    for cgroup in Path("/proc").glob("[0-9]*/cgroup"):
        with contextlib.suppress(OSError):
            if f"/landline-lab/{name}/" in cgroup.read_text():
                processes.append(cgroup.parent.name)
    loops = subprocess.run(["losetup", "--list", "--noheadings"], capture_output=True, text=True, check=True)
    machines = Path("/run/systemd/nspawn/propagate")
    own_machines = {host.machine for host in naming.hosts(name, 9)}
    return {
        "processes": processes,
        "in the network": sorted(netns.processes(name)) if netns.exists(name) else [],
        "mounts": [m for m in Path("/proc/self/mountinfo").read_text().splitlines() if f"/{name}" in m],
        "disks": [line for line in loops.stdout.splitlines() if f"/{name}/" in line],
        "cgroups": sorted(hosts_with_cgroups(name)),
        "namespaces": [n.name for n in Path("/run/netns").glob(f"*{name}*")],
        "files": [str(p) for p in (Lab(name).files.home,) if p.exists()],
        "machines": [m.name for m in machines.glob("*") if m.name in own_machines],
    }


def assert_no_trace(name: str) -> None:
    """Checks that nothing is left; PID 1 has a moment to reap ended processes."""
    with contextlib.suppress(TimeoutError):
        wait_until(lambda: not traces_of(name)["processes"], 10)
    assert traces_of(name) == {kind: [] for kind in traces_of(name)}
