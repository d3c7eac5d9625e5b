"""What was not measured: in any comparison, and in this one. Pure."""

from __future__ import annotations

from compare.figures import Comparison
from compare.recorded import MODELS
from compare.report.verdicts import COLD_START, LEAST_ROUNDS
from compare.report.wording import SCENARIOS, SYSTEMS, counted, listed, scenario, way

ALWAYS = tuple(
    """\
Hosts of their own: all hosts are containers of one machine and share its processors and its disk.
A real network: all packets stay in the machine, without the distance, the losses and the crowding of a data centre.
Clusters larger than the most hosts here: beyond, everything is simulated.
What it takes to bring the software to the hosts: it was installed before.
A push that is run again by itself, or whose members have a supervisor: what is pushed here has nobody but a person, \
so that a person is needed with most faults is what the push is, not what it cost.
Other launchers than ssh, and other supervisors than systemd.
How long a person takes: the harness acts in a person's place after a fixed patience. Times with a person in them say \
what the harness waited, not how quick somebody is.
""".splitlines()
)


def not_measured(comparison: Comparison) -> list[str]:
    """Sentences; the gaps of this comparison come first."""
    return [*_ways(comparison), *_scenarios(comparison), *_few(comparison), *_one_size(comparison), *ALWAYS]


def _ways(comparison: Comparison) -> list[str]:
    sentences = []
    for system in SYSTEMS:
        absent = [way(model) for model in MODELS if not comparison.find(system, model, COLD_START)]
        if len(absent) == len(MODELS):
            sentences.append(f"{SYSTEMS[system]}: no cold start.")
        elif absent:
            sentences.append(f"{SYSTEMS[system]}: no cold start {listed(absent)}.")
    return sentences


def _scenarios(comparison: Comparison) -> list[str]:
    sentences = []
    for name in SCENARIOS:
        absent = [
            f"{SYSTEMS[system]} {way(model)}"
            for system in comparison.systems
            for model in MODELS
            if not comparison.find(system, model, name)
        ]
        if name != COLD_START and absent:
            everyone = len(absent) == len(MODELS) * len(comparison.systems)
            sentences.append(f"With {scenario(name)}: {'nothing' if everyone else f'not {listed(absent)}'}.")
    whole = [name for name in sentences if name.endswith(": nothing.")]
    if len(whole) > 1:
        names = [sentence.removeprefix("With ").removesuffix(": nothing.") for sentence in whole]
        sentences = [sentence for sentence in sentences if sentence not in whole]
        sentences.insert(0, f"Faults that were not made: {listed(names)}.")
    return sentences


def _few(comparison: Comparison) -> list[str]:
    few = [group for group in comparison.groups if group.rounds < LEAST_ROUNDS]
    if not few:
        return []
    told = f"{counted(len(few), 'group')} of {len(comparison.groups)} had fewer than {LEAST_ROUNDS} rounds"
    return [f"Enough rounds everywhere: {told}, and nothing is concluded from them."]


def _one_size(comparison: Comparison) -> list[str]:
    counts = {group.hosts for group in comparison.groups if group.scenario == COLD_START}
    only = f"Growth: only {counted(min(counts), 'host')}, in every cold start." if len(counts) == 1 else ""
    return [only] if only else []
