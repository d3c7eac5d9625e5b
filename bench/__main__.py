"""``python -m bench``: runs the comparison and writes the report."""

from __future__ import annotations

import datetime as dt
import signal
import sys
import tempfile
import time
from dataclasses import replace
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

from bench import loopback, machine, plot, report
from bench.bytecode import compile_broker, differing_sources
from bench.report import Report, Section
from bench.results import compare
from bench.session import MAX_REPEATS, Session
from bench.suites import SUITES
from bench.targets import Target, peers
from bench.workload import Stage, Suite
from broker.utils.compiled import compiled_by
from rig import kafka_dist, kfake_broker
from rig.published import data_directory
from rig.zookeeper import ZooKeeperServer

DEFAULT_OUT = Path(__file__).resolve().parents[1] / "docs" / "benchmarks"
RESULTS = Path(__file__).resolve().parent / "results"
NAMES = {
    "landline": Target.LANDLINE,
    "python": Target.PYTHON,
    "kafka": Target.KAFKA,
    "kraft": Target.KRAFT,
    "kfake": Target.KFAKE,
}
# Unless others are named: Landline as it is deployed, and its peers.
DEFAULT_TARGETS = [Target.LANDLINE, Target.KAFKA, Target.KRAFT]
QUICK_SCALE = 1 / 8
STEM = "report"


@click.command()
@click.option(
    "--rounds", type=click.IntRange(1, 50), default=3, show_default=True, help="Rounds over all targets."
)
@click.option(
    "--suite",
    "names",
    type=click.Choice([suite.name for suite in SUITES]),
    multiple=True,
    help="Only this one; may be repeated.",
)
@click.option(
    "--workload",
    "titles",
    metavar="TEXT",
    multiple=True,
    help="Only those with this in their titles; may be repeated.",
)
@click.option(
    "--target",
    "target_names",
    type=click.Choice(list(NAMES)),
    multiple=True,
    help="Only this one; may be repeated.",
)
@click.option(
    "--scale",
    type=click.FloatRange(0.01, 20),
    default=1.0,
    show_default=True,
    help="How much load, how long.",
)
@click.option(
    "--quick",
    is_flag=True,
    help="An eighth of the load, nothing repeated: a check that it works, no measurement.",
)
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), default=DEFAULT_OUT, help="Report directory."
)
@click.option(
    "--work-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where log dirs are put; made if missing.",
)
@click.option(
    "--tcp",
    metavar="NAME",
    default=loopback.DEFAULT,
    show_default=True,
    help="TCP's congestion control, as root.",
)
def main(
    *,
    rounds: int,
    names: tuple[str, ...],
    titles: tuple[str, ...],
    target_names: tuple[str, ...],
    scale: float,
    quick: bool,
    out: Path,
    work_dir: Path | None,
    tcp: str,
) -> None:
    """Measure Landline beside Apache Kafka 3.9.1 (ZooKeeper) and 4.1 (KRaft), in one run.

    Ctrl-C, or SIGTERM, ends it early: what was measured until then is reported.
    """
    # Set explicitly, because a shell makes its background processes ignore SIGINT.
    for stop in (signal.SIGINT, signal.SIGTERM):
        signal.signal(stop, signal.default_int_handler)
    console = Console()
    targets = [NAMES[name] for name in target_names] or DEFAULT_TARGETS
    suites = [suite.only(titles) for suite in SUITES if not names or suite.name in names]
    suites = [suite for suite in suites if suite.workloads]
    if not suites:
        raise click.BadParameter(
            f"no workload's title has {' or '.join(titles)} in it", param_hint="--workload"
        )
    try:
        kafka_dist.jar_dir()
        if Target.KRAFT in targets:
            kafka_dist.jar_dir(kafka_dist.KRAFT_VERSION)
        if Target.KFAKE in targets:
            kfake_broker.build()
    except (kafka_dist.KafkaDistUnavailableError, kfake_broker.KfakeUnavailableError) as error:
        sys.exit(str(error))
    loopback.enter("bench", sys.argv[1:], tcp)
    codes = {target: target.code for target in targets if target.kind is Target.LANDLINE}
    for code in set(codes.values()):
        if differing := differing_sources(code):
            sys.exit(f"{code} has other sources than this checkout ({differing}): make compiled")
        compile_broker(code)
    scale = scale * QUICK_SCALE if quick else scale
    begin, stopped = time.monotonic(), False
    if work_dir is not None:
        work_dir.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="landline-bench-", dir=work_dir) as directory,
        ZooKeeperServer(Path(directory) / "zookeeper", tick_ms=2000) as zookeeper,
        _progress(console) as progress,
    ):
        task = progress.add_task("starting", total=rounds * sum(_steps(suites, target) for target in targets))

        def step(text: str) -> None:
            if console.is_terminal:
                progress.update(task, advance=1, description=text)
                progress.refresh()
            else:
                console.print(text, highlight=False)

        repeats = 0 if quick else MAX_REPEATS
        session = Session(zookeeper, Path(directory), suites, scale, step, repeats)
        try:
            session.run(targets, rounds)
        except KeyboardInterrupt:
            stopped = True
    minutes = (time.monotonic() - begin) / 60
    facts = {target.value: f"compiled: {compiled_by(code / 'broker')}" for target, code in codes.items()}
    facts |= {"rounds": str(rounds), "scale": "quick, not a measurement" if quick else f"{scale:g}"}
    facts |= {"duration": f"{minutes:.0f} minutes" + (", stopped before its end" if stopped else "")}
    _publish(console, session, targets, out, facts)


def _steps(suites: list[Suite], target: Target) -> int:
    """Each workload is a step, and so is each stage's set-up."""
    stages = [
        suite.stage for suite in suites for workload in suite.workloads if target.kind in workload.targets
    ]
    return len(stages) + len(set(stages) - {Stage.OWN})


def _progress(console: Console) -> Progress:
    """Redrawn at steps only: a refreshing thread would use CPU time during measurements."""
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
    restless = sum(not noise.settled for noise in session.noise)
    noisy = (
        f"{len(session.noise)} runs were repeated because others used the CPUs; {restless} never were quiet"
    )
    today = dt.datetime.now(tz=dt.UTC).date().isoformat()
    compared = peers(targets)
    others = [target.value for target in compared]
    judges = compared[:1] not in ([Target.PYTHON], [Target.KFAKE])
    sections = [
        Section(
            suite.title,
            suite.note,
            compare(
                [
                    metric if judges else replace(metric, goal=None)
                    for workload in suite.workloads
                    for metric in workload.metrics
                ],
                session.samples,
                Target.LANDLINE.value,
                others,
            ),
        )
        for suite in session.suites
    ]
    facts = {"date": today, **facts, **machine.description(), "neighbours": noisy}
    result = Report(sections, [Target.LANDLINE.value, *others], facts, session.failures, session.seconds)
    report.print_tables(console, result)
    out.mkdir(parents=True, exist_ok=True)
    drawn = plot.draw(out / f"{STEM}.png", result)
    (out / f"{STEM}.md").write_text(report.markdown(result, f"{STEM}.png" if drawn else None))
    data = data_directory(out, DEFAULT_OUT, RESULTS)
    data.mkdir(parents=True, exist_ok=True)
    report.write_json(data / f"{STEM}.json", result, session.samples)
    console.print(f"report: {out / STEM}.md" + (", .png" if drawn else "") + f"; samples: {data / STEM}.json")


if __name__ == "__main__":
    main()
