"""The wording of the page: names of systems, models and scenarios, and the format of figures."""

from __future__ import annotations

from math import isfinite
from typing import Protocol

from compare.figures import Figure


class Band(Protocol):
    """A range with a lower and an upper end."""

    @property
    def low_ms(self) -> float: ...
    @property
    def high_ms(self) -> float: ...


SYSTEMS = {"landline": "Landline brokers", "spark": "Spark workers"}
MODELS = {
    "independent": "by itself",
    "push-parallel": "pushed in parallel",
    "push-sequential": "pushed in turn",
}
SCENARIOS = {
    "cold-start": "cold start of all",
    "slow-host": "a slow host",
    "dead-host": "a host dead at the start",
    "crash": "a killed process",
    "reboot": "a rebooted host",
    "master-dead-before": "a master dead before the start",
    "master-dead-during": "a master dying during the start",
    "master-dead-after": "a master dying after the start",
    "ssh-refused": "a host refusing ssh",
    "host-added": "an added host",
}
FIGURES = {
    "first_ready_ms": "until the first serves",
    "all_ready_ms": "until all serve",
    "recovered_ms": "from the fault until served again",
    "commands": "commands of the launcher",
    "connections": "connections of the launcher",
    "cpu_ms": "processor time of all hosts",
}


def scenario(name: str) -> str:
    """A scenario's description; its own name if this page does not know it."""
    return SCENARIOS.get(name, name)


def scenario_order(name: str) -> tuple[int, str]:
    """The sort key of scenarios: in the order of the list above, unknown ones last."""
    known = list(SCENARIOS)
    return (known.index(name) if name in SCENARIOS else len(known)), name


def way(model: str) -> str:
    """A model's description."""
    return MODELS[model]


def simulated_way(model: str, lanes: int | None) -> str:
    """A model with its number of simultaneous pushes: ``pushed 32 at a time``."""
    if model == "push-parallel":
        return f"pushed {lanes} at a time" if lanes else "pushed all at once"
    return MODELS[model]


def duration(milliseconds: float) -> str:
    """Three digits, or two units: ``48 ms``, ``0.87 s``, ``12.3 s``, ``2 min 10 s``, ``1 h 06 min``."""
    if not isfinite(milliseconds):
        return "never"
    if abs(milliseconds) < 99.5:
        return f"{milliseconds:.0f} ms"
    seconds = milliseconds / 1000
    if abs(seconds) < 9.995:
        return f"{seconds:.2f} s"
    if abs(seconds) < 119.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min"


def with_interval(figure: Figure) -> str:
    """The median with its interval: ``0.87 s (0.85 to 0.90)``; and how often it never occurred."""
    if figure.median is None:
        return f"never (in {figure.rounds} rounds)" if figure.rounds else "not measured"
    text = duration(figure.median)
    if figure.interval and figure.n > 1:
        low, high = (duration(edge) for edge in figure.interval)
        text += f" ({low.removesuffix(_unit(high))} to {high.removesuffix(_unit(text))})"
    return text + (f", never in {figure.never} of {figure.rounds}" if figure.never else "")


def between(low_ms: float, high_ms: float) -> str:
    """Two times as a band: ``12.3 s to 40.1 s``."""
    return f"{duration(low_ms)} to {duration(high_ms)}"


def band(point: Band) -> str:
    """A simulated time as its band."""
    return between(point.low_ms, point.high_ms)


def count(number: float) -> str:
    """A count, which may end in a half if it is a median."""
    return f"{number:,.0f}" if number == int(number) else f"{number:,.1f}"


def counted(number: float, noun: str) -> str:
    """``1 command``, ``4 commands``, ``no commands``."""
    return f"{count(number) if number else 'no'} {noun}{'' if number == 1 else 's'}"


def percent(share: float, sign: str = "") -> str:
    """A share in whole per cent: ``34 %``; with ``sign`` "+" positive values have a sign."""
    whole = round(100 * share)
    return f"{whole:{sign if whole else ''}d} %"


def listed(parts: list[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}" if parts else ""


def capital(text: str) -> str:
    """The text with an upper-case first letter."""
    return text[:1].upper() + text[1:]


def _unit(text: str) -> str:
    """The unit that need not be repeated; none for a text of two units."""
    return "" if "min" in text else text[text.rindex(" ") :]
