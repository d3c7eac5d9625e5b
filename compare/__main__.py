"""The command ``python -m compare run``: measures on a lab's hosts, inside its network."""

from __future__ import annotations

import signal
import sys
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from compare.bench import Bench
from compare.events import EventsFile
from compare.publish import NotPublishedError
from compare.record import RunRecord
from compare.scenarios import Model, Planned, Scenario, System, host_counts, plan
from compare.session import Comparison
from compare.settings import EVENTS_FILE
from compare.table import medians_table, seconds
from lab import Lab, LabError
from lab.naming import MAX_HOSTS

# In a file the table is as wide as it needs to be.
NARROWEST = 130
console = Console(highlight=False, width=None if sys.stdout.isatty() else NARROWEST)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Compares two ways to start a distributed system: each host by itself, or a master that pushes."""


@main.command()
@click.option("--name", default="compare", show_default=True, help="The lab, deployed, one broker a host.")
@click.option("--hosts", type=click.IntRange(1, MAX_HOSTS), required=True, help="How many of its hosts.")
@click.option("--rounds", type=click.IntRange(1), required=True, help="How often everything is repeated.")
@click.option("--scenario", "scenarios", multiple=True, type=click.Choice([str(s) for s in Scenario]))
@click.option("--system", "systems", multiple=True, type=click.Choice([str(s) for s in System]))
@click.option("--model", "models", multiple=True, type=click.Choice([str(m) for m in Model]))
@click.option("--growth/--no-growth", default=True, help="Cold starts of fewer hosts as well.")
@click.option(
    "--remark", default="", help="What else a reader should know, such as other work of the machine."
)
@click.option("--output", type=click.Path(file_okay=False, path_type=Path), required=True)
def run(
    *,
    name: str,
    hosts: int,
    rounds: int,
    scenarios: tuple[str, ...],
    systems: tuple[str, ...],
    models: tuple[str, ...],
    growth: bool,
    remark: str,
    output: Path,
) -> None:
    """Run the comparison; by default with all scenarios, systems and models."""
    planned = plan(
        hosts,
        rounds,
        [Scenario(s) for s in scenarios] or list(Scenario),
        [System(s) for s in systems] or list(System),
        [Model(m) for m in models] or list(Model),
        cold_start_hosts=host_counts(hosts) if growth else (),
    )
    # On SIGTERM the cluster is left as deployed, as after ^C.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    comparison_id = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    output.mkdir(parents=True, exist_ok=True)
    if (output / EVENTS_FILE).exists():
        console.print(f"error: {output} has a comparison already: give another directory", style="red")
        sys.exit(2)
    try:
        lab = Lab(name)
        with lab.inside():
            failed = measure(lab, hosts, planned, comparison_id, output, remark=remark)
    except (LabError, NotPublishedError) as error:
        console.print(f"error: {error}", style="red", markup=False)
        sys.exit(1)
    console.print(medians_table(EventsFile(output / EVENTS_FILE).read()))
    for line in failed:
        console.print(f"not measured: {line}", style="yellow", markup=False)
    console.print(f"{len(planned) - len(failed)} of {len(planned)} runs are in {output}", style="green")


def measure(
    lab: Lab, hosts: int, planned: list[Planned], comparison_id: str, output: Path, *, remark: str
) -> list[str]:
    """Does the runs, with a progress bar; returns the runs that the lab failed. Raises LabError."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("preparing", total=len(planned))

        def done(one: Planned, record: RunRecord | None) -> None:
            following = planned[one.number] if one.number < len(planned) else "ending"
            progress.update(task, advance=1, description=str(following))
            console.print(line_of(one, record, comparison_id), markup=False, soft_wrap=True)

        def tell(text: str) -> None:
            console.print(text, markup=False, soft_wrap=True)

        comparison = Comparison(Bench.of(lab, hosts), comparison_id, output, tell, done, remark=remark)
        comparison.go(planned)
        return comparison.failed


def line_of(planned: Planned, record: RunRecord | None, comparison_id: str) -> str:
    """One line that describes a run."""
    if record is None:
        return f"{planned}: not measured"
    run = record.summary(comparison_id)
    times = ", ".join(
        f"{word} {seconds([run[key]])}"
        for word, key in (("first", "first_ready_us"), ("all", "all_ready_us"), ("recovered", "recovered_us"))
    )
    sent = f"{run['commands']} commands, {run['connections']} connections"
    return "; ".join([f"{planned}: {times} s", sent, *run["actions"]])


if __name__ == "__main__":
    main()
