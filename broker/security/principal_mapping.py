r"""`ssl.principal.mapping.rules`: from a certificate's distinguished name to the name of a principal (KIP-371).

Rules are separated by commas, and the first one that matches the whole name applies. ``DEFAULT`` takes the
name as it is. ``RULE:pattern/replacement/`` replaces what the pattern matches; ``$1`` is its first group. An
``L`` or ``U`` behind the last slash makes the result lower or upper case. A slash inside a pattern is
written ``\/``. Kafka's SslPrincipalMapper. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from broker.utils.java_regex import Replacement

_PART: Final = r"(?:\\.|[^\\/])*"
_RULE: Final = re.compile(rf"\s*(?:(DEFAULT)|RULE:({_PART})/({_PART})/([LU]?))?\s*(?:,|$)", re.DOTALL)


class MappingError(Exception):
    """Invalid rules, or a name that no rule matches; the message says which."""


class _Rule(NamedTuple):
    """A rule; without a pattern, it is DEFAULT."""

    pattern: re.Pattern[str] | None = None
    replacement: Replacement | str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        result = self.pattern.sub(self.replacement, name)
        if self.case == "L":
            return result.lower()
        return result.upper() if self.case == "U" else result


class PrincipalMapping:
    """The rules of one listener. Raises :class:`MappingError` when they are invalid."""

    def __init__(self, rules: str) -> None:
        self._text = rules.strip()
        self._rules = _parse(self._text)

    def name_of(self, distinguished_name: str) -> str:
        """The principal's name. Raises MappingError when no rule matches."""
        for rule in self._rules:
            name = rule.apply(distinguished_name)
            if name is not None:
                return name
        raise MappingError(f"no rule of ssl.principal.mapping.rules matches {distinguished_name}")


def _parse(text: str) -> Sequence[_Rule]:
    rules = []
    at = 0
    while at < len(text):
        match = _RULE.match(text, at)
        if match is None or match.end() == at:
            raise MappingError(
                f"{text[at:]!r} is no rule: DEFAULT or RULE:pattern/replacement/ with L or U behind it is expected"
            )
        at = match.end()
        default, pattern, replacement, case = match.groups()
        if default:
            rules.append(_Rule())
        elif pattern is not None:
            rules.append(_rule(pattern, replacement, case))
    return rules


def _rule(pattern: str, replacement: str, case: str) -> _Rule:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise MappingError(f"{pattern!r} is no regular expression: {error}") from error
    try:
        return _Rule(compiled, Replacement(replacement, compiled.groups), case)
    except ValueError as error:
        raise MappingError(str(error)) from error
