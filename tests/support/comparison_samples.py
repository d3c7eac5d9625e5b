"""Generates a comparison: consistent events, comparison.json and manifest, from parameters that a test knows.

The same seed gives the same sample. Durations are invented; no conclusions can be drawn from them.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

Event = dict[str, Any]

BEGIN_US = 1_800_000_000_000_000
MODELS = ("independent", "push-sequential", "push-parallel")
PUSHED_NEEDS_PERSON = {"crash": "push the start again", "reboot": "push the start again"}
STEPS = {
    "broker": ("Process", "ZooKeeper", "LogManager", "Healthcheck"),
    "spark-worker": ("Process", "Connect", "Register"),
}


@dataclass(frozen=True)
class Times:
    """The times of one system's members in milliseconds, and the additional time of a push. ``spread``: the
    lognormal's sigma.
    """

    own: float
    connect: float = 150
    command: float = 250
    prologue: float = 40
    spread: float = 0.08


@dataclass(frozen=True)
class Sample:
    """What to generate. Faults happen on the most hosts."""

    seed: int = 11
    hosts: tuple[int, ...] = (2, 4)
    rounds: int = 6
    scenarios: tuple[str, ...] = ("cold-start", "crash", "reboot", "ssh-refused", "slow-host")
    models: tuple[str, ...] = MODELS
    times: dict[str, Times] = field(
        default_factory=lambda: {"landline": Times(own=900), "spark": Times(own=2600)}
    )


class _Maker:
    def __init__(self, sample: Sample) -> None:
        self.sample = sample
        self.random = np.random.default_rng(sample.seed)
        self.now_us = BEGIN_US
        self.events: list[Event] = []
        self.count = 0

    def make(self) -> list[Event]:
        for scenario in self.sample.scenarios:
            for hosts in self.sample.hosts if scenario == "cold-start" else self.sample.hosts[-1:]:
                for number in range(1, self.sample.rounds + 1):
                    for system in self.sample.times:
                        for model in self.sample.models:
                            self._run(system, model, scenario, hosts, number)
        return self.events

    def _run(self, system: str, model: str, scenario: str, hosts: int, number: int) -> None:
        times = self.sample.times[system]
        self.now_us += 100_000_000
        begin = self.now_us
        common = {"run_id": f"{system}-{model}-{scenario}-{hosts}-{number}", "model": model}
        role = "broker" if system == "landline" else "spark-worker"
        turn = begin + (0 if model == "independent" else self._took(times.prologue, times))
        served, connections = [], 0
        for host in range(1, hosts + 1):
            name = f"h{host}"
            instance = str(host) if system == "landline" else name
            launch = turn
            if model != "independent":
                at = launch
                pushed = {**common, "role": "launcher", "host": "h1", "instance": f"{role}-{instance}"}
                if scenario == "ssh-refused" and host == hosts:
                    end = at + self._took(30, times)
                    self._add(pushed, "Connect", at, end, outcome="failed", detail="Connection refused")
                    at, connections = end, connections + 1
                for step, ms in (("Connect", times.connect), ("Command", times.command)):
                    end = at + self._took(ms, times)
                    self._add(pushed, step, at, end)
                    at = end
                connections += 1
                if model == "push-sequential":
                    turn = at
                launch = at
            slow = 4 if scenario == "slow-host" and host == hosts else 1
            end = self._member(
                {**common, "role": role, "host": name, "instance": instance}, launch, times, slow
            )
            if model != "independent":
                self._add(pushed, "Await", launch, end)
            served.append(end - begin)
        self._whole(common, system, scenario, hosts, number, served, connections)

    def _member(self, who: Event, at: int, times: Times, slow: int) -> int:
        begin = at
        whole = self._took(times.own * slow, times)
        steps = STEPS[who["role"]]
        for number, step in enumerate(steps, start=1):
            end = begin + whole * number // len(steps)
            self._add(who, step, at, end)
            at = end
        self._add(who, "Ready", begin, at)
        return at

    def _whole(self, common, system, scenario, hosts, number, served, connections) -> None:
        pushed = common["model"] != "independent"
        action = PUSHED_NEEDS_PERSON.get(scenario) if pushed else None
        fault = {"crash": 1_200_000, "reboot": 4_000_000, "ssh-refused": 300_000}.get(scenario)
        recovered = (
            None if fault is None else int(fault * self.random.uniform(0.9, 1.1)) + 10_000_000 * bool(action)
        )
        again = int(bool(action))
        run = {
            "comparison_id": "made-up",
            "scenario": scenario,
            "system": system,
            "hosts": hosts,
            "round": number,
            "first_ready_us": min(served),
            "all_ready_us": max(served),
            "recovered_us": recovered,
            "waited_us": 10_000_000 if action else 0,
            "unaided_us": None if recovered is None else recovered - 10_000_000 * bool(action),
            "person_acted": bool(action),
            "actions": [action] if action else [],
            "commands": hosts + again if pushed else 0,
            "connections": connections + again if pushed else 0,
            "cpu_ms": int(sum(served) / 2000),
        }
        who = {**common, "role": "launcher", "host": "h1", "instance": "run"}
        self._add(who, "Run", self.now_us, self.now_us + max(served), run=run)

    def _took(self, ms: float, times: Times) -> int:
        return int(ms * 1000 * self.random.lognormal(0, times.spread))

    def _add(self, who: Event, step: str, start_us: int, end_us: int, **more: Any) -> None:
        self.count += 1
        self.events.append(
            {
                "schema": 1,
                "id": f"made-up:{self.count}",
                "start_id": "made-up",
                "seq": self.count,
                "kind": "start",
                "step": step,
                "start_us": start_us,
                "end_us": end_us,
                "start_mono_us": start_us - BEGIN_US,
                "end_mono_us": end_us - BEGIN_US,
                "boot_id": f"boot-{who['host']}",
                "outcome": "ok",
                "detail": "",
                "bytes": -1,
                "connections": -1,
                **who,
                **more,
            }
        )


def events(sample: Sample | None = None) -> list[Event]:
    """All events, run by run."""
    return _Maker(sample or Sample()).make()


def comparison(found: list[Event]) -> dict[str, Any]:
    """The comparison.json of these events."""
    runs = [event for event in found if event["step"] == "Run"]
    groups: dict[tuple[str, str, str, int], list[Event]] = defaultdict(list)
    for event in runs:
        run = event["run"]
        groups[run["system"], event["model"], run["scenario"], run["hosts"]].append(run)
    return {
        "schema": 1,
        "comparison_id": "made-up",
        "runs": len(runs),
        "groups": [_group(*key, rounds) for key, rounds in sorted(groups.items())],
        "steps": _steps(found),
        "fits": _fits(groups),
        "inputs": {"events": len(found), "duplicates": 0, "dead_letters": 0},
    }


def write(directory: Path, sample: Sample | None = None) -> Path:
    """Writes events.jsonl, comparison.json and manifest.json into the directory, and returns it."""
    found = events(sample)
    sample = sample or Sample()
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in found))
    (directory / "comparison.json").write_text(json.dumps(comparison(found)))
    manifest = {
        "comparison_id": "made-up",
        "hosts": max(sample.hosts),
        "rounds": sample.rounds,
        "patience_s": 10.0,
        "outage_s": 20.0,
        "scenarios": list(sample.scenarios),
        "revision": "0000000",
        "machine": {"cores": 2, "memory_gib": 24},
        "versions": {"python": "3.11", "spark": "4.0.0"},
        "started": "2026-11-22T09:00:00Z",
        "ended": "2026-11-22T09:30:00Z",
    }
    (directory / "manifest.json").write_text(json.dumps(manifest))
    return directory


def figure(values: list[float | None]) -> dict[str, Any]:
    """The figure of these values; None: never."""
    known = [value for value in values if value is not None]
    shape: dict[str, Any] = {"n": len(known), "never": len(values) - len(known), "values": known}
    names = ("min", "median", "mean", "max", "p25", "p75", "ci_low", "ci_high")
    if not known:
        return {**shape, **dict.fromkeys(names)}
    # Ranks that contain the median with 95 % confidence, for the few rounds that are generated here.
    rank = 0 if len(known) < 6 else 1 if len(known) < 9 else 2
    low, high = (sorted(known)[rank - 1], sorted(known)[-rank]) if rank else (None, None)
    p25, middle, p75 = np.percentile(known, [25, 50, 75])
    told = (min(known), middle, np.mean(known), max(known), p25, p75, low, high)
    return {
        **shape,
        **{
            name: None if value is None else round(float(value), 3)
            for name, value in zip(names, told, strict=True)
        },
    }


def _group(system: str, model: str, scenario: str, hosts: int, rounds: list[Event]) -> dict[str, Any]:
    def values(name: str) -> list[float | None]:
        return [
            None if run[name] is None else run[name] / (1000 if name.endswith("_us") else 1) for run in rounds
        ]

    times = {
        f"{name}_ms": figure(values(f"{name}_us"))
        for name in ("first_ready", "all_ready", "recovered", "unaided", "waited")
    }
    counts = {name: figure(values(name)) for name in ("commands", "connections", "cpu_ms")}
    actions: dict[str, int] = defaultdict(int)
    for run in rounds:
        for action in run["actions"]:
            actions[action] += 1
    return {
        "system": system,
        "model": model,
        "scenario": scenario,
        "hosts": hosts,
        "rounds": len(rounds),
        "figures": {**times, **counts},
        "person_acted": sum(run["person_acted"] for run in rounds),
        "actions": dict(actions),
    }


def _steps(found: list[Event]) -> list[dict[str, Any]]:
    whole = {event["run_id"]: event["run"] for event in found if event["step"] == "Run"}
    took: dict[tuple[str, str, str, int, str], list[float]] = defaultdict(list)
    for event in found:
        run = whole[event["run_id"]]
        if run["scenario"] == "cold-start" and event["step"] not in {"Run", "Ready"}:
            key = (event["role"], event["model"], run["system"], run["hosts"], event["step"])
            took[key].append((event["end_us"] - event["start_us"]) / 1000)
    medians = {key: float(np.median(values)) for key, values in took.items()}
    names = ("role", "model", "system", "hosts", "step")
    return [
        {
            **dict(zip(names, key, strict=True)),
            "n": len(values),
            "median_ms": medians[key],
            "p25_ms": float(np.percentile(values, 25)),
            "p75_ms": float(np.percentile(values, 75)),
            "share": medians[key] / sum(medians[other] for other in medians if other[:4] == key[:4]),
        }
        for key, values in sorted(took.items())
    ]


def _fits(groups: dict[tuple[str, str, str, int], list[Event]]) -> list[dict[str, Any]]:
    points: dict[tuple[str, str], list[tuple[int, float]]] = defaultdict(list)
    for (system, model, scenario, hosts), rounds in groups.items():
        if scenario == "cold-start":
            points[system, model] += [(hosts, run["all_ready_us"] / 1000) for run in rounds]
    fits = []
    for (system, model), found in sorted(points.items()):
        hosts, times = np.array(found).T
        if len(set(hosts)) < 2:
            continue
        slope, start = np.polyfit(hosts, times, 1)
        rest = times - start - slope * hosts
        fits.append(
            {
                "system": system,
                "model": model,
                "figure": "all_ready_ms",
                "scenario": "cold-start",
                "form": "a + b*hosts",
                "a_ms": float(start),
                "b_ms": float(slope),
                "r2": float(1 - rest.var() / times.var()),
                "n": len(found),
            }
        )
    return fits
