"""A Landline broker whose locks are traced: ``python -m tests.support.traced_broker REPORT
start server.properties``.

The report has a line of JSON for each lock, for each order in which two were taken, and for each problem.
What the broker's threads did is checked against the table in docs/design.md, even if nothing deadlocked.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

from tests.stress.lock_graph import Edge, LockGraph
from tests.stress.lock_sites import lock_sites
from tests.stress.lock_table import written_order
from tests.stress.traced import traced_locks


class ReportingGraph(LockGraph):
    """A lock graph that reports at once, because the broker may be killed."""

    def __init__(self, report: Path) -> None:
        super().__init__(written_order())
        self._report = report
        self._writing = threading.Lock()

    def _add(self, edge: Edge, is_same_lock: bool) -> None:
        super()._add(edge, is_same_lock)
        self._tell({"order": edge}, *({"problem": problem} for problem in self.problems))

    def _take_first(self, name: str) -> None:
        super()._take_first(name)
        self._tell({"taken": name})

    def _tell(self, *lines: dict[str, object]) -> None:
        with self._writing, self._report.open("a") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)


def read_report(report: Path) -> tuple[set[str], set[Edge], set[str]]:
    """The locks that were taken, the orders in which two were taken, and the problems."""
    lines = [json.loads(line) for line in report.read_text().splitlines()]
    taken = {line["taken"] for line in lines if "taken" in line}
    orders = {Edge(*line["order"]) for line in lines if "order" in line}
    return taken, orders, {line["problem"] for line in lines if "problem" in line}


if __name__ == "__main__":
    graph = ReportingGraph(Path(sys.argv.pop(1)))
    with traced_locks(lock_sites(), graph):
        from broker.__main__ import main

        sys.exit(main())
