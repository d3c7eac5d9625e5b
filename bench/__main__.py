"""``python -m bench``: runs the comparison and writes the report."""

from __future__ import annotations

import datetime as dt
import sys
import tempfile
from pathlib import Path

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from bench import machine, plot, report
from bench.loads import FULL, LOADS, QUICK
from bench.results import compare
from bench.session import Session, metrics
from bench.targets import Target
from tests.support import kafka_dist
from tests.support.zookeeper import ZooKeeperServer

DEFAULT_OUT = Path(__file__).resolve().parents[1] / "docs" / "benchmarks"
STEPS_PER_VISIT = 2 + len(LOADS)
NAMES = {"landline": Target.LANDLINE, "kafka": Target.KAFKA}


@click.command()
@click.option(
    "--rounds", type=click.IntRange(1, 50), default=3, show_default=True, help="Rounds over all targets."
)
@click.option(
    "--quick", is_flag=True, help="One sixth of the load: a check that it works, not a measurement."
)
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), default=DEFAULT_OUT, help="Report directory."
)
@click.option(
    "--target", "names", type=click.Choice(list(NAMES)), multiple=True, help="Only this one; may be repeated."
)
@click.option("--work-dir", type=click.Path(file_okay=False, path_type=Path), help="Where log dirs are put.")
def main(rounds: int, quick: bool, out: Path, names: tuple[str, ...], work_dir: Path | None) -> None:
    """Measure Landline beside Apache Kafka 3.9.1: start-up, memory, throughput, CPU seconds per GiB."""
    console = Console()
    targets = [NAMES[name] for name in names] or list(Target)
    try:
        kafka_dist.jar_dir()
    except kafka_dist.KafkaDistUnavailableError as error:
        sys.exit(str(error))
    with (
        tempfile.TemporaryDirectory(prefix="landline-bench-", dir=work_dir) as directory,
        ZooKeeperServer(Path(directory) / "zookeeper", tick_ms=2000) as zookeeper,
        _progress(console) as progress,
    ):
        task = progress.add_task("starting", total=rounds * len(targets) * STEPS_PER_VISIT)

        def step(text: str) -> None:
            progress.update(task, advance=1, description=text)
            progress.refresh()

        session = Session(zookeeper, Path(directory), QUICK if quick else FULL, step)
        session.run(targets, rounds)
    _publish(console, session, targets, out, {"rounds": str(rounds), "load": "quick" if quick else "full"})


def _progress(console: Console) -> Progress:
    """Redrawn at steps only: a refreshing thread would take CPU from what is measured."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    return Progress(*columns, console=console, auto_refresh=False)


def _publish(
    console: Console, session: Session, targets: list[Target], out: Path, facts: dict[str, str]
) -> None:
    names = [target.value for target in targets]
    comparisons = compare(metrics(), session.samples, Target.LANDLINE.value, Target.KAFKA.value)
    restless = sum(not noise.settled for noise in session.noise)
    noisy = (
        f"{len(session.noise)} runs were repeated because others used the CPUs; {restless} never were quiet"
    )
    today = dt.datetime.now(tz=dt.UTC).date().isoformat()
    facts = {"date": today, **facts, **machine.description(), "neighbours": noisy}
    report.print_table(console, comparisons, names)
    out.mkdir(parents=True, exist_ok=True)
    stem = out / "kafka-3.9.1"
    drawn = plot.draw(stem.with_name(stem.name + ".png"), comparisons)
    text = report.markdown(comparisons, names, facts, f"{stem.name}.png" if drawn else None)
    stem.with_name(stem.name + ".md").write_text(text)
    report.write_json(stem.with_name(stem.name + ".json"), session.samples, comparisons, facts)
    console.print(f"report: {stem}.md, .json" + (", .png" if drawn else ""))


if __name__ == "__main__":
    main()
