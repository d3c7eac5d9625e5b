"""Reads the records of a comparison: its events, and its manifest.

docs/lifecycle.md describes ``events.jsonl``. Times are microseconds of the wall clock, which all hosts of a
lab share.
"""

from __future__ import annotations

import json
import lzma
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SCHEMA_VERSION = 1
EVENTS_FILE, COMPARISON_FILE, MANIFEST_FILE = "events.jsonl", "comparison.json", "manifest.json"
STORMS_FILE = "storms.json"
PACKED = ".xz"
"""Events may be compressed: ``events.jsonl.xz``."""
MODELS = ("independent", "push-parallel", "push-sequential")
MEMBER_ROLES = ("broker", "spark-worker")
"""The roles that serve; the others (ZooKeeper, Spark's master) are needed by members."""


class Unreadable(Exception):
    """An input is missing or invalid; the message names the file and, for a line, its number."""


@dataclass(frozen=True, slots=True)
class Step:
    """One event: a completed step of one process, or of its launch."""

    host: str
    role: str
    instance: str
    kind: str
    name: str
    start_us: int
    end_us: int
    outcome: str
    detail: str

    @property
    def ms(self) -> float:
        """The step's duration in milliseconds."""
        return (self.end_us - self.start_us) / 1000

    @property
    def process(self) -> str:
        """The process that the step belongs to, such as ``broker-2``; the same for its own steps and
        its launcher's.
        """
        if self.role == "launcher":
            return self.instance
        return self.role if self.role == "spark-master" else f"{self.role}-{self.instance}"

    @property
    def is_of_a_member(self) -> bool:
        """Whether it belongs to a broker or a Spark worker."""
        return self.process.startswith(MEMBER_ROLES)


@dataclass(frozen=True, slots=True)
class Run:
    """One start of one system, by one model, in one scenario, with all its steps in order of their start."""

    run_id: str
    system: str
    model: str
    scenario: str
    hosts: int
    round: int
    start_us: int
    first_ready_us: int | None
    all_ready_us: int | None
    recovered_us: int | None
    person_acted: bool
    steps: tuple[Step, ...]

    @property
    def group(self) -> tuple[str, str, str, int]:
        """The key that rounds have in common: system, model, scenario, hosts."""
        return self.system, self.model, self.scenario, self.hosts


def read_runs(path: Path) -> list[Run]:
    """All runs of an events.jsonl, or of its ``.xz`` file if it is missing, sorted. Copies of an event
    count once.

    Raises ``Unreadable``.
    """
    return runs_of(_events(path))


def runs_of(events: Iterable[Mapping[str, Any]]) -> list[Run]:
    """The runs in events of schema 1, in any order. Skips events of no run."""
    steps: dict[str, list[Step]] = defaultdict(list)
    whole: dict[str, Mapping[str, Any]] = {}
    for event in {str(event["id"]): event for event in events}.values():
        if event["role"] == "launcher" and event["step"] == "Run":
            whole[event["run_id"]] = event
        else:
            steps[event["run_id"]].append(_step(event))
    runs = [_run(event, steps[run_id]) for run_id, event in whole.items()]
    return sorted(runs, key=lambda run: (*run.group, run.round, run.run_id))


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest; empty when there is none, because a report works without it. Raises ``Unreadable``."""
    if not path.exists():
        return {}
    manifest = read_json(path)
    if not isinstance(manifest, dict):
        raise Unreadable(f"{path}: a manifest is a JSON object")
    return manifest


def read_json(path: Path) -> Any:
    """The JSON value in the file. Raises ``Unreadable``."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Unreadable(f"{path}: {error}") from error


def _events(path: Path) -> list[Mapping[str, Any]]:
    packed = path.with_name(path.name + PACKED)
    try:
        if path.exists() or not packed.exists():
            lines = path.read_text(encoding="utf-8").splitlines()
        else:
            lines = lzma.decompress(packed.read_bytes()).decode().splitlines()
    except (OSError, lzma.LZMAError, UnicodeDecodeError) as error:
        raise Unreadable(f"{path}: {error}") from error
    events = []
    for number, line in enumerate(lines, start=1):
        try:
            event = json.loads(line)
            version = event["schema"]
        except (ValueError, KeyError, TypeError) as error:
            raise Unreadable(f"{path}, line {number}: not an event: {error}") from error
        if version != SCHEMA_VERSION:
            raise Unreadable(
                f"{path}, line {number}: schema {version}; this reads schema {SCHEMA_VERSION} only"
            )
        events.append(event)
    return events


def _step(event: Mapping[str, Any]) -> Step:
    return Step(
        host=event["host"],
        role=event["role"],
        instance=str(event["instance"]),
        kind=event["kind"],
        name=event["step"],
        start_us=event["start_us"],
        end_us=event["end_us"],
        outcome=event["outcome"],
        detail=event.get("detail", ""),
    )


def _run(event: Mapping[str, Any], steps: Iterable[Step]) -> Run:
    told = event["run"]
    return Run(
        run_id=event["run_id"],
        system=told["system"],
        model=event["model"],
        scenario=told["scenario"],
        hosts=told["hosts"],
        round=told["round"],
        start_us=event["start_us"],
        first_ready_us=told["first_ready_us"],
        all_ready_us=told["all_ready_us"],
        recovered_us=told["recovered_us"],
        person_acted=told["person_acted"],
        steps=tuple(sorted(steps, key=lambda step: (step.start_us, step.end_us, step.process, step.name))),
    )
