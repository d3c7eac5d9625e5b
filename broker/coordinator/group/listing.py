"""The groups of a coordinator, each asked under its own lock: for ListGroups, and for the lag."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from broker.coordinator.group import describe
from broker.coordinator.group.cell import GroupCell
from broker.coordinator.group.describe import CommittedOffsets, GroupOverview
from broker.coordinator.group.group import Group
from broker.coordinator.group.kinds import member_count
from broker.coordinator.group.messages import Moment


def overviews(cells: Iterable[GroupCell], states: Iterable[str], types: Iterable[str]) -> list[GroupOverview]:
    """The groups in one of the states and of one of the types. An empty filter matches all; case is ignored."""
    wanted_states = {state.lower() for state in states}
    wanted_types = {kind.lower() for kind in types}
    found = [cell.ask(lambda group, _now: describe.overview(group)) for cell in cells]
    return [
        one
        for one in found
        if (not wanted_states or one.state.lower() in wanted_states)
        and (not wanted_types or one.kind in wanted_types)
    ]


def committed_offsets(cells: list[GroupCell], most: int) -> tuple[list[CommittedOffsets], int]:
    """At most ``most`` groups and offsets together, and how many are left out."""
    cells.sort(key=lambda cell: (not member_count(cell.group), cell.group.group_id))
    found: list[CommittedOffsets] = []
    room, left_out = most, 0
    for cell in cells:
        if room <= 0:
            left_out += 1 + len(cell.group.offsets)
            continue
        copied = cell.ask(partial(_committed, most=room - 1))
        room -= 1 + len(copied.offsets)
        left_out += copied.left_out
        found.append(copied)
    return found, left_out


def _committed(group: Group, _now: Moment, most: int) -> CommittedOffsets:
    return describe.committed_offsets(group, most)
