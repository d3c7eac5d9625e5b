"""Compares two answers field by field, and holds what differs against the table of intended differences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from broker.protocol.api_keys import ApiKey
from tests.differential.plain import Plain

ABSENT: Final = "(absent)"
ANYTHING: Final = "*"
# The field that tells the rows of an array apart: the first of these that a row has.
_LABELS: Final = (
    "resource_name",
    "name",
    "topic",
    "topic_name",
    "group_id",
    "transactional_id",
    "key",
    "api_key",
    "user",
    "mechanism",
    "partition_index",
    "partition",
    "index",
    "node_id",
    "broker_id",
    "entity_type",
    "log_dir",
    "base_offset",
    "member_id",
    "producer_id",
    "topic_id",
)
_UNORDERED: Final = frozenset({"partitions", "isr_nodes"})


class Finding(NamedTuple):
    """A field that the two brokers answer differently. ``where`` is the script and the step; ``path`` leads to the
    field, with the names of rows between: ``topics/t/partitions/0/error_code``. Without a ``key`` it is of files.
    """

    where: str
    key: ApiKey | None
    version: int
    path: str
    kafka: str
    landline: str

    def __str__(self) -> str:
        kind = "files" if self.key is None else f"{self.key.name.lower()}-{self.version}"
        return f"{self.where} ({kind}) {self.path}: Kafka {self.kafka}, Landline {self.landline}"


@dataclass(frozen=True, slots=True)
class Intended:
    """A difference that is meant. ``where``, ``path`` and the two values are patterns with ``*``; no ``keys`` are all
    APIs, and no ``versions`` all versions. One that depends on time, and so may not be seen, is ``sometimes``.
    """

    keys: Sequence[ApiKey]
    path: str
    kafka: str
    landline: str
    why: str
    where: str = ANYTHING
    versions: Sequence[int] = ()
    sometimes: bool = False

    def explains(self, finding: Finding) -> bool:
        """Whether the finding is this difference."""
        return (
            (not self.keys or finding.key in self.keys)
            and (not self.versions or finding.version in self.versions)
            and fnmatchcase(finding.where, self.where)
            and fnmatchcase(finding.path, self.path)
            and fnmatchcase(finding.kafka, self.kafka)
            and fnmatchcase(finding.landline, self.landline)
        )


@dataclass(slots=True)
class Ledger:
    """The table during a run, and which of its entries have been seen."""

    table: Sequence[Intended]
    seen: set[int] = field(default_factory=set)

    def unexplained(self, findings: Sequence[Finding]) -> list[Finding]:
        """The findings that no entry explains. All entries that explain one have been seen."""
        left = []
        for finding in findings:
            entries = {number for number, each in enumerate(self.table) if each.explains(finding)}
            self.seen |= entries
            if not entries:
                left.append(finding)
        return left

    def unseen(self) -> list[Intended]:
        """The entries that no finding needed: the brokers agree there, or nothing asks them."""
        return [
            each for number, each in enumerate(self.table) if number not in self.seen and not each.sometimes
        ]


def compare(where: str, key: ApiKey | None, version: int, kafka: Plain, landline: Plain) -> list[Finding]:
    """The differences of two normalised answers."""
    theirs, ours = dict(paths(kafka)), dict(paths(landline))
    return [
        Finding(where, key, version, path, theirs.get(path, ABSENT), ours.get(path, ABSENT))
        for path in sorted(theirs.keys() | ours.keys())
        if theirs.get(path, ABSENT) != ours.get(path, ABSENT)
    ]


def paths(answer: Plain, where: str = "") -> Iterator[tuple[str, str]]:
    """Each field of an answer with its path. Rows of arrays are called by what tells them apart, or by their place."""
    if isinstance(answer, dict):
        for name, value in answer.items():
            own = value
            if name in _UNORDERED and isinstance(value, list) and not any(isinstance(v, dict) for v in value):
                own = sorted(value)
            yield from paths(own, f"{where}/{name}" if where else name)
    elif isinstance(answer, list) and any(isinstance(each, dict) for each in answer):
        for name, row in zip(_labels(answer), answer, strict=True):
            yield from paths(row, f"{where}/{name}")
    else:
        yield where, str(answer)


def _labels(rows: Sequence[Plain]) -> list[str]:
    found: list[str] = []
    for place, row in enumerate(rows):
        name = _entity(row) or next(
            (str(row[each]) for each in _LABELS if row.get(each) is not None), str(place)
        )
        again = found.count(name) + sum(each.startswith(f"{name} #") for each in found)
        found.append(f"{name} #{again}" if again else name)
    return found


def _entity(row: Plain) -> str:
    """The entity of a quota: ``client-id=c,user=u``."""
    parts = row.get("entity")
    return ",".join(sorted(f"{each['entity_type']}={each['entity_name']}" for each in parts)) if parts else ""
