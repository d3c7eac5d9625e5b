"""Computes ``comparison.json`` a second time, with pandas from raw events, to check the Spark job."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

FIGURES = {
    "first_ready_ms": "first_ready_us", "all_ready_ms": "all_ready_us", "recovered_ms": "recovered_us",
    "waited_ms": "waited_us", "unaided_ms": "unaided_us",
    "commands": "commands", "connections": "connections", "cpu_ms": "cpu_ms",
}  # fmt: skip
SYSTEMS = {"broker": "landline", "zookeeper": "landline", "spark-master": "spark", "spark-worker": "spark"}
WHOLE = ["Ready", "Run", "Stopped"]


def comparison(
    values: Iterable[bytes], comparison_id: str, duplicates: int = 0, dead_letters: int | None = None
) -> dict[str, Any]:
    """The document of one comparison from events as JSON texts, in any order and with copies."""
    by_id = {event["id"]: event for event in map(json.loads, values)}
    runs = pd.DataFrame(
        [
            {**event["run"], "model": event["model"], "run_id": event["run_id"]}
            for event in by_id.values()
            if event["step"] == "Run" and event["run"]["comparison_id"] == comparison_id
        ]
    ).astype(dict.fromkeys(FIGURES.values(), "Int64"))
    runs = runs.sort_values(["round", "run_id"])
    ours = [event for event in by_id.values() if event["run_id"] in set(runs["run_id"])]
    return {
        "schema": 1,
        "comparison_id": comparison_id,
        "runs": len(runs),
        "groups": [
            _group(dict(zip(("system", "model", "scenario", "hosts"), key, strict=True)), group)
            for key, group in runs.groupby(["system", "model", "scenario", "hosts"], sort=True)
        ],
        "steps": _steps(ours, runs),
        "fits": _fits(runs[runs["scenario"] == "cold-start"]),
        "inputs": {"events": len(ours), "duplicates": duplicates, "dead_letters": dead_letters},
    }


def _group(names: dict[str, Any], group: pd.DataFrame) -> dict[str, Any]:
    return names | {
        "hosts": int(names["hosts"]),
        "rounds": len(group),
        "figures": {
            figure: _spread(group[column], 1000 if column.endswith("_us") else 1)
            for figure, column in FIGURES.items()
        },
        "person_acted": int(group["person_acted"].sum()),
        "actions": dict(Counter(group["actions"].explode().dropna())),
    }


def _spread(column: pd.Series, unit: int) -> dict[str, Any]:
    values = column.dropna().astype("int64")
    found: dict[str, Any] = {"n": len(values), "never": int(column.isna().sum())}
    if values.empty:
        names = ("min", "p25", "median", "p75", "max", "mean", "ci_low", "ci_high")
        return found | dict.fromkeys(names) | {"values": []}
    ordered, ranks = np.sort(values.to_numpy()), _rank(len(values))
    numbers = {
        "min": values.min(), "p25": values.quantile(0.25), "median": values.median(),
        "p75": values.quantile(0.75), "max": values.max(), "mean": values.mean(),
        "ci_low": ordered[ranks - 1] if ranks else None, "ci_high": ordered[-ranks] if ranks else None,
    }  # fmt: skip
    rounded = {
        name: None if number is None else round(float(number) / unit, 3) for name, number in numbers.items()
    }
    return found | rounded | {"values": [round(int(value) / unit, 3) for value in values]}


def _rank(count: int) -> int:
    """The rank from either end whose values contain the median with 95 % confidence; 0: none. By the
    binomial distribution.
    """
    shares = np.cumsum([math.comb(count, below) / 2**count for below in range(count + 1)])
    return int(np.searchsorted(shares, 0.025, side="right"))


def _steps(events: list[dict[str, Any]], runs: pd.DataFrame) -> list[dict[str, Any]]:
    cold = runs[runs["scenario"] == "cold-start"].set_index("run_id")
    rows = []
    for event in events:
        if event["kind"] == "start" and event["outcome"] == "ok" and event["run_id"] in cold.index:
            run = cold.loc[event["run_id"]]
            system = SYSTEMS.get(event["role"], run["system"])
            took = event["end_mono_us"] - event["start_mono_us"]
            rows.append((system, event["role"], event["model"], int(run["hosts"]), event["step"], took))
    frame = pd.DataFrame(rows, columns=["system", "role", "model", "hosts", "step", "us"])
    keys = ["system", "role", "model", "hosts"]
    table = frame.groupby([*keys, "step"])["us"].agg(
        n="size", median="median", p25=lambda us: us.quantile(0.25), p75=lambda us: us.quantile(0.75)
    )
    table = table.reset_index()
    parts = table[~table["step"].isin(WHOLE)]
    sums = parts.groupby(keys)["median"].sum().to_dict()
    return [
        {
            "role": row.role, "model": row.model, "system": row.system, "hosts": row.hosts, "step": row.step,
            "n": row.n, "median_ms": round(row.median / 1000, 3), "p25_ms": round(row.p25 / 1000, 3),
            "p75_ms": round(row.p75 / 1000, 3),
            "share": None if row.step in WHOLE
            else round(row.median / sums[row.system, row.role, row.model, row.hosts], 3),
        }
        for row in table.itertuples()
    ]  # fmt: skip


def _fits(cold: pd.DataFrame) -> list[dict[str, Any]]:
    found = []
    for (system, model), group in cold.groupby(["system", "model"], sort=True):
        for figure in ("first_ready_ms", "all_ready_ms", "cpu_ms"):
            column = FIGURES[figure]
            points = group[["hosts", column]].dropna().astype(float)
            if points["hosts"].nunique() < 2:
                continue
            y = points[column].to_numpy() / (1000 if column.endswith("_us") else 1)
            x = points["hosts"].to_numpy()
            slope, base = np.polyfit(x, y, 1)
            found.append(
                {
                    "system": system, "model": model, "figure": figure, "scenario": "cold-start",
                    "form": "a + b*hosts", "n": len(points), "a_ms": round(float(base), 3),
                    "b_ms": round(float(slope), 3), "r2": round(float(np.corrcoef(x, y)[0, 1] ** 2), 3),
                }
            )  # fmt: skip
    return found
