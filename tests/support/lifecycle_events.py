"""A generated comparison as lifecycle events (docs/lifecycle.md), the same for the same seed: for tests
of readers.

The durations are invented and only look like real ones; no conclusions can be drawn from them.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

Event = dict[str, Any]

BEGIN_US = 1_795_176_000_000_000  # 2026-11-20T12:00:00Z
MODELS = ("independent", "push-sequential", "push-parallel")
# The approximate duration of each step in milliseconds, in the order of a start.
STEPS: dict[str, dict[str, float]] = {
    "broker": {
        "Process": 180, "Scheduler": 1, "Bind": 3, "ZooKeeper": 40, "LogManager": 25, "ReplicaManager": 4,
        "KafkaController": 12, "GroupCoordinator": 6, "KafkaApis": 3, "DynamicConfigManager": 18,
        "Deposition": 9, "Healthcheck": 15, "FirstMetadata": 60,
    },
    "zookeeper": {"Process": 420, "Election": 260},
    "spark-master": {"Process": 900, "Bind": 700, "Elected": 40},
    "spark-worker": {"Process": 950, "Connect": 800, "Register": 90},
    "launcher": {"Connect": 110, "Command": 220},
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Plan:
    """What to generate. Every scenario except the cold start runs on the most hosts only."""

    seed: int = 7
    comparison_id: str = "sample"
    hosts: Sequence[int] = (2, 3, 4)
    rounds: int = 5
    scenarios: Sequence[str] = ("cold-start", "crash", "dead-host", "master-dead-before")


@dataclass(slots=True)
class _Life:
    """One process's life or one launch: counts its events and advances its time."""

    host: str
    common: Event
    random: random.Random
    now_us: int
    boot_offset_us: int
    events: list[Event] = field(default_factory=list)

    def step(self, step: str, took_ms: float, **more: Any) -> None:
        """Adds a step that begins when the previous one ended, and takes about this long."""
        took_us = int(took_ms * 1000 * self.random.lognormvariate(0, 0.25))
        self.span(step, self.now_us, self.now_us + took_us, **more)
        self.now_us += took_us

    def span(self, step: str, start_us: int, end_us: int, **more: Any) -> None:
        seq = len(self.events) + 1
        self.events.append(
            {
                "schema": 1,
                "id": f"{self.common['start_id']}:{seq}",
                "seq": seq,
                "host": self.host,
                "boot_id": f"boot-{self.host}",
                "kind": "start",
                "step": step,
                "start_us": start_us,
                "end_us": end_us,
                "start_mono_us": start_us - self.boot_offset_us,
                "end_mono_us": end_us - self.boot_offset_us,
                "outcome": "ok",
                "detail": "",
                "bytes": -1 if self.common["role"].startswith("spark") else self.random.randrange(100, 5000),
                "connections": self.random.randrange(3),
                **self.common,
                **more,
            }
        )


def events(plan: Plan | None = None) -> list[Event]:
    """Every event of the comparison in the order of the runs, and two events of a broker outside any run."""
    plan = plan or Plan()
    chance = random.Random(plan.seed)
    found: list[Event] = list(_outside(chance))
    now_us = BEGIN_US
    for scenario in plan.scenarios:
        for hosts in plan.hosts if scenario == "cold-start" else plan.hosts[-1:]:
            for number in range(1, plan.rounds + 1):
                for system in ("landline", "spark"):
                    for model in MODELS:
                        run = {"scenario": scenario, "system": system, "hosts": hosts, "round": number}
                        now_us += 60_000_000
                        found += _run(chance, plan.comparison_id, model, run, now_us)
    return found


def messages(
    found: Iterable[Event], seed: int = 7, copies: float = 0.1, shuffled: bool = True
) -> list[bytes]:
    """The events as a topic's values: in any order, with a share of them published twice."""
    chance = random.Random(seed)
    values = [json.dumps(event).encode() for event in found]
    values += [value for value in values if chance.random() < copies]
    if shuffled:
        chance.shuffle(values)
    return values


