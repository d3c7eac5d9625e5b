"""Run one host: start its nspawn under its own supervisor, stop it, and wait until ssh answers.

The supervisor is a few lines of shell in its own session, so hosts outlive the command that started them. It
enters the host's cgroups, and restarts nspawn when a host reboots itself (exit code 133).
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from lab import naming, netns
from lab.cgroups import HostCgroup
from lab.errors import LabError
from lab.naming import Host
from lab.preflight import SEARCH_PATH
from lab.shell import run
from lab.state import Bind
from lab.waiting import wait_until

REBOOT_EXIT_CODE = 133

_SUPERVISOR = f"""
namespace=$1; shift
while [ "$1" != -- ]; do echo $$ > "$1/cgroup.procs" || exit 71; shift; done
shift
while :; do
    nsenter --net="$namespace" -- systemd-nspawn "$@"
    code=$?
    [ $code -eq {REBOOT_EXIT_CODE} ] || exit $code
done
"""

_NSPAWN_PROPAGATE = Path("/run/systemd/nspawn/propagate")

_SIGRTMIN_POWEROFF = 4
_SIGRTMIN_REBOOT = 5


def nspawn_argv(
    host: Host, root: Path, binds: Sequence[Bind], data: Path | None, data_target: str
) -> list[str]:
    """systemd-nspawn's arguments for the host (without the program name)."""
    argv = ["--quiet", "--boot", "--register=no", "--keep-unit", "--console=passive"]
    argv += [f"--machine={host.machine}", f"--hostname={host.name}", f"--directory={root}"]
    argv += [f"--network-bridge={naming.BRIDGE}", "--resolv-conf=off", "--timezone=off", "--link-journal=no"]
    argv += [f"--{'bind' if bind.writable else 'bind-ro'}={bind.source}:{bind.target}" for bind in binds]
    if data is not None:
        argv.append(f"--bind={data}:{data_target}")
    return argv


def start(lab: str, cgroup: HostCgroup, arguments: Sequence[str], console: Path) -> None:
    """Start the host's supervisor, which outlives this process; output goes to the file `console`."""
    directories = [str(directory) for directory in cgroup.make()]
    argv = ["sh", "-c", _SUPERVISOR, "landline-lab", str(netns.handle(lab)), *directories, "--", *arguments]
    environment = {"PATH": SEARCH_PATH, "LC_ALL": "C.UTF-8", "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"}
    with console.open("ab") as output:
        subprocess.run(
            ["setsid", "--fork", *argv],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
            cwd="/",
            close_fds=True,
            check=True,
        )


def wait_for_leader(host: Host, cgroup: HostCgroup, console: Path, timeout_s: float) -> None:
    """Return when the host's PID 1 runs. Raises `LabError` with the console's last lines when it does not."""
    if wait_until(lambda: cgroup.leader() is not None, timeout_s):
        return
    raise LabError(f"{host.name} did not start within {timeout_s:g} s: {_tail(console)}")


def wait_for_ssh(host: Host, login_argv: Sequence[str], console: Path, timeout_s: float) -> None:
    """Return when `login_argv`, an ssh to the host, succeeds; `LabError` after `timeout_s`.

    It logs in completely instead of probing the port, because sshd logs every incomplete connection as
    an error.
    """
    if not wait_until(lambda: run(login_argv, check=False).returncode == 0, timeout_s, 0.05):
        raise LabError(
            f"{host.name} does not answer ssh after {timeout_s:g} s; its console: {_tail(console)}"
        )


def ask_to_reboot(cgroup: HostCgroup) -> int:
    """Ask PID 1 for an orderly reboot; returns its current process id."""
    return _signal_leader(cgroup, _SIGRTMIN_REBOOT)


def ask_to_power_off(cgroup: HostCgroup) -> int:
    """Ask PID 1 for an orderly power-off; returns its process id."""
    return _signal_leader(cgroup, _SIGRTMIN_POWEROFF)


def forget(host: Host) -> None:
    """Remove what nspawn leaves in /run when nspawn itself is killed."""
    with contextlib.suppress(OSError):
        (_NSPAWN_PROPAGATE / host.machine).rmdir()


def _signal_leader(cgroup: HostCgroup, offset: int) -> int:
    leader = cgroup.leader()
    if leader is None:
        raise LabError("the host is off: boot it first")
    os.kill(leader, signal.SIGRTMIN + offset)
    return leader


def _tail(console: Path) -> str:
    text = ""
    with contextlib.suppress(OSError):
        text = console.read_text(errors="replace")[-2000:]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " / ".join(lines[-3:]) or "(nothing on its console)"
