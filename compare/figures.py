"""The content of comparison.json, typed: each group's figures with their spread, the steps, the fitted lines.

Times are in milliseconds. A figure that was not measured is absent; one that never occurred has ``n`` 0 and
no median.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from compare.recorded import Unreadable, read_json

SCHEMA_VERSION = 1
"""The schema of comparison.json; events have their own."""
_Kind = TypeVar("_Kind")


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure over a group's rounds. ``ci_low`` and ``ci_high``: the median's 95 % interval."""

    n: int
    never: int
    median: float | None
    least: float | None
    most: float | None
    ci_low: float | None
    ci_high: float | None
    values: tuple[float, ...]

    @property
    def rounds(self) -> int:
        """The number of rounds in which it was measured."""
        return self.n + self.never

    @property
    def interval(self) -> tuple[float, float] | None:
        """The median's 95 % interval, if there is one."""
        return None if self.ci_low is None or self.ci_high is None else (self.ci_low, self.ci_high)


@dataclass(frozen=True, slots=True)
class Group:
    """All rounds of one system, model and scenario on one number of hosts."""

    system: str
    model: str
    scenario: str
    hosts: int
    rounds: int
    figures: Mapping[str, Figure]
    person_acted: int
    actions: Mapping[str, int]

    def median(self, figure: str) -> float | None:
        """The figure's median, if it was measured and ever occurred."""
        found = self.figures.get(figure)
        return found.median if found else None


@dataclass(frozen=True, slots=True)
class StepShare:
    """The time of one step of cold starts, and its share of all steps of its role and model; None: of
    the whole.
    """

    role: str
    model: str
    system: str
    hosts: int
    step: str
    n: int
    median_ms: float
    p25_ms: float
    p75_ms: float
    share: float | None


@dataclass(frozen=True, slots=True)
class Fit:
    """A line through the ``n`` rounds' values: ``a_ms + b_ms * hosts``."""

    system: str
    model: str
    figure: str
    scenario: str
    a_ms: float
    b_ms: float
    r2: float
    n: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """The content of comparison.json."""

    comparison_id: str
    runs: int
    groups: tuple[Group, ...]
    steps: tuple[StepShare, ...]
    fits: tuple[Fit, ...]
    inputs: Mapping[str, int | None]

    def find(self, system: str, model: str, scenario: str, hosts: int | None = None) -> Group | None:
        """The matching group; without ``hosts``, the one with the most hosts."""
        found = [
            group
            for group in self.groups
            if (group.system, group.model, group.scenario) == (system, model, scenario)
            and hosts in {None, group.hosts}
        ]
        return max(found, key=lambda group: group.hosts, default=None)

    @property
    def systems(self) -> list[str]:
        """The names of the systems, Landline first."""
        return sorted({group.system for group in self.groups}, key=lambda name: (name != "landline", name))


def read_comparison(path: Path) -> Comparison:
    """Reads a comparison.json. Raises ``Unreadable``."""
    content = read_json(path)
    try:
        return comparison_of(content)
    except (KeyError, TypeError, ValueError) as error:
        raise Unreadable(f"{path}: not a comparison: {error!r}") from error


def comparison_of(content: Mapping[str, Any]) -> Comparison:
    """Parses a JSON object. Raises KeyError, TypeError or ValueError."""
    if content["schema"] != SCHEMA_VERSION:
        raise ValueError(f"schema {content['schema']}; this reads schema {SCHEMA_VERSION} only")
    return Comparison(
        comparison_id=content["comparison_id"],
        runs=content["runs"],
        groups=tuple(_group(each) for each in content["groups"]),
        steps=tuple(_known(StepShare, each) for each in content["steps"]),
        fits=tuple(_known(Fit, each) for each in content["fits"]),
        inputs=content.get("inputs", {}),
    )


def _group(content: Mapping[str, Any]) -> Group:
    figures = {name: _figure(figure) for name, figure in content["figures"].items()}
    return _known(Group, {**content, "figures": figures})


def _figure(content: Mapping[str, Any]) -> Figure:
    values = tuple(value for value in content["values"] if value is not None)
    return _known(Figure, {**content, "least": content["min"], "most": content["max"], "values": values})


def _known(kind: type[_Kind], content: Mapping[str, Any]) -> _Kind:
    """Builds ``kind`` from its own fields in ``content``: a later writer may add others."""
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: content[name] for name in names})
