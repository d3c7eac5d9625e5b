"""The master's push: the script that it runs, and the parsing of its output for each connection and
command. Pure.

First the members that others need (ZooKeeper, Spark's master), then those that serve: as ``start-all.sh``
starts the master and then the workers.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from compare.members import Member
from sparkctl.commands import BEGIN_MARK, BYTES_MARK, END_MARK, EXIT_MARK, OPEN_MARK, push_script
from sparkctl.inventory import Host

# The master's own daemon: a command without a connection.
_HERE = f"""here() {{
    echo "{BEGIN_MARK} $1 $EPOCHREALTIME"; echo "{OPEN_MARK} $1 $EPOCHREALTIME"
    bash -c "$2" </dev/null 2>&1 | sed "s/^/$1: /"
    set -- "$1" "${{PIPESTATUS[0]}}"
    echo "{END_MARK} $1 $EPOCHREALTIME"; echo "{EXIT_MARK} $1 $2"
}}"""


@dataclass(frozen=True, slots=True)
class Pushed:
    """One launch of one member. Times in microseconds since 1970; None: it did not get that far.

    ``bytes``: of its connection, both ways, as counted by ssh; -1: not reported by ssh.
    """

    member: Member
    began_us: int
    opened_us: int | None
    ended_us: int | None
    exit_code: int | None
    lines: tuple[str, ...]
    bytes: int = -1

    @property
    def connected(self) -> bool:
        """Whether it needed a connection."""
        return self.member.target is not None


def script(members: Sequence[Member], *, parallel: bool) -> str:
    """The bash script that runs on the master."""
    parts = ["LC_ALL=C", _HERE]
    for stage in ([m for m in members if not m.serves], [m for m in members if m.serves]):
        parts += [f"here {shlex.quote(m.name)} {shlex.quote(m.command)}" for m in stage if m.target is None]
        away = [(Host(m.name, m.address, m.target), m.command) for m in stage if m.target is not None]
        if away:
            parts.append(push_script(away, parallel=parallel, stamped=True))
    return "\n".join(parts)


def read(members: Iterable[Member], lines: Sequence[str]) -> list[Pushed]:
    """Each launch that began, from the script's lines. An incomplete last line, of a master that died,
    is ignored.
    """
    return [found for member in members if (found := _read_one(member, lines)) is not None]


def counted(launches: Iterable[Pushed]) -> tuple[int, int]:
    """The number of commands sent and of connections begun."""
    known = list(launches)
    return (
        sum(pushed.opened_us is not None for pushed in known),
        sum(pushed.connected for pushed in known),
    )


def _read_one(member: Member, lines: Sequence[str]) -> Pushed | None:
    marks: dict[str, str] = {}
    told = []
    for line in lines:
        words = line.split()
        if line.startswith("@") and len(words) == 3 and words[1] == member.name:
            marks[words[0]] = words[2]
        elif line.startswith(f"{member.name}: "):
            told.append(line)
    if BEGIN_MARK not in marks:
        return None
    code = marks.get(EXIT_MARK)
    return Pushed(
        member,
        _us(marks[BEGIN_MARK]),
        _us(marks[OPEN_MARK]) if OPEN_MARK in marks else None,
        _us(marks[END_MARK]) if END_MARK in marks else None,
        None if code is None else int(code),
        tuple(told),
        int(marks.get(BYTES_MARK, -1)) if member.target is not None else 0,
    )


def _us(stamp: str) -> int:
    seconds, _, fraction = stamp.partition(".")
    return int(seconds) * 1_000_000 + int(fraction)
