"""The history checker: its input is what producers and consumers saw, its output the anomalies
(see ``anomalies``).

Also a command, which exits with 1 when it found anything::

    python -m chaos.checker HISTORY.jsonl ... [--replicas DIR ...]

Clients may legitimately see some irregularities. A record that failed may be in the log or not, anywhere. A
producer that is not idempotent may write a record twice and in another order than it sent them, but not
before a record that was acknowledged when it sent. Of a transaction whose end its producer never learned,
everything may be visible, or nothing. After an assignment a consumer may read again what its
group had not committed. Retention may have removed the start of the log.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from chaos import commit_rules, copy_rules, log_rules, read_rules, replicas, transaction_rules
from chaos.anomalies import Anomaly, AnomalyKind, counts, summary
from chaos.facts import Facts, assignment_runs, gather
from chaos.history import History, Trouble
from chaos.history_file import HistoryFormatError, collection_paused, read_history
from chaos.transactions import gather_transactions

__all__ = ["Anomaly", "AnomalyKind", "check", "check_all", "summary"]


def check(history: History) -> list[Anomaly]:
    """Returns every anomaly of the history, kind by kind; an empty list is a clean history. Pure."""
    with collection_paused():
        return _check(history, gather(history))


def check_all(history: History, replica_dirs: Mapping[int, Path] | None) -> list[Anomaly]:
    """As ``check``, and compares the replicas' files. Raises OSError when these cannot be read."""
    with collection_paused():
        facts = gather(history)
        return [*_check(history, facts), *(replicas.compare(facts, replica_dirs) if replica_dirs else ())]


def _check(history: History, facts: Facts) -> list[Anomaly]:
    of_the_log = [
        *log_rules.lost(facts),
        *log_rules.phantoms(facts),
        *log_rules.duplicates(facts),
        *log_rules.reordered(history, facts),
        *log_rules.inconsistent_offsets(facts),
    ]
    transactions = gather_transactions(history)
    of_transactions = list(transaction_rules.transactions(facts, transactions))
    named = {anomaly.record_id for anomaly in of_the_log}
    known = read_rules.known_offsets(facts)
    steps = list(read_rules.poll_order(assignment_runs(history), known))
    return [
        *of_the_log,
        *log_rules.nonmonotonic_acks(facts, named),
        *steps,
        *read_rules.never_read(facts, known, steps),
        *read_rules.above_high_watermark(facts, {anomaly.record_id for anomaly in of_transactions}),
        *of_transactions,
        *copy_rules.copies(facts, transactions),
        *commit_rules.commits(history, facts),
    ]


def main(arguments: Sequence[str] | None = None, console: Console | None = None) -> int:
    """The command; returns its exit code: 0 clean, 1 anomalies, 2 no history."""
    parser = argparse.ArgumentParser(prog="python -m chaos.checker", description=__doc__)
    parser.add_argument("history", nargs="+", type=Path, help="JSON lines; several files are merged by time")
    parser.add_argument(
        "--replicas", nargs="+", type=Path, default=[], metavar="DIR", help="brokers' log dirs"
    )
    parser.add_argument("--limit", type=int, default=50, help="how many anomalies are told at most")
    asked = parser.parse_args(arguments)
    shown = console or Console()
    try:
        history = read_history(*asked.history)
        found = check_all(history, dict(enumerate(asked.replicas, 1)))
    except (HistoryFormatError, OSError) as error:
        shown.print(str(error), style="red", markup=False)
        return 2
    show(history, found, shown, asked.limit)
    return 1 if found else 0


def show(history: History, found: Sequence[Anomaly], console: Console, limit: int = 50) -> None:
    """Prints the number of events, the number of anomalies of each kind, and the first ``limit`` findings."""
    table = Table(header_style="bold cyan", row_styles=("", "dim"))
    table.add_column("event")
    table.add_column("count", justify="right")
    for name, count in Counter(type(event).__name__ for event in history.events).most_common():
        table.add_row(name, f"{count:,}")
    console.print(table)
    for trouble in history.of_type(Trouble):
        console.print(f"{trouble.client} @{trouble.at_s:.3f}: {trouble.what}", style="yellow", markup=False)
    if not found:
        console.print("[bold green]no anomaly[/bold green]")
        return
    table = Table(header_style="bold cyan")
    table.add_column("anomaly")
    table.add_column("count", justify="right")
    for kind, count in counts(found).items():
        table.add_row(f"[bold red]{kind.value}[/bold red]", f"[red]{count:,}[/red]")
    console.print(table)
    for anomaly in found[:limit]:
        console.print(str(anomaly), markup=False, highlight=False, soft_wrap=True)
    if len(found) > limit:
        console.print(f"... and {len(found) - limit:,} more")


if __name__ == "__main__":
    sys.exit(main())
