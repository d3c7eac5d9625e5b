"""Puts the page together: passes all its content, as plain values, to the template."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markupsafe import Markup, escape

from compare.figures import Comparison
from compare.recorded import MODELS
from compare.report.answer import in_short
from compare.report.charts.style import Picture
from compare.report.conclusions import of_all, of_system
from compare.report.faults import faults_of
from compare.report.inputs import Inputs
from compare.report.missing import not_measured
from compare.report.pictures import draw_all, timelines
from compare.report.verdicts import COLD_START, LEAST_ROUNDS
from compare.report.wording import (
    SYSTEMS,
    between,
    capital,
    count,
    duration,
    percent,
    simulated_way,
    way,
    with_interval,
)
from compare.simulation.assumptions import assumptions
from compare.simulation.study import Study

PAGE_FILE, SUMMARY_FILE = "report.html", "summary.md"
_HERE = Path(__file__).parent


def write_report(inputs: Inputs, study: Study, directory: Path) -> Path:
    """Writes the page, its pictures and a Markdown summary into the directory, which is created; returns the
    page's path.
    """
    directory.mkdir(parents=True, exist_ok=True)
    shown, folded = timelines(inputs.runs, directory)
    pictures: dict[str, Picture | None] = {"faults": None, "simulated": None}
    pictures |= draw_all(inputs.comparison, study, float(inputs.manifest.get("outage_s") or 0), directory)
    told = {
        "pictures": pictures,
        "systems": [_system(inputs.comparison, system, shown) for system in inputs.comparison.systems],
        **_told(inputs, study),
    }
    environment = _environment()
    page = environment.get_template("page.html.j2")
    path = directory / PAGE_FILE
    path.write_text(
        page.render(
            css=Markup((_HERE / "page.css").read_text(encoding="utf-8")),  # noqa: S704 - our own file
            drawings={name: _drawing(name) for name in ("base_station", "landline")},
            more_timelines=folded,
            **told,
        ),
        encoding="utf-8",
    )
    summary = environment.get_template("summary.md.j2").render(told)
    (directory / SUMMARY_FILE).write_text(summary, encoding="utf-8")
    return path


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=select_autoescape(["html.j2"]),
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    environment.filters["interval"] = _set_apart
    return environment


def _told(inputs: Inputs, study: Study) -> dict[str, Any]:
    """All content that is neither a picture nor about a single system."""
    return {
        "answer": in_short(inputs.comparison),
        "patience_s": inputs.manifest.get("patience_s"),
        "least_rounds": LEAST_ROUNDS,
        "models": [{"name": model, "way": way(model)} for model in MODELS],
        "together": of_all(inputs.comparison, study),
        "steps": inputs.comparison.steps,
        "checks": _checks(study),
        "disturbed": _disturbed(study),
        "assumptions": assumptions(study)
        if study.measured
        else ["Nothing: there was nothing to simulate from."],
        "missing": not_measured(inputs.comparison),
        "facts": inputs.facts(),
    }


def _set_apart(text: str) -> Markup:
    """A figure whose interval, in parentheses after it, is never broken across lines."""
    before, parenthesis, rest = text.partition(" (")
    inside, _, after = rest.partition(")")
    if not parenthesis:
        return escape(text)
    return Markup('{} <span class="interval">({})</span>{}').format(before, inside, after)


def _drawing(name: str) -> Markup:
    return Markup((_HERE / "drawings" / f"{name}.svg").read_text(encoding="utf-8"))  # noqa: S704 - our own file


def _system(comparison: Comparison, system: str, shown: list[Any]) -> dict[str, Any]:
    return {
        "name": SYSTEMS.get(system, capital(system)),
        "points": of_system(comparison, system),
        "timelines": [each for each in shown if each.system == system],
        "cold": _cold(comparison, system),
        "faults": faults_of(comparison, system),
    }


def _cold(comparison: Comparison, system: str) -> list[dict[str, str]]:
    groups = [group for group in comparison.groups if (group.system, group.scenario) == (system, COLD_START)]
    rows = []
    for group in sorted(groups, key=lambda group: (group.hosts, MODELS.index(group.model))):
        figures = {name: figure for name, figure in group.figures.items() if figure.rounds}
        times = {
            key: with_interval(figures[name]) if name in figures else "not measured"
            for key, name in (
                ("first_ready", "first_ready_ms"),
                ("all_ready", "all_ready_ms"),
                ("cpu", "cpu_ms"),
            )
        }
        efforts = [group.median(name) for name in ("commands", "connections")]
        effort = " / ".join("?" if effort is None else count(effort) for effort in efforts)
        named = {"model": group.model, "way": way(group.model), "hosts": str(group.hosts)}
        rows.append({**named, **times, "effort": effort, "rounds": str(group.rounds)})
    return rows


def _checks(study: Study) -> list[dict[str, str]]:
    return [
        {
            "model": check.model,
            "start": f"{SYSTEMS.get(check.system, check.system)} {way(check.model)}",
            "hosts": str(check.hosts),
            "source": check.source,
            "measured": duration(check.measured_ms),
            "simulated": duration(check.simulated_ms),
            "error": percent(check.error, "+"),
            "inside": f"{check.inside} of {check.rounds}",
        }
        for check in study.checks
    ]


def _disturbed(study: Study) -> list[dict[str, Any]]:
    return [
        {
            "model": model,
            "start": f"{study.reach[system]:,} {SYSTEMS.get(system, system)} {simulated_way(model, None)}",
            "rows": [
                {
                    "what": capital(row.what),
                    "time": between(row.low_ms, row.high_ms),
                    "left_out": f"{row.left_out:,.0f}",
                    "connections": f"{row.connections:,.0f}",
                }
                for row in rows
            ],
        }
        for (system, model), rows in groupby(study.disturbed, key=lambda row: (row.system, row.model))
    ]
