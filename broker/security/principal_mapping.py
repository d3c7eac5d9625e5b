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

_PART: Final = r"(?:\\.|[^\\/])*"
_RULE: Final = re.compile(rf"\s*(?:(DEFAULT)|RULE:({_PART})/({_PART})/([LU]?))?\s*(?:,|$)", re.DOTALL)
# What Java's replacement syntax treats specially: \x is x, $n is group n.
_SPECIAL: Final = re.compile(r"\\(.)|\$(\d+)|(\$|\\)", re.DOTALL)


class MappingError(Exception):
    """Invalid rules, or a name that no rule matches; the message says which."""


class _Rule(NamedTuple):
    """A rule; without a pattern, it is DEFAULT."""

    pattern: re.Pattern[str] | None = None
    replacement: tuple[str | int, ...] = ()
    case: str = ""

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        result = self.pattern.sub(self._replaced, name)
        if self.case == "L":
            return result.lower()
        return result.upper() if self.case == "U" else result

    def _replaced(self, match: re.Match[str]) -> str:
        return "".join(
            part if isinstance(part, str) else (match.group(part) or "") for part in self.replacement
        )


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
    return _Rule(compiled, _replacement(replacement, compiled.groups), case)


def _replacement(text: str, groups: int) -> tuple[str | int, ...]:
    """The literal parts and group numbers of a replacement. A reference to a group that does not exist is a
    literal; of ``$12`` without that many groups, ``$1`` is the reference.
    """
    parts: list[str | int] = []
    end = 0
    for match in _SPECIAL.finditer(text):
        parts.append(text[end : match.start()])
        end = match.end()
        escaped, digits, stray = match.groups()
        if stray:
            raise MappingError(f"{text!r} has a {stray} that is neither a group nor escaped")
        if escaped is not None:
            parts.append(escaped)
            continue
        used = next((size for size in range(len(digits), 0, -1) if int(digits[:size]) <= groups), 0)
        if used:
            parts.append(int(digits[:used]))
            parts.append(digits[used:])
        else:
            parts.append(f"${digits}")
    parts.append(text[end:])
    return tuple(part for part in parts if part != "")
