"""The simulation's assumptions as sentences: measured ones with their figures, the rest marked as assumed."""

from __future__ import annotations

from collections.abc import Sequence

from compare.simulation.faults import ASSUMED_SLOW_FACTOR, ASSUMED_TIMEOUT_MS, FaultCosts
from compare.simulation.measured import Measured
from compare.simulation.storms import STAGES, Stage, Storms
from compare.simulation.study import Study

ALWAYS = tuple(
    """\
Durations are as they were in the lab, where all hosts share one machine's processors: what goes on at once was \
slower there than on hosts of their own. With more hosts this is taken not to grow.
What members share besides ZooKeeper's sessions and the controller's word (Spark's master, the network) answers many \
as quickly as the few that were measured: no figure of a simulated start is a promise that such a cluster would bear it.
Storms are added whole: as if all members came to ZooKeeper at once, and the controller told them afterwards. A push \
that takes longer spreads its members, and each that comes late is told to all others: that was not measured.
What is started before the members (ZooKeeper's servers, Spark's master) stays as many as on the hosts measured.
No member takes longer than the slowest that was measured: durations are drawn from measured ones, and no tail is \
invented. The greatest of so few is too small for the slowest of many: read every simulated time as "at least". Slow \
hosts are looked at apart.
What a round's members have in common is drawn once a start, how each differs from it once a member.
The master begins pushes no faster than it was seen to begin them, and has processors, memory, processes and ports \
for as many at a time as it is told to.
The master itself is up. If it is not, no pushed member starts: that is measured, not simulated.
""".splitlines()
)


def assumptions(study: Study) -> list[str]:
    """One or two sentences for each."""
    sources = "; ".join(_drawn(each) for each in _widest(study.measured))
    return [
        f"All is drawn from measured launches: {sources}.",
        _storms(study.storms),
        *ALWAYS,
        *(_faults(system, costs) for system, costs in study.costs.items()),
    ]


def _storms(storms: Storms) -> str:
    if not storms.stages:
        return "Nothing is known of what members share with more members than were measured: no storm was measured."
    told = [
        f"{STAGES[stage.name]} took {_times(stage)} with {', '.join(f'{count:,}' for count in stage.members)} members"
        for stage in storms.stages
    ]
    return f"Of what brokers share storms were measured, on one machine: {'; '.join(told)}. Spark's master was not."


def _times(stage: Stage) -> str:
    return ", ".join(f"{took / 1000:.2f} s" for took in stage.took_ms)


def _widest(measured: Sequence[Measured]) -> list[Measured]:
    return list({(each.system, each.model): each for each in measured}.values())


def _drawn(each: Measured) -> str:
    starts = sum(len(run.tail_ms) for run in each.runs)
    rounds = f"{len(each.runs)} round{'s' * (len(each.runs) > 1)}"
    return (
        f"{each.system} {each.model} from {starts} in {rounds} on {each.hosts} host{'s' * (each.hosts > 1)}"
    )


def _faults(system: str, costs: FaultCosts) -> str:
    refused = f"a refused connection takes as long as the {len(costs.refused_ms)} that were measured"
    failing = (
        refused if len(costs.refused_ms) else "refused connections were not measured, and are not simulated"
    )
    if len(costs.dead_ms):
        failing += f"; an unanswered one takes as long as the {len(costs.dead_ms)} that were measured"
    else:
        failing += f"; an unanswered one takes {ASSUMED_TIMEOUT_MS / 1000:g} s (assumed: none was measured)"
    if costs.failure_bound is None:
        share = "how often connections fail by themselves is not known"
    else:
        share = (
            f"{costs.failed} of {costs.connections} connections failed in undisturbed starts, so at most "
            f"{100 * costs.failure_bound:.1f} % do (95 %)"
        )
    slow = (
        f"a slow host takes {ASSUMED_SLOW_FACTOR:g} times as long (assumed)"
        if costs.slow_factor is None
        else f"a slow host takes {costs.slow_factor:.1f} times as long (measured)"
    )
    return f"{system}: {failing}; {share}; the shares simulated are chosen, not measured; {slow}."
