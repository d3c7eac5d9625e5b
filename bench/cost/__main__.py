"""``python -m bench.cost``: sends everything, compares, prints.

Exits with 1 when something is more expensive, 2 when nothing was judged. See docs/benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import fnmatch
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from bench.cost import table
from bench.cost.asked import Asked, pairs, request
from bench.cost.asking import Asking, Taken, asking, loaded
from bench.cost.table import Finding, Table
from bench.guard.stage import StageError
from broker.utils.logging_setup import configure_logging

_TRIES: Final = 3
_MORE_TRIES: Final = 6
_LATER: Final = 2
_SHOWN_EVERY: Final = 10


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code."""
    options = _parser().parse_args(argv)
    configure_logging({"LANDLINE_LOG_LEVEL": "error"})
    chosen = [pair for pair in pairs(share=options.share) if fnmatch.fnmatch(str(pair[0]), options.only)]
    if not chosen:
        raise SystemExit(f"cost: nothing is called {options.only}; names are as in bench/cost/table.json")
    try:
        return _update(chosen) if options.update else _check(chosen, few=options.share or options.only != "*")
    except StageError as error:
        print(f"cost: nothing was judged: {error}")
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.cost", description=__doc__)
    parser.add_argument("--update", action="store_true", help="write the table anew instead of comparing")
    parser.add_argument("--share", action="store_true", help="the newest versions alone, and few elements")
    parser.add_argument("--only", default="*", metavar="PATTERN", help="these alone, as 'metadata v12 *'")
    return parser


def _check(chosen: Sequence[tuple[Asked, int]], *, few: bool) -> int:
    known = table.load()
    with asking() as client:
        loaded(client, list(dict.fromkeys(asked for asked, _ in chosen)))
        findings = list(_shown(_judged(client, chosen, known, _TRIES), len(chosen)))
        # A temporary load is not a finding: what looked expensive is measured again later.
        for _ in range(_LATER):
            again = [pair for pair, finding in zip(chosen, findings, strict=True) if finding.wrong]
            better = {
                (finding.name, finding.count): finding
                for finding in _judged(client, again, known, _MORE_TRIES)
            }
            findings = [better.get((finding.name, finding.count), finding) for finding in findings]
    lost = [] if few else table.gone(known, ((str(asked), count) for asked, count in chosen))
    print(table.render(findings, colour=sys.stdout.isatty()))
    for line in table.advice(findings, lost):
        print(line)
    return int(bool(lost) or any(finding.wrong for finding in findings))


def _update(chosen: Sequence[tuple[Asked, int]]) -> int:
    with asking() as client:
        loaded(client, list(dict.fromkeys(asked for asked, _ in chosen)))
        findings = list(_shown(_measured(client, chosen), len(chosen)))
    asked_for = {(str(asked), count) for asked, count in pairs()}
    known = {pair: line for pair, line in table.load().items() if pair in asked_for}
    table.save({**known, **table.of_findings(findings)})
    print(table.render([replace(finding, wrong=()) for finding in findings], colour=sys.stdout.isatty()))
    print(f"written: {table.TABLE_PATH}")
    return 0


def _judged(
    client: Asking, chosen: Sequence[tuple[Asked, int]], known: Table, tries: int
) -> Iterator[Finding]:
    for asked, count in chosen:
        judged = partial(
            table.judge, str(asked), count, len(request(asked, count)), known.get((str(asked), count))
        )
        yield judged(client.least(asked, count, tries, partial(_is_good, judged)))


def _measured(client: Asking, chosen: Sequence[tuple[Asked, int]]) -> Iterator[Finding]:
    for asked, count in chosen:
        taken = client.usual(asked, count, _TRIES)
        yield table.judge(str(asked), count, len(request(asked, count)), None, taken)


def _is_good(judged: Callable[[Taken], Finding], taken: Taken) -> bool:
    """Whether no further try is needed."""
    return not judged(taken).wrong


def _shown(findings: Iterator[Finding], total: int) -> Iterator[Finding]:
    for number, finding in enumerate(findings, 1):
        yield finding
        if sys.stderr.isatty() and (number % _SHOWN_EVERY == 0 or number == total):
            share = number / total
            bar = f"{'█' * int(30 * share):░<30} {share:4.0%}  {finding.name:<60.60}"
            print(f"\r{bar}", end="\r\033[K" if number == total else "", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
