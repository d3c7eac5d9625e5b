"""The replacement text of a Java regular expression: `$1` is a group, and a backslash quotes what follows."""

from __future__ import annotations

import re
from typing import Final

# \x is x, $n is group n.
_SPECIAL: Final = re.compile(r"\\(.)|\$(\d+)|(\$|\\)", re.DOTALL)


class Replacement:
    """What replaces the matches of a pattern with so many ``groups``. It is called with a match, as
    :func:`re.sub` does.

    A reference to a group that does not exist is a literal; of ``$12`` without that many groups, ``$1`` is the
    reference. Raises ValueError for a stray ``$`` or backslash.
    """

    def __init__(self, text: str, groups: int) -> None:
        parts: list[str | int] = []
        end = 0
        for match in _SPECIAL.finditer(text):
            parts.append(text[end : match.start()])
            end = match.end()
            escaped, digits, stray = match.groups()
            if stray:
                raise ValueError(f"{text!r} has a {stray} that is neither a group nor escaped")
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
        self._parts = tuple(part for part in parts if part != "")

    def __call__(self, match: re.Match[str]) -> str:
        return "".join(part if isinstance(part, str) else (match.group(part) or "") for part in self._parts)
