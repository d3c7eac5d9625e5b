"""Validators: what a parsed config value must satisfy beyond its type.

A validator returns a complaint about a value, and a text for the documentation. The ranges are Kafka 3.9.1's.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final, Protocol

from broker.config.types import Value


class Validator(Protocol):
    """What a config's value must satisfy beyond its type; Kafka's ConfigDef.Validator. ``complaint`` is None
    for a valid value, otherwise it says what was expected. ``describe`` is for the documentation.
    """

    def complaint(self, value: Value) -> str | None: ...

    def describe(self) -> str: ...


class Range:
    """A number from ``low`` to ``high``, both included, or one of ``also``."""

    __slots__ = ("also", "high", "low")

    def __init__(self, low: float, high: float | None = None, also: tuple[float, ...] = ()) -> None:
        self.low = low
        self.high = high
        self.also = also

    def complaint(self, value: Value) -> str | None:
        if not isinstance(value, int | float) or value in self.also:
            return None
        if value >= self.low and (self.high is None or value <= self.high):
            return None
        return f"a number {self.describe()} is expected"

    def describe(self) -> str:
        text = f"of at least {self.low}" if self.high is None else f"between {self.low} and {self.high}"
        return text + "".join(f" or {other}" for other in self.also)


class OneOf:
    """One of the given words."""

    __slots__ = ("ignore_case", "words")

    def __init__(self, words: tuple[str, ...], *, ignore_case: bool = False) -> None:
        self.words = words
        self.ignore_case = ignore_case

    def complaint(self, value: Value) -> str | None:
        text = value.lower() if self.ignore_case and isinstance(value, str) else value
        return None if text in self.words else f"{self.describe()} is expected"

    def describe(self) -> str:
        return "one of " + ", ".join(self.words)


class ListOf:
    """A list whose items are all among the given words."""

    __slots__ = ("empty", "words")

    def __init__(self, words: tuple[str, ...], *, empty: bool = False) -> None:
        self.words = words
        self.empty = empty

    def complaint(self, value: Value) -> str | None:
        items = value if isinstance(value, tuple) else ()
        good = all(item in self.words for item in items) and (self.empty or items)
        return None if good else f"a {self.describe()} is expected"

    def describe(self) -> str:
        return "list of " + ", ".join(self.words)


class Pattern:
    """A string that matches a pattern, which ``text`` describes. Every item of a list must match."""

    __slots__ = ("_match", "text")

    def __init__(self, pattern: str, text: str) -> None:
        self._match = pattern
        self.text = text

    def complaint(self, value: Value) -> str | None:
        items = value if isinstance(value, tuple) else (value,)
        good = all(isinstance(item, str) and re.fullmatch(self._match, item) for item in items)
        return None if good else f"{self.text} is expected"

    def describe(self) -> str:
        return self.text


class ThrottledReplicas:
    """Kafka's list of throttled replicas: empty, ``*`` alone, or ``partition:broker`` pairs."""

    __slots__ = ()

    def complaint(self, value: Value) -> str | None:
        items = value if isinstance(value, tuple) else ()
        good = items == ("*",) or all(re.fullmatch(r"\d+:\d+", item) for item in items)
        return None if good else f"{self.describe()} is expected"

    def describe(self) -> str:
        return "* or a list of partition:broker"


@cache
def at_least(low: float) -> Range:
    return Range(low)


@cache
def between(low: float, high: float) -> Range:
    return Range(low, high)


@cache
def one_of(*words: str, ignore_case: bool = False) -> OneOf:
    return OneOf(words, ignore_case=ignore_case)


@cache
def list_of(*words: str, empty: bool = False) -> ListOf:
    return ListOf(words, empty=empty)


GZIP_LEVEL: Final = Range(1, 9, also=(-1,))
NON_EMPTY: Final = Pattern(r"(?s).+", "a text that is not empty")
VERSION: Final = Pattern(r"\d+\.\d+(\.\d+)?(-IV\d+)?", "a Kafka version such as 3.9 or 3.9-IV0")
# As in Kafka, what follows the release is not looked at.
MESSAGE_FORMAT: Final = Pattern(
    r"(0\.(8\.[0-2]|9\.0|10\.[0-2]|11\.0)|1\.[01]|2\.[0-8]|3\.\d|4\.0)(-IV\d)?(\..*)?",
    "a Kafka version from 0.8.0 to 4.0",
)
THROTTLED_REPLICAS: Final = ThrottledReplicas()
