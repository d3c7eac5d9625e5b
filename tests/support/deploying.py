"""Runs `make` as a user does, and parses what Ansible reports."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.support.lab_cluster import LAB_ENV

ROOT = Path(__file__).parents[2]
RECAP = re.compile(r"^(\S+) +: ok=\d+ +changed=(\d+) +unreachable=(\d+) +failed=(\d+)", re.MULTILINE)
# Who pressed ^C, and sees nothing end, presses it again after so many seconds.
AGAIN_S = 10
# Makes a run of Ansible two and a half times cheaper. The tests' first deploys, those of documents, those of hosts as
# operators have them, and those that lose hosts or their connections run without it.
QUICK = {
    "ANSIBLE_STRATEGY_PLUGINS": str(ROOT / "tests" / "support" / "quick_ansible"),
    "ANSIBLE_DEPRECATION_WARNINGS": "false",  # no alternative is planned, it says
    # A connection begins an interpreter on its host, beside other labs on two cores.
    "ANSIBLE_TIMEOUT": "90",
}


def make(
    *arguments: str, check: bool = True, quick: bool = True, answer: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs make as a user does; shows its output when it fails. Quick: with `QUICK`. A question gets the answer."""
    environment = {k: v for k, v in os.environ.items() if k not in {LAB_ENV, "BROKERS_PER_HOST", "MAKEFLAGS"}}
    if quick:
        environment |= QUICK
    done = subprocess.run(
        ["make", *arguments],
        cwd=ROOT,
        env=environment,
        input=answer,
        # Without a terminal a password is read from stdin.
        start_new_session=answer is not None,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    print(done.stdout)
    if check:
        assert done.returncode == 0, done.stdout[-4000:]
    return done


def changed(output: str) -> dict[str, int]:
    """The number of changed tasks by host, from Ansible's recap."""
    found = {host: int(count) for host, count, _, _ in RECAP.findall(output)}
    assert found, output[-2000:]
    return found


def interrupted(
    argv: Sequence[str], after: str, nth: int = 1, instead: Callable[[], None] | None = None
) -> tuple[int, str]:
    """Runs a playbook, presses ^C at the nth line of its output that matches, or does something `instead`; returns how
    it ended, what it said. There is such a line, or it ends before the nth.

    Interrupted at a bad moment, Ansible's main process waits for its own thread without end: ^C is pressed once more.
    """
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    said, matched, done = [], 0, False
    # A group of its own, as a terminal gives it: ^C reaches the workers and their connections too.
    with subprocess.Popen(
        argv,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        process_group=0,
    ) as playing:
        assert playing.stdout is not None
        again = threading.Timer(AGAIN_S, os.killpg, (playing.pid, signal.SIGINT))
        for line in playing.stdout:
            said.append(line)
            matched += 1 if re.search(after, line) else 0
            if matched == nth and not done:
                done = True
                if instead is not None:
                    instead()
                else:
                    os.killpg(playing.pid, signal.SIGINT)
                    again.start()
        again.cancel()
    output = "".join(said)
    print(output)
    assert matched, output[-4000:]
    return playing.returncode, output
