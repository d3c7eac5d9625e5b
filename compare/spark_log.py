"""Parses the lines of Spark's own log, which contain their time to the millisecond (roles/spark). Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime

from compare.steps import Line

_LINE = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}(?:Z|[+-]\d\d:\d\d)) [A-Z]+ \S+: (.*)")


def lines(texts: Iterable[str]) -> list[Line]:
    """The lines with a time; skips those of the launch script and of stack traces."""
    found = (_LINE.match(text) for text in texts)
    return [Line(_us(match[1]), match[2]) for match in found if match]


def _us(text: str) -> int:
    # In thousandths: a float of seconds since 1970 is not exact to the microsecond.
    return round(datetime.fromisoformat(text).timestamp() * 1000) * 1000
