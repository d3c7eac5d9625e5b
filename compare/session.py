"""A comparison: does every planned run, with everything stopped before and after, and saves its events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from compare import manifest as manifests
from compare.bench import Bench
from compare.collect import collect
from compare.events import EventsFile
from compare.launch import launcher
from compare.publish import publish
from compare.record import RunRecord
from compare.run import OneRun
from compare.scenarios import Planned
from compare.settings import BROKER_PORT, EVENTS_FILE, MANIFEST_FILE
from lab import LabError

# After this many runs in a row that the lab failed, the lab counts as broken.
MOST_FAILED_IN_A_ROW = 3

Tell = Callable[[str], None]
Done = Callable[[Planned, RunRecord | None], None]


class Comparison:
    """A whole comparison. ``tell`` gets a line for the operator, ``done`` every run (None: the
    lab failed).
    """

    def __init__(
        self, bench: Bench, comparison_id: str, directory: Path, tell: Tell, done: Done, *, remark: str = ""
    ) -> None:
        self._remark = remark
        self._bench = bench
        self._id = comparison_id
        self._manifest_path = directory / MANIFEST_FILE
        self._file = EventsFile(directory / EVENTS_FILE)
        self._tell = tell
        self._done = done
        self.failed: list[str] = []
        self._failed_in_a_row = 0

    def go(self, plan: Sequence[Planned]) -> None:
        """Does all runs; afterwards the cluster is as deployed in any case. Raises
        LabError, NotPublishedError.
        """
        manifest = manifests.begun(self._id, plan, self._bench.hosts, self._remark)
        manifests.write(self._manifest_path, manifest)
        try:
            self._tell("stopping everything")
            self._bench.set_aside(True)
            self._bench.clear()
            for planned in plan:
                self._one(planned)
        finally:
            self._tell("starting the cluster again as it was deployed")
            self._bench.restore()
            manifests.write(self._manifest_path, manifests.ended(manifest, self.failed))
        bootstrap = ",".join(f"{host.address}:{BROKER_PORT}" for host in self._bench.hosts.lab.hosts)
        count = publish(bootstrap, self._file.read())
        self._tell(f"published {count} events")

    def _one(self, planned: Planned) -> None:
        run_id = f"{self._id}-{planned.number:04d}"
        record = None
        try:
            record = self._run(planned, run_id)
            self._failed_in_a_row = 0
        except (LabError, OSError) as error:
            self.failed.append(f"{run_id} {planned}: {error}")
            self._tell(self.failed[-1])
            self._failed_in_a_row += 1
            if self._failed_in_a_row >= MOST_FAILED_IN_A_ROW:
                raise
        self._done(planned, record)

    def _run(self, planned: Planned, run_id: str) -> RunRecord:
        bench = self._bench
        members = bench.members(planned, run_id)
        bench.arrange(planned.system, planned.model)
        bench.hosts.write_lifecycle(run_id, planned.model)
        watch = bench.watch(planned, members)
        try:
            record = OneRun(planned, members, bench.hosts, launcher(planned.model, bench.hosts), watch).go()
        finally:
            if stubborn := bench.clear():
                self._tell(f"{planned}: had to be killed to stop: {' '.join(stubborn)}")
        events = record.events(run_id, self._id) + collect(bench.hosts, members, record, run_id)
        self._file.append(events)
        return record
