"""A launcher over daemons that are only remembered: what reaches the hosts, and a clock that only sleep moves."""

from __future__ import annotations

import shlex
from typing import Any

from fabric import Config, Connection
from fabric.runners import Result

from sparkctl.commands import Role
from sparkctl.inventory import Host, SparkCluster
from sparkctl.launcher import Launcher
from sparkctl.master import MasterView, WorkerView

NAMES = ("h1", "h2", "h3")


def host(number: int) -> Host:
    return Host(f"h{number}", f"10.0.0.{number}", f"10.0.0.{number}")


CLUSTER = SparkCluster(host(1), tuple(host(number) for number in (1, 2, 3)))


class FakeCluster:
    """Daemons on three hosts, as ``spark-daemon.sh`` keeps them; ``unreachable`` ones refuse ssh."""

    def __init__(self) -> None:
        self.running: set[tuple[Role, str]] = set()
        self.unreachable: set[str] = set()
        self.broken: set[str] = set()
        self.actions: list[tuple[str, str, str]] = []
        # How often a worker is still found with executors.
        self.busy_polls = 0

    def do(self, name: str, command: str) -> tuple[int, str]:
        """One daemon command on one host: exit code and output."""
        if name in self.unreachable:
            return 255, f"ssh: connect to host {name}: No route to host"
        role = next(role for role in Role if role.value in command)
        if "pgrep --parent" in command:
            self.busy_polls -= 1
            return (3 if self.busy_polls >= 0 else 0), ""
        if "tail --lines" in command:
            return 0, "first line\nsecond: line"
        actions = ("start", "stop", "status", "decommission")
        action = next(word for word in actions if f"/etc/spark {word} " in command)
        self.actions.append((action, role.name, name))
        if action == "start" and name not in self.broken:
            self.running.add((role, name))
        if action == "stop":
            self.running.discard((role, name))
        if action in {"stop", "decommission"}:
            return 0, f"{action} {role.value}"
        runs = (role, name) in self.running
        return (0 if runs else 2), f"{role.value} {'is' if runs else 'not'} running."

    def view(self) -> MasterView | None:
        if (Role.MASTER, "h1") not in self.running:
            return None
        alive = [name for role, name in sorted(self.running, key=str) if role is Role.WORKER]
        workers = tuple(
            WorkerView(f"10.0.0.{name[1]}", "ALIVE", 2, 0, 1024, 0, 8081 + ("#" in name)) for name in alive
        )
        return MasterView(CLUSTER.url, "ALIVE", workers, 0)


class FakeConnection(Connection):
    """Fabric's Connection to the master's host, without the ssh."""

    def __init__(self, cluster: FakeCluster) -> None:
        super().__init__("10.0.0.1", user="root", config=Config())
        self._set(cluster=cluster)  # as itself: what is simply assigned, Fabric keeps a copy of
        self.commands: list[str] = []
        self.limits: list[float] = []

    def run(self, command: str, **options: Any) -> Result:
        assert options["warn"]
        assert options["in_stream"] is False
        self.commands.append(command)
        self.limits.append(options["timeout"])
        *prefix, script = shlex.split(command)
        assert prefix == ["runuser", "-u", "spark", "--", "bash", "-c"]
        if "push()" not in script:
            code, output = self.cluster.do("h1", script)
            return Result(stdout=output + "\n", exited=code, connection=self)
        return Result(stdout=self._push(script), exited=0, connection=self)

    def _push(self, script: str) -> str:
        """What the master's loop prints: the workers' lines, then every exit code."""
        told, codes = "", ""
        for line in script.splitlines():
            if line.startswith("push "):
                _, name, _address, command, *_ = shlex.split(line)
                code, output = self.cluster.do(name, command)
                told += "".join(f"{name}: {text}\n" for text in output.splitlines())
                codes += f"@exit {name} {code}\n"
        return told + codes


class Operator:
    """A launcher over a fake cluster, its connection, what it says, and a clock that only sleep moves."""

    def __init__(self, known: SparkCluster | None = None) -> None:
        self.cluster = FakeCluster()
        self.connection = FakeConnection(self.cluster)
        self.said: list[str] = []
        self.now = 0.0
        self.launcher = Launcher(
            known or CLUSTER,
            self.connection,
            self.cluster.view,
            self.said.append,
            clock=lambda: self.now,
            sleep=self._sleep,
        )

    def _sleep(self, seconds: float) -> None:
        self.now += seconds

    def started(self) -> list[tuple[str, str]]:
        return [(role, name) for action, role, name in self.cluster.actions if action == "start"]
