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
#: Steps of one match of all topics: half a second, and some 30 MB for the ways that were found. A way that is known
#: already costs no step, so the number of topics hardly counts.
MOST_STEPS: Final = 300_000
_LONGEST: Final = 10_000
_END: Final = ""
_NOWHERE: Final = -1


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
    """One match of many names. It keeps the ways from state to state that it has found.

    States have numbers, so that a way that is known is found by a number and a character, however many places the
    state has.
    """

    def __init__(self, code: list[Code]) -> None:
        self._code = code
        self._numbers: dict[tuple[frozenset[int], str], int] = {}
        self._states: list[tuple[frozenset[int], str]] = []
        #: By state and character: the next state. By state and end: whether the name matches.
        self._ways: list[dict[str, int]] = []
        self._steps = 0
        self._number_of(frozenset({0}), "begin")

    def matches(self, name: str) -> bool:
        ways, state = self._ways, 0
        for char in name:
            known = ways[state].get(char)
            state = self._advance(state, char) if known is None else known
            if state == _NOWHERE:
                return False
        ends = ways[state].get(_END)
        return bool(self._advance(state, _END) if ends is None else ends)

    def _advance(self, state: int, char: str) -> int:
        """The state behind ``char``; at the end, 1 if the name matches."""
        places, before = self._states[state]
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
        if self._steps > MOST_STEPS:
            raise InvalidPattern("the expression takes too long")
        way = (
            int(matched)
            if char == _END
            else self._number_of(frozenset(after), "word" if char in WORD else "other")
        )
        self._ways[state][char] = way
        return way

    def _number_of(self, places: frozenset[int], before: str) -> int:
        if not places:
            return _NOWHERE
        number = self._numbers.setdefault((places, before), len(self._states))
        if number == len(self._states):
            self._states.append((places, before))
            self._ways.append({})
        return number


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
