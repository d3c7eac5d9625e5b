# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""What a deploy would write into files, compared with what they have: as a diff without secrets, and by digest.

A digest is of all that a file has, passwords too. It has a salt and takes a while to work out, so that nobody finds a
password by trying.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Callable, Mapping

from ansible_collections.landline.cluster.plugins.module_utils.masking import (
    MASKED,
    Masker,
    is_secret,
    masked_properties,
    secrets_of_properties,
)

CHANGED = "(masked, another one)"
# Of a file that is secret as a whole, the keys that the role writes itself.
_OWN = "LANDLINE_"


def digest_of(text: str, salt: str) -> str:
    """Returns a digest that tells two texts apart, and nothing of their content."""
    return hashlib.scrypt(text.encode(), salt=salt.encode(), n=2**12, r=8, p=1, dklen=16).hex()


def diff_of(path: str, before: str | None, after: str, secret: bool = False) -> list[str]:
    """Returns the lines that a deploy would take away (-) and add (+), without comments; empty if none. Of a file that
    is `secret`, all values may be, whatever their keys are called.
    """

    def hidden(key: str) -> bool:
        return not key.startswith(_OWN) if secret else is_secret(key)

    old, new = (_shown(text, hidden if secret else None) for text in (before or "", after))
    known = Masker({*secrets_of_properties(before or ""), *secrets_of_properties(after)})
    changed = {
        key
        for key, value in _values(after).items()
        if hidden(key) and _values(before or "").get(key, value) != value
    }
    rows = [line if line.partition("=")[0] not in changed else _marked(line) for line in map(known, new)]
    found = list(difflib.unified_diff(list(map(known, old)), rows, lineterm="", n=0))
    lines = [line for line in found[2:] if not line.startswith("@@")]
    return [f"{path}{' (new)' if before is None else ''}", *lines] if lines else []


def _shown(text: str, hidden: Callable[[str], bool] | None) -> list[str]:
    lines = [line for line in masked_properties(_without_comments(text)).splitlines() if line.strip()]
    if hidden is None:
        return lines
    rows = ((line, *line.partition("=")[:2]) for line in lines)
    return [(f"{key}={MASKED}" if hidden(key) else line) if sign else MASKED for line, key, sign in rows]


def _without_comments(text: str) -> str:
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))


def _marked(line: str) -> str:
    return line.replace(MASKED, CHANGED)


def _values(text: str) -> Mapping[str, str]:
    rows = (line.partition("=") for line in _without_comments(text).splitlines())
    return {key: value for key, sign, value in rows if sign}
