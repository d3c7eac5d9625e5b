"""What the authorizer and client quotas add to a produce. Landline alone: the cost is too small to be seen in a
comparison of brokers.
"""

from __future__ import annotations

from typing import Final

from bench import goals
from bench.client.process import ClientProcess
from bench.guard.security import AUTHORIZER, BOTH_QUOTAS, BYTE_QUOTA, CONTROL, PLAIN, TIME_QUOTA, added_shares
from bench.results import Better, Metric
from bench.targets import Target
from bench.visit import Visit
from bench.workload import Stage, Suite, Values, Workload

BUDGET_S: Final = 60.0
ENOUGH: Final = 400
KEYS: Final = {
    AUTHORIZER: "authorizer",
    BYTE_QUOTA: "byte_quota",
    TIME_QUOTA: "request_quota",
    BOTH_QUOTAS: "both_quotas",
    CONTROL: "control",
}


def _added(visit: Visit) -> Values:
    with ClientProcess(added_shares, visit.seconds(BUDGET_S), ENOUGH) as process:
        process.go()
        shares = process.result()
    added = {f"security.{key}": 100 * shares[name] for name, key in KEYS.items()}
    return {**added, "security.plain": shares[PLAIN]}


def _metrics() -> tuple[Metric, ...]:
    def added(name: str, text: str) -> Metric:
        is_detail = name in {BOTH_QUOTAS, CONTROL}
        goal = None if is_detail else goals.SECURITY_PERCENT
        title = f"produce 16 KiB: added by {text}"
        return Metric(f"security.{KEYS[name]}", title, "%", Better.LOWER, goal, detail=is_detail)

    return (
        added(AUTHORIZER, "the authorizer with 1,000 ACLs"),
        added(BYTE_QUOTA, "a quota of bytes"),
        added(TIME_QUOTA, "a quota of request time"),
        added(BOTH_QUOTAS, "both quotas"),
        added(CONTROL, "nothing, the error of the others"),
        Metric("security.plain", "produce 16 KiB without security", "µs", Better.LOWER, detail=True),
    )


SUITE = Suite(
    "security",
    "The authorizer and quotas",
    Stage.OWN,
    (
        Workload(
            "the authorizer and quotas",
            _metrics(),
            _added,
            repeats=False,
            targets=frozenset({Target.LANDLINE}),
        ),
    ),
    "CPU time of a request in a process that is broker and client, as in the cost guard. The kinds take turns in "
    "slices of a millisecond. The client is far below its quotas.",
)
