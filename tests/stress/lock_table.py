"""The written order of the broker's locks: the table in docs/design.md."""

from __future__ import annotations

import re

from tests.stress.lock_sites import ROOT

_ROW = re.compile(r"^\| (\d+) \| `([\w.<>]+)` \| [^|]+ \| [^|]+ \|$", re.MULTILINE)


def written_order() -> dict[str, int]:
    """The number of each lock, by its name. Who holds one takes only those with higher numbers."""
    rows = _ROW.findall((ROOT / "docs/design.md").read_text())
    order = {name: int(number) for number, name in rows}
    if not order or len(order) != len(rows) or len(set(order.values())) != len(rows):
        raise ValueError("docs/design.md has no order of locks, or one that names a lock or a number twice")
    return order
