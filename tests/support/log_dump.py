"""Finds problems in log dirs with Kafka's own DumpLogSegments, whoever wrote them. The brokers must
be stopped.

Four passes: every segment with its batches, every index checked for sanity and against its segment, every
producer snapshot, and the decoded records of ``__consumer_offsets``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from rig import kafka_dist

_WRONG = re.compile(
    r"mismatch|out of order|non-consecutive|invalid bytes|isvalid: false|corrupt|exception|error|could not|fail",
    re.IGNORECASE,
)
_SOUND_INDEX = re.compile(r"^(\S+) (?:passed sanity check|is empty)\.", re.MULTILINE)


def problems(*log_dirs: Path) -> list[str]:
    """Every line in which the tool reports a problem, and every index that it did not call sound; empty if
    all is well.
    """
    return list(each_problem(*log_dirs))


def each_problem(*log_dirs: Path) -> Iterator[str]:
    """The problems one by one: a caller that needs only the first skips the later passes, each of which
    starts a JVM.
    """
    missing = [f"no segment in {log_dir}" for log_dir in log_dirs if not any(log_dir.glob("*/*.log"))]
    if missing:
        yield from missing
        return
    segments = _files(log_dirs, "log")
    offsets = [segment for segment in segments if segment.parent.name.startswith("__consumer_offsets-")]
    indexes = [*_files(log_dirs, "index"), *_files(log_dirs, "timeindex")]
    yield from _complaints(segments, "--deep-iteration")
    yield from _complaints(offsets, "--offsets-decoder")
    yield from _complaints(indexes)
    yield from _complaints(_files(log_dirs, "snapshot"))
    yield from _unsound_indexes(indexes)


def _files(log_dirs: Sequence[Path], suffix: str) -> list[Path]:
    return sorted(file for log_dir in log_dirs for file in log_dir.glob(f"*/*.{suffix}"))


def record_count(log_dir: Path, topic: str) -> int:
    """The number of records that the tool counts in a topic's batches, to check that it saw anything."""
    done = kafka_dist.dump_log_segments(sorted(log_dir.glob(f"{topic}-*/*.log")))
    return sum(
        int(count) for count in re.findall(r"^baseOffset: .* count: (\d+) ", done.stdout, re.MULTILINE)
    )


def decoded_offsets(log_dir: Path) -> str:
    """The text of ``__consumer_offsets`` from Kafka's decoder."""
    files = sorted(log_dir.glob("__consumer_offsets-*/*.log"))
    return kafka_dist.dump_log_segments(files, "--offsets-decoder").stdout


def _complaints(files: Sequence[Path], *flags: str) -> Iterator[str]:
    if not files:
        return
    done = kafka_dist.dump_log_segments(files, *flags)
    what = " ".join(["dump", *flags])
    if done.returncode != 0:
        yield f"{what}: exit code {done.returncode}: {done.stderr[-500:]}"
    yield from (f"{what}: {line}" for line in done.stdout.splitlines() if _WRONG.search(line))
    yield from (f"{what}: {line}" for line in done.stderr.splitlines() if _WRONG.search(line))


def _unsound_indexes(indexes: Sequence[Path]) -> Iterator[str]:
    if not indexes:
        yield "no index at all"
        return
    done = kafka_dist.dump_log_segments(indexes, "--index-sanity-check")
    sound = set(_SOUND_INDEX.findall(done.stdout))
    yield from (f"sanity check: {index} is not sound" for index in indexes if str(index) not in sound)
    yield from (f"sanity check: {line}" for line in done.stderr.splitlines() if _WRONG.search(line))
