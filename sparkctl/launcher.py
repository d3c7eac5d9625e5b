"""The actions on a Spark cluster. Each one checks the state, acts, and verifies the result.

The controller connects to the master only; the master reaches the workers over its own ssh. The exit code of
every host is collected, and an error names each host that failed and why.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from sparkctl import commands
from sparkctl.commands import STATUS_RUNNING, HostResult, Role
from sparkctl.connection import Connected, run
from sparkctl.errors import Error, NothingToDo
from sparkctl.inventory import Host, SparkCluster
from sparkctl.master import MasterView

READY_TIMEOUT_S = 90.0
POLL_S = 0.25


@dataclass(frozen=True, slots=True)
class ClusterState:
    """The running daemons, as reported by their hosts, and the master's view (None: it does not answer)."""

    master_runs: bool
    workers: dict[str, HostResult]
    view: MasterView | None

    @property
    def running_workers(self) -> list[str]:
        return [name for name, result in self.workers.items() if result.exit_code == STATUS_RUNNING]

    @property
    def anything_runs(self) -> bool:
        return self.master_runs or bool(self.running_workers)


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

    def state(self) -> ClusterState:
        """The state of every host. Raises ``Error`` only when the master's host cannot be reached."""
        master = self._on_master(commands.status_command(self._cluster, Role.MASTER), tell=False)
        command = commands.status_command(self._cluster, Role.WORKER)
        workers = self._push(self._cluster.workers, lambda _: command, tell=False)
        return ClusterState(
            master.exit_code == STATUS_RUNNING,
            {result.host: result for result in workers},
            self._fetch_view(),
        )

    def start(self, *, parallel: bool = True) -> MasterView:
        """Starts what does not run, and waits until the master reports every worker as ALIVE.

        The master starts the workers all at once, or one after another.

        Raises ``NothingToDo`` when all run already, and ``Error`` with the hosts that did not start.
        """
        state = self.state()
        missing = self._start_check(state)
        if not state.master_runs:
            command = commands.start_command(self._cluster, Role.MASTER, self._cluster.master)
            self._require("start", [self._on_master(command)])
            self._wait(
                lambda view: view.status == "ALIVE",
                lambda _: f"the master at {self._cluster.url} is not ALIVE",
            )
        started = self._push(
            missing,
            lambda host: commands.start_command(self._cluster, Role.WORKER, host),
            parallel=parallel,
        )
        self._require("start", started)
        return self._wait(lambda view: not self._absent(view), self._absent_text)

    def stop(self) -> None:
        """Stops the workers, then the master, and waits for each process to end.

        Raises ``NothingToDo`` when nothing runs, and ``Error`` with the hosts that could not be stopped.
        """
        state = self.state()
        unreachable = [result for result in state.workers.values() if result.exit_code not in {0, 1, 2}]
        if not state.anything_runs and not unreachable:
            raise NothingToDo("Spark is not running.")
        running = [worker for worker in self._cluster.workers if worker.name in state.running_workers]
        command = commands.stop_command(self._cluster, Role.WORKER)
        results = self._push(running, lambda _: command)
        if state.master_runs:
            results.append(self._on_master(commands.stop_command(self._cluster, Role.MASTER)))
        self._require("stop", [*results, *unreachable])

    def _start_check(self, state: ClusterState) -> list[Host]:
        """The workers to start. Raises when there is nothing to start, or when a host's status cannot
        be read.
        """
        self._require("answer", [r for r in state.workers.values() if r.exit_code not in {0, 1, 2}])
        missing = [worker for worker in self._cluster.workers if worker.name not in state.running_workers]
        if state.master_runs and not missing and state.view is not None and not self._absent(state.view):
            raise NothingToDo(
                f"Spark is already running: {self._cluster.url}, {len(state.workers)} workers ALIVE."
            )
        return missing

    def _absent(self, view: MasterView) -> list[Host]:
        """The workers that the master does not report as ALIVE."""
        alive = view.alive_hosts()
        return [worker for worker in self._cluster.workers if worker.peer_address not in alive]

    def _absent_text(self, view: MasterView | None) -> str:
        absent = self._cluster.workers if view is None else self._absent(view)
        names = ", ".join(host.name for host in absent)
        return f"not ALIVE in the master's eyes: {names}; see the daemon's log in $SPARK_LOG_DIR there"

    def _wait(
        self, good: Callable[[MasterView], bool], complaint: Callable[[MasterView | None], str]
    ) -> MasterView:
        """Polls the master until its view is ``good``. Raises ``Error`` after ``READY_TIMEOUT_S``."""
        deadline = self._clock() + READY_TIMEOUT_S
        while True:
            view = self._fetch_view()
            if view is not None and good(view):
                return view
            if self._clock() >= deadline:
                raise Error(f"after {READY_TIMEOUT_S:.0f} s {complaint(view)}")
            self._sleep(POLL_S)

    def _on_master(self, command: str, *, tell: bool = True) -> HostResult:
        """Runs a command as Spark's user on the master's host."""
        master = self._cluster.master
        ran = run(self._connection, master, commands.as_spark(self._cluster, self._connection.user, command))
        lines = tuple(f"{master.name}: {line}" for line in ran.output.splitlines())
        if tell:
            self._tell(lines)
        return HostResult(master.name, ran.exit_code, lines)

    def _push(
        self,
        workers: Sequence[Host],
        command_for: Callable[[Host], str],
        *,
        tell: bool = True,
        parallel: bool = True,
    ) -> list[HostResult]:
        """Has the master run a command on each worker over its own ssh."""
        if not workers:
            return []
        script = commands.push_script(
            ((worker, command_for(worker)) for worker in workers), parallel=parallel
        )
        master = self._cluster.master
        ran = run(self._connection, master, commands.as_spark(self._cluster, self._connection.user, script))
        results = commands.push_results([worker.name for worker in workers], ran.output)
        if tell:
            self._tell(line for result in results for line in result.lines)
        return results

    def _tell(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._say(line)

    def _require(self, action: str, results: Sequence[HostResult]) -> None:
        """Raises an ``Error`` that names every host that failed."""
        failed = [result for result in results if result.exit_code != 0]
        if failed:
            told = "\n".join(line for result in failed for line in result.lines[-12:])
            codes = ", ".join(f"{result.host} (exit {result.exit_code})" for result in failed)
            raise Error(f"did not {action}: {codes}\n{told}".rstrip())