def _run(chance: random.Random, comparison_id: str, model: str, run: Event, begin_us: int) -> Iterator[Event]:
    """One run: the launcher's events and every member's start, then the event ``Run`` with the figures."""
    run_id = f"{comparison_id}-{run['scenario']}-{run['system']}-{model}-{run['hosts']}-{run['round']}"
    common = {"run_id": run_id, "model": model}
    pushed = model != "independent"
    person = pushed and run["scenario"] in {"crash", "dead-host", "master-dead-before"}
    ends: list[int] = []
    now_us = begin_us
    for role, host in _members(run["system"], run["hosts"]):
        launch = _life(chance, common, "launcher", "h1", f"{role}-{host}", now_us)
        if pushed:
            for step, ms in STEPS["launcher"].items():
                launch.step(step, ms)
        member = _life(chance, common, role, host, host[1:], launch.now_us)
        for step, ms in STEPS[role].items():
            member.step(step, ms)
        member.span("Ready", launch.now_us, member.now_us)
        launch.span("Await", launch.now_us, member.now_us)
        launch.span("Ready", now_us, member.now_us, **_failed(chance, pushed))
        ends.append(member.now_us)
        now_us = launch.now_us if model == "push-sequential" else begin_us
        yield from launch.events + member.events
        if run["scenario"] == "crash":
            yield from _stop(chance, common, role, host, member.now_us)
    fault = run["scenario"] != "cold-start"
    never = person and chance.random() < 0.3
    recovered_us = chance.randrange(2_000_000, 20_000_000) if fault and not never else None
    waited_us = 1_500_000 if person else 0
    figures = {
        "comparison_id": comparison_id,
        **run,
        "first_ready_us": min(ends) - begin_us,
        "all_ready_us": None if never else max(ends) - begin_us,
        "recovered_us": recovered_us,
        "waited_us": waited_us,
        "unaided_us": None if recovered_us is None else recovered_us - waited_us,
        "person_acted": person,
        "actions": ["push the start again", "bring the master in Zürich back"][: 1 + never] if person else [],
        "commands": len(ends) if pushed else 0,
        "connections": len(ends) if pushed else 0,
        "cpu_ms": sum(end - begin_us for end in ends) // 1500,
    }
    end = _life(chance, common, "launcher", "h1", "run", begin_us)
    end.span("Run", begin_us, max(ends), run=figures)
    yield from end.events


def _members(system: str, hosts: int) -> list[tuple[str, str]]:
    names = [f"h{number}" for number in range(1, hosts + 1)]
    if system == "spark":
        return [("spark-master", "h1"), *(("spark-worker", name) for name in names)]
    return [*(("zookeeper", name) for name in names[:3]), *(("broker", name) for name in names)]


def _life(chance: random.Random, common: Event, role: str, host: str, instance: str, now_us: int) -> _Life:
    start_id = f"{chance.getrandbits(64):016x}"
    named = {**common, "start_id": start_id, "role": role, "instance": instance}
    return _Life(host, named, chance, now_us, BEGIN_US - int(host[1:]) * 5_000_000)


def _failed(chance: random.Random, may: bool) -> Event:
    """Occasionally a launch that was given up: its steps are in no figure."""
    return (
        {"outcome": "failed", "detail": "gave up: nobody answered"} if may and chance.random() < 0.1 else {}
    )


def _stop(chance: random.Random, common: Event, role: str, host: str, now_us: int) -> Iterator[Event]:
    life = _life(chance, common, role, host, host[1:], now_us)
    life.span("Stopped", now_us, now_us + 400_000, kind="stop")
    yield from life.events


def _outside(chance: random.Random) -> Iterator[Event]:
    life = _life(chance, {"run_id": "", "model": "unknown"}, "broker", "h9", "9", BEGIN_US - 3_600_000_000)
    life.step("Process", 150)
    life.step("Ready", 300)
    yield from life.events
