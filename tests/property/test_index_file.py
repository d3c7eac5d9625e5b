"""Indexes against a list of entries: any sequence of appends, removals, writes and look-ups."""

from __future__ import annotations

import tempfile
from bisect import bisect_right
from pathlib import Path
from struct import Struct

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from broker.log.segments.index_file import IndexFile

ENTRY = Struct(">ii")
MOST = 6_000


class IndexAgainstList(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.index = IndexFile(Path(self.directory.name) / "0.index", ENTRY, max_bytes=MOST * ENTRY.size)
        self.entries: list[tuple[int, int]] = []

    def teardown(self) -> None:
        self.directory.cleanup()

    @rule(count=st.integers(1, 1_500), step=st.integers(1, 5), far=st.integers(1, 9))
    def append(self, count: int, step: int, far: int) -> None:
        for _ in range(min(count, MOST - len(self.entries))):
            first, second = self.entries[-1] if self.entries else (0, 0)
            self.entries.append((first + step, second + far))
            self.index.append(*self.entries[-1])

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        left = data.draw(st.integers(0, len(self.entries)))
        self.index.truncate(left)
        del self.entries[left:]

    @rule()
    def reset(self) -> None:
        self.index.reset()
        self.entries.clear()

    @rule()
    def write(self) -> None:
        self.index.write_pending()

    @rule()
    def trim(self) -> None:
        self.index.trim()

    @rule(
        field=st.integers(0, 1), share=st.floats(-0.1, 1.1), near=st.lists(st.integers(-600, 600), max_size=6)
    )
    def look_up(self, field: int, share: float, near: list[int]) -> None:
        """Somewhere, and then in its neighbourhood, as a reader does."""
        target = int(share * self.entries[-1][field]) if self.entries else 0
        for each in (target, *(target + distance for distance in near)):
            found = bisect_right(self.entries, each, key=lambda entry: entry[field])
            assert self.index.around(field, each) in {None, self.around(found)}
            assert self.index.search(field, each) == (found, self.entries[found - 1] if found else None)

    @rule(field=st.integers(0, 1), share=st.floats(0, 1))
    def look_up_again(self, field: int, share: float) -> None:
        """The same entry twice: the second time without the file."""
        if self.entries:
            number = int(share * (len(self.entries) - 1))
            self.index.search(field, self.entries[number][field])
            found = self.index.around(field, self.entries[number][field])
            may_end_a_block = number + 1 < len(self.entries)
            assert found == self.around(number + 1) or (found is None and may_end_a_block)

    def around(self, count: int) -> tuple[tuple[int, int] | None, ...]:
        return self.entry(count - 1), self.entry(count), self.entry(count + 1)

    def entry(self, number: int) -> tuple[int, int] | None:
        return self.entries[number] if 0 <= number < len(self.entries) else None

    @invariant()
    def has_as_many(self) -> None:
        assert len(self.index) == len(self.entries)


TestIndexAgainstList = IndexAgainstList.TestCase
