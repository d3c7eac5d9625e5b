"""The actions on a Spark cluster. Each one checks the state, acts, and verifies the result.

The controller connects to one master only, which reaches all other hosts over its own ssh. The exit code about
every daemon is collected, and an error names each one that failed and why.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sparkctl import commands
from sparkctl.commands import HOST_TIMEOUT_S, STATUS_RUNNING, Daemon, HostResult, Role
from sparkctl.connection import COMMAND_TIMEOUT_S, Connected, run_as_spark
from sparkctl.errors import Error, NothingToDo, UsageError
from sparkctl.inventory import SparkCluster
from sparkctl.master import MasterView

READY_TIMEOUT_S = 90.0
# A master that takes over first waits for the session of the one that died (60 s) and then for its workers (60 s).
RECOVERY_TIMEOUT_S = 180.0
POLL_S = 0.25
TOLD_LINES = 12


@dataclass(frozen=True, slots=True)
class ClusterState:
    """The daemons' states, as reported by their hosts, and the leader's view (None: no master answers)."""

    master_runs: bool
    daemons: Mapping[Daemon, HostResult]
    view: MasterView | None

    @property
    def running(self) -> set[Daemon]:
        """The running daemons except the master that the launcher connects to."""
        return {daemon for daemon, result in self.daemons.items() if result.exit_code == STATUS_RUNNING}

    @property
    def unreachable(self) -> list[HostResult]:
        return [result for result in self.daemons.values() if result.exit_code not in {0, 1, 2}]


class Launcher:
    """The launcher of one cluster: start, stop and inspect it. ``say`` receives each line for
    the operator.
    """

    def __init__(
        self,
        cluster: SparkCluster,
        connection: Connected,
        fetch_view: Callable[[], MasterView | None],
        say: Callable[[str], None],
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._cluster = cluster
        self._connection = connection
        self._fetch_view = fetch_view
        self._say = say
        self._clock = clock
        self._sleep = sleep
        self._master = Daemon(Role.MASTER, cluster.master)
        self._workers = commands.workers_of(cluster)
        self._others = commands.others_of(cluster)

    def state(self) -> ClusterState:
        """The state of every daemon. Raises ``Error`` only when the master's host cannot be reached."""
        master = self._on_master(commands.status_command(self._cluster, self._master), tell=False)
        pushed = [*self._workers, *self._others]
        results = self._push(pushed, commands.status_command, tell=False)
        view = self._fetch_view()
        return ClusterState(master.exit_code == STATUS_RUNNING, dict(zip(pushed, results, strict=True)), view)

    def start(self, *, parallel: bool = True) -> MasterView:
        """Starts what does not run, and waits until the leader reports every worker as ALIVE.

        The master starts the others all at once, or one after another.

        Raises ``NothingToDo`` when all run already, and ``Error`` with the hosts that did not start.
        """
        state = self.state()
        missing = self._start_check(state)
        if not state.master_runs:
            self._require("start", [self._on_master(self._start(self._cluster, self._master))])
        if state.view is None or state.view.status != "ALIVE":
            self._wait(
                lambda view: view.status == "ALIVE",
                lambda _: f"the master at {self._cluster.url} is not ALIVE",
            )
        self._require("start", self._push(missing, self._start, parallel=parallel))
        return self._wait(lambda view: not self._absent(view), self._absent_text)

    def stop(self) -> None:
        """Stops the workers, then the masters, and waits for each process to end.

        Raises ``NothingToDo`` when nothing runs, and ``Error`` with the hosts that could not be stopped.
        """
        state = self.state()
        running = state.running
        if not state.master_runs and not running and not state.unreachable:
            raise NothingToDo("Spark is not running.")
        results = []
        for stage in (self._workers, self._others):
            results += self._push([d for d in stage if d in running], commands.stop_command)
        if state.master_runs:
            results.append(self._on_master(commands.stop_command(self._cluster, self._master)))
        self._require("stop", [*results, *state.unreachable])

    def add(self, hosts: Sequence[str]) -> MasterView:
        """Starts the workers of some hosts that do not run, and waits until they are ALIVE."""
        wanted = self._workers_on(hosts)
        statuses = self._push(wanted, commands.status_command, tell=False)
        self._require("answer", [result for result in statuses if result.exit_code not in {0, 1, 2}])
        pairs = zip(wanted, statuses, strict=True)
        missing = [daemon for daemon, result in pairs if result.exit_code != STATUS_RUNNING]
        if not missing:
            raise NothingToDo(f"The workers on {', '.join(hosts)} run already.")
        self._require("start", self._push(missing, self._start))
        return self._wait(
            lambda view: not self._absent(view, wanted), lambda view: self._absent_text(view, wanted)
        )

    def remove(self, hosts: Sequence[str], timeout_s: float) -> None:
        """Takes the workers of some hosts away from running jobs: they are decommissioned, then stopped.

        Their executors first finish their tasks and give their blocks to the others. Raises ``Error`` with the
        workers that still have executors after the timeout; these are left as they are.
        """
        wanted = self._workers_on(hosts)
        statuses = self._push(wanted, commands.status_command, tell=False)
        self._require("answer", [result for result in statuses if result.exit_code not in {0, 1, 2}])
        pairs = zip(wanted, statuses, strict=True)
        left = [daemon for daemon, result in pairs if result.exit_code == STATUS_RUNNING]
        if not left:
            raise NothingToDo(f"No worker runs on {', '.join(hosts)}.")
        self._require("decommission", self._push(left, commands.decommission_command))
        deadline = self._clock() + timeout_s
        running = left
        while busy := self._busy(running):
            if self._clock() >= deadline:
                names = ", ".join(daemon.name for daemon in busy)
                raise Error(
                    f"after {timeout_s:.0f} s still with executors, and not stopped: {names}. They get no new ones; "
                    "run the command again to go on waiting"
                )
            self._sleep(1.0)
            running = busy
        self._require("stop", self._push(left, commands.stop_command))

    def log(self, host: str, role: Role, number: int, lines: int) -> str:
        """The last lines of a daemon's log. Raises ``UsageError`` for a daemon that the inventory does not have."""
        daemons = [self._master, *self._workers, *self._others]
        wanted = [d for d in daemons if (d.host.name, d.role, d.number) == (host, role, number)]
        if not wanted:
            known = ", ".join(sorted({d.host.name for d in daemons if d.role is role}))
            raise UsageError(
                f"no {role.name.lower()} {number} on {host}: there is one on {known or 'no host'}"
            )
        command = commands.log_command(self._cluster, wanted[0], lines)
        if wanted[0].host.name == self._cluster.master.name:
            result = self._on_master(command, tell=False)
        else:
            (result,) = self._push(wanted, lambda *_: command, tell=False)
        self._require("show its log", [result])
        return "\n".join(line.partition(": ")[2] for line in result.lines)

    def defaults(self) -> str:
        """The cluster's spark-defaults.conf, which may have its secret."""
        ran = run_as_spark(self._connection, self._cluster, commands.defaults_command(self._cluster))
        if ran.exit_code != 0:
            raise Error(f"{self._cluster.master.name}: no spark-defaults.conf; run make deploy\n{ran.output}")
        return ran.output

    def _start(self, cluster: SparkCluster, daemon: Daemon) -> str:
        return commands.start_command(cluster, daemon.role, daemon.host, daemon.number)

    def _busy(self, workers: Sequence[Daemon]) -> list[Daemon]:
        """The workers that still have executors, or do not answer."""
        results = self._push(workers, commands.executors_command, tell=False)
        return [d for d, result in zip(workers, results, strict=True) if result.exit_code != 0]

    def _workers_on(self, hosts: Sequence[str]) -> list[Daemon]:
        known = {worker.host.name for worker in self._workers}
        if unknown := [host for host in hosts if host not in known]:
            raise UsageError(f"no worker in the inventory: {', '.join(unknown)}; there are {sorted(known)}")
        return [worker for worker in self._workers if worker.host.name in hosts]

    def _start_check(self, state: ClusterState) -> list[Daemon]:
        """The daemons to start. Raises when there is nothing to start, or when a host's status cannot
        be read.
        """
        self._require("answer", state.unreachable)
        missing = [daemon for daemon in [*self._others, *self._workers] if daemon not in state.running]
        is_alive = state.view is not None and state.view.status == "ALIVE" and not self._absent(state.view)
        if state.master_runs and not missing and is_alive:
            raise NothingToDo(
                f"Spark is already running: {self._cluster.url}, {len(self._workers)} workers ALIVE."
            )
        return missing

    def _absent(self, view: MasterView, workers: Sequence[Daemon] | None = None) -> list[Daemon]:
        """The workers that the master does not report as ALIVE, on hosts that have too few."""
        workers = self._workers if workers is None else workers
        return [w for w in workers if view.alive_on(w.host.peer_address) < w.number]

    def _absent_text(self, view: MasterView | None, workers: Sequence[Daemon] | None = None) -> str:
        absent = self._workers if view is None else self._absent(view, workers)
        names = ", ".join(daemon.name for daemon in absent)
        return f"not ALIVE in the master's eyes: {names}; see its log by fab spark.logs HOST"

    def _wait(
        self, good: Callable[[MasterView], bool], complaint: Callable[[MasterView | None], str]
    ) -> MasterView:
        """Polls the leader until its view is ``good``. Raises ``Error`` after the timeout."""
        limit_s = RECOVERY_TIMEOUT_S if self._cluster.standbys else READY_TIMEOUT_S
        deadline = self._clock() + limit_s
        while True:
            view = self._fetch_view()
            if view is not None and good(view):
                return view
            if self._clock() >= deadline:
                raise Error(f"after {limit_s:.0f} s {complaint(view)}")
            self._sleep(POLL_S)

    def _on_master(self, command: str, *, tell: bool = True) -> HostResult:
        """Runs a command as Spark's user on the master's host."""
        master = self._cluster.master
        ran = run_as_spark(self._connection, self._cluster, command)
        lines = tuple(f"{master.name}: {line}" for line in ran.output.splitlines())
        if tell:
            self._tell(lines)
        return HostResult(master.name, ran.exit_code, lines)

    def _push(
        self,
        daemons: Sequence[Daemon],
        command_for: Callable[[SparkCluster, Daemon], str],
        *,
        tell: bool = True,
        parallel: bool = True,
    ) -> list[HostResult]:
        """Has the master run a command about each daemon, on its host, over its own ssh."""
        if not daemons:
            return []
        pairs = [(daemon, command_for(self._cluster, daemon)) for daemon in daemons]
        script = commands.push_script(pairs, parallel=parallel)
        limit_s = COMMAND_TIMEOUT_S if parallel else COMMAND_TIMEOUT_S + HOST_TIMEOUT_S * len(daemons)
        ran = run_as_spark(self._connection, self._cluster, script, limit_s)
        results = commands.push_results([daemon.name for daemon in daemons], ran.output)
        if tell:
            self._tell(line for result in results for line in result.lines)
        return results

    def _tell(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._say(line)

    def _require(self, action: str, results: Sequence[HostResult]) -> None:
        """Raises an ``Error`` that names every daemon that failed."""
        failed = [result for result in results if result.exit_code != 0]
        if failed:
            told = "\n".join(line for result in failed for line in result.lines[-TOLD_LINES:])
            codes = ", ".join(f"{result.host} (exit {result.exit_code})" for result in failed)
            raise Error(f"did not {action}: {codes}\n{told}".rstrip())
