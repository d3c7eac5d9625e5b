r"""The regular expressions with which members subscribe to topics: the syntax of RE2, matched in linear time. Pure.

Python's own would take exponential time for some expressions, and clients choose them. The whole name of a topic must
match. Names of topics are ASCII, so a class is a set of the characters that occur in them.

Known are: literals, ``.``, classes with ranges and ``[:alpha:]``, ``\d \w \s`` and their opposites, ``\Q..\E``,
``|``, groups with and without names, ``* + ?`` and counts, also lazy ones, ``^ $ \A \z \b \B``, and the flags ``i``,
``s``, ``m`` and ``U``. As in RE2 there are no look-arounds and no references to groups.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from broker.coordinator.group.consumer.pattern_parser import WORD, Code, InvalidPattern, Parser, write_code

__all__ = ["InvalidPattern", "TopicPattern", "compiled"]
# Steps of one match of all topics: about a second.
_MOST_STEPS: Final = 2_000_000
_MOST_KEPT: Final = 200_000
_LONGEST: Final = 10_000
_END: Final = ""


class TopicPattern:
    """A regular expression, compiled to instructions. Immutable.

    A match follows all ways at once. A state is the set of places that may have been reached, with what stood before.
    """

    def __init__(self, text: str) -> None:
        """Raises :class:`InvalidPattern`."""
        if len(text) > _LONGEST:
            raise InvalidPattern("the expression is too large")
        code: list[Code] = []
        Parser(text).parse()(code)
        write_code(code, Code("match"))
        self._code = code

    def matching(self, names: Iterable[str]) -> frozenset[str]:
        """Those of the names that match. Raises :class:`InvalidPattern` if it takes too many steps."""
        run = _Run(self._code)
        return frozenset([name for name in names if run.matches(name)])


class _Run:
    """One match of many names. It keeps the ways from state to state that it has found."""

    def __init__(self, code: list[Code]) -> None:
        self._code = code
        self._known: dict[tuple[frozenset[int], str, str], tuple[frozenset[int], str, bool]] = {}
        self._kept = 0
        self._steps = 0

    def matches(self, name: str) -> bool:
        places, before, matched = frozenset({0}), "begin", False
        for char in (*name, _END):
            if not places:
                return False
            key = (places, before, char)
            known = self._known.get(key)
            if known is None:
                known = self._known[key] = self._advance(places, before, char)
                self._kept += 1 + len(known[0])
                if self._kept > _MOST_KEPT:
                    self._known.clear()
                    self._kept = 0
            places, before, matched = known
        return matched

    def _advance(self, places: frozenset[int], before: str, char: str) -> tuple[frozenset[int], str, bool]:
        """The places behind ``char``, and whether the end is reached."""
        seen: set[int] = set()
        after: set[int] = set()
        matched = False
        waiting = list(places)
        while waiting:
            place = waiting.pop()
            if place in seen:
                continue
            seen.add(place)
            kind, chars, one, other = self._code[place]
            if kind == "chars":
                if char in chars:
                    after.add(place + 1)
            elif kind == "fork":
                waiting += (one, other)
            elif kind == "match":
                matched = char == _END
            elif _holds(kind, before, char):
                waiting.append(place + 1)
        self._steps += len(seen)
        if self._steps > _MOST_STEPS:
            raise InvalidPattern("the expression takes too long")
        return frozenset(after), "word" if char in WORD else "other", matched


def _holds(condition: str, before: str, char: str) -> bool:
    if condition == "begin":
        return before == "begin"
    if condition == "end":
        return char == _END
    boundary = (before == "word") != (char != _END and char in WORD)
    return boundary == (condition == "boundary")


@lru_cache(maxsize=32)
def compiled(text: str) -> TopicPattern:
    """The pattern. Raises :class:`InvalidPattern`."""
    return TopicPattern(text)
