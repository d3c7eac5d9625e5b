"""``python -m chaos``: faults on a running lab; ``make chaos`` and ``make chaos-gaps`` create one for it."""

from __future__ import annotations

import logging
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from bench import machine
from chaos import gaps, plot, report
from chaos.cluster import cluster_of
from chaos.faults import Victims
from chaos.rounds import Round
from chaos.scenarios import Step, steps
from chaos.walk import SEGMENT_ROUNDS, Walk
from lab import Lab
from rig.published import data_directory

SLOW_ROUND_S = 12.0
ROOT = Path(__file__).resolve().parents[1]


def figures_of(page: Path) -> Path:
    """The file with the figures of a page: beside it, but in `chaos/results` for a published page."""
    return data_directory(page.parent, ROOT / "docs", ROOT / "chaos" / "results") / f"{page.stem}.json"


class ProgressBar:
    """A progress bar of a walk, with one line per round."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress = progress
        self._task = task
        self._victims = ""

    def began(self, step: Step, victims: Victims) -> None:
        self._victims = str(victims)
        self._progress.update(self._task, description=step.scenario.name)

    def ended(self, done: Round) -> None:
        verdict = f"[red]{done.finding}[/]" if done.finding else "[green]well[/]"
        rebalance = ", rebalance" if done.step.rebalance else ""
        self._progress.console.print(
            f"{done.step.number:4d}  {done.step.scenario.name} ({self._victims}), held {done.step.hold_s:.1f} s"
            f"{rebalance}: {done.seconds:.1f} s, gap {done.gap_s:.1f} s, {verdict}",
            highlight=False,
            soft_wrap=True,
        )
        if done.seconds > SLOW_ROUND_S and done.waited_for:
            self._progress.console.print(
                f"      waited for: {done.waited_for}", highlight=False, markup=False
            )
        self._progress.advance(self._task)

    def judging(self, segment: int) -> None:
        self._progress.update(self._task, description=f"judging segment {segment}")


@click.group()
def main() -> None:
    """Break a cluster of real hosts under load, and judge every record."""
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)


@main.command()
@click.option("--lab", "name", required=True, help="The lab, up and deployed with chaos/deploy.yml.")
@click.option("--rounds", type=click.IntRange(1, 10_000), default=50, show_default=True)
@click.option("--seed", type=int, help="Repeats a walk; random by default, and printed.")
@click.option("--only", multiple=True, help="Only scenarios whose name contains this; may be repeated.")
@click.option("--long/--short", default=False, help="Deal the faults of a minute too.")
@click.option("--segment", type=click.IntRange(1, 1000), default=SEGMENT_ROUNDS, show_default=True)
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Where evidence is kept.")
@click.option(
    "--report", "page", type=click.Path(dir_okay=False, path_type=Path), help="Page to put it into."
)
def walk(
    *,
    name: str,
    rounds: int,
    seed: int | None,
    only: Sequence[str],
    long: bool,
    segment: int,
    out: Path | None,
    page: Path | None,
) -> None:
    """A seeded random walk over all faults and roles."""
    seed = secrets.randbelow(1 << 31) if seed is None else seed
    console = Console()
    directory = out or ROOT / "build" / "chaos" / f"seed-{seed}"
    console.print(f"seed [bold]{seed}[/], {rounds} rounds, evidence in {directory}")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with cluster_of(Lab(name)) as cluster, Progress(*columns, console=console, transient=True) as progress:
        dealt = steps(seed, rounds, data_disks=cluster.has_data_disks, long=long, only=only)
        task = progress.add_task("starting", total=len(dealt))
        result = Walk(
            cluster, seed, dealt, directory, ProgressBar(progress, task), segment_rounds=segment
        ).run()
    console.print(report.walk_tables(result))
    if result.totals.troubles:
        console.print(f"[yellow]why clients had to be replaced: {directory}[/]", soft_wrap=True)
    if page is not None:
        report.publish(page, figures_of(page), "walk", report.walk_markdown(result), report.walk_json(result))
    if result.findings:
        console.print(f"[red]{len(result.findings)} findings[/]; the first:")
        for finding in result.findings[:20]:
            console.print(f"  {finding}", highlight=False, markup=False)
        console.print(f"again: make chaos SEED={seed} ROUNDS={rounds}; evidence: {directory}")
        sys.exit(1)


@main.command()
@click.option(
    "--lab", "name", required=True, help="The lab, up, with Landline deployed and Kafka's jars bound."
)
@click.option("--repetitions", type=click.IntRange(1, 20), default=3, show_default=True)
@click.option("--fault", "faults", type=click.Choice(gaps.FAULTS_COMPARED), multiple=True, help="Only this.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=ROOT / "build/chaos/gaps")
@click.option(
    "--report", "page", type=click.Path(dir_okay=False, path_type=Path), help="Page to put it into."
)
def compare(name: str, repetitions: int, faults: Sequence[str], out: Path, page: Path | None) -> None:
    """Longest time without an acknowledgement, compared with Apache Kafka under the same faults."""
    console = Console()

    def tell(sample: gaps.Sample) -> None:
        anomalies = f", [red]{sample.anomalies} anomalies[/]" if sample.anomalies else ""
        where = f"{sample.repetition}  {sample.product}, {sample.fault}"
        console.print(f"{where}: {sample.gap_s:.2f} s{anomalies}", highlight=False, soft_wrap=True)

    samples = gaps.compare(Lab(name), repetitions, out, tell, faults or gaps.FAULTS_COMPARED)
    rows = gaps.rows(samples)
    console.print(report.gaps_table(rows))
    if page is not None:
        facts = machine.description()
        report.publish(
            page,
            figures_of(page),
            "gaps",
            report.gaps_markdown(rows, repetitions, facts),
            report.gaps_json(samples, facts),
        )
        plot.draw(page.parent / "images" / "gaps.png", rows)
    sys.exit(1 if any(sample.anomalies for sample in samples) else 0)


if __name__ == "__main__":
    main()
