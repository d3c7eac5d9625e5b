"""Which steps lead from the topics and dynamic configs that there are to those that are listed. Pure.

What exists and is not listed stays: it is drift, which is shown. `admin` reads what there is, and takes the steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from broker.config.types import Value
from broker.server.desired.document import CLUSTER, Configs, Wanted, WantedTopic, key_of

_OWN = "landline."
"""Topics that begin so are the deployment's own, such as landline.journal."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic that exists: its number of partitions, the replication factors of its partitions, and its own configs,
    which are known of listed topics only.
    """

    name: str
    partitions: int
    replication_factors: frozenset[int]
    configs: Mapping[str, str] = field(default_factory=dict)
    is_internal: bool = False


@dataclass(frozen=True, slots=True)
class Existing:
    """What there is. ``brokers`` has the dynamic configs of all live brokers and of the cluster; passwords as None."""

    topics: Mapping[str, Topic]
    brokers: Mapping[str, Configs]


class CreateTopic(NamedTuple):
    """A topic to create."""

    topic: WantedTopic

    def words(self) -> list[str]:
        wanted = self.topic
        numbers = (
            "the brokers' number of partitions"
            if wanted.partitions is None
            else _partitions(wanted.partitions),
            "the brokers' number of replicas" if wanted.replication_factor is None else _replicas(wanted),
        )
        configs = (f"{name}={value}" for name, value in sorted(wanted.configs.items()) if value is not None)
        return [f"topic {wanted.name}: created with {', '.join((*numbers, *configs))}"]


class GrowTopic(NamedTuple):
    """A topic that gets more partitions."""

    name: str
    before: int
    after: int

    def words(self) -> list[str]:
        return [f"topic {self.name}: partitions {self.before} -> {self.after}"]


class AlterEntity(NamedTuple):
    """Configs to change, of a ``topic`` or ``broker``: before and after, None where there is none."""

    kind: str
    name: str
    changes: Mapping[str, tuple[str | None, str | None]]

    def words(self) -> list[str]:
        whose = _title(self.kind, self.name)
        return [f"{whose}: {key} {_shown(old)} -> {_shown(new)}" for key, (old, new) in self.changes.items()]


class DeleteTopic(NamedTuple):
    """A topic to delete."""

    topic: Topic

    def words(self) -> list[str]:
        return [f"topic {self.topic.name}: deleted, with {_partitions(self.topic.partitions)}"]


Step = CreateTopic | GrowTopic | AlterEntity | DeleteTopic


class Drift(NamedTuple):
    """Something that is not as listed and stays so: whose, what there is, what is listed, what can be done."""

    where: str
    found: str
    listed: str
    do: str = ""


class DesiredPlan(NamedTuple):
    """The steps, the drift that stays, and why nothing may be done, if so."""

    steps: list[Step]
    drift: list[Drift]
    refused: list[str]


def make_plan(wanted: Wanted, existing: Existing) -> DesiredPlan:
    """Compares the document with what there is."""
    plan = DesiredPlan([], [], [])
    for topic in wanted.topics:
        found = existing.topics.get(topic.name)
        if topic.is_absent:
            _absent(topic.name, found, wanted.may_delete, plan)
        elif found is None:
            plan.steps.append(CreateTopic(topic))
        else:
            _present(topic, found, plan)
    if wanted.topics:
        plan.drift.extend(_unlisted({topic.name for topic in wanted.topics}, existing.topics.values()))
    plan.refused.extend(
        f"broker {name} does not run, so its dynamic configs cannot be compared"
        for name in sorted(wanted.brokers.keys() - existing.brokers.keys())
    )
    for name, own in sorted(existing.brokers.items()):
        listed = wanted.brokers.get(name, {})
        _compare("broker", name, own, listed, plan)
    return plan


def _absent(name: str, found: Topic | None, may_delete: Iterable[str], plan: DesiredPlan) -> None:
    if found is None:
        return
    if name in may_delete:
        plan.steps.append(DeleteTopic(found))
    else:
        do = f"delete it by naming it a second time: -e landline_topics_delete={name}"
        plan.drift.append(Drift(f"topic {name}", _partitions(found.partitions), "absent", do))


def _present(topic: WantedTopic, found: Topic, plan: DesiredPlan) -> None:
    count = topic.partitions
    if count is not None and count < found.partitions:
        plan.refused.append(
            f"topic {topic.name} has {_partitions(found.partitions)}, and {count} are listed: partitions are never "
            "taken away. List what there is, or create another topic"
        )
    elif count is not None and count > found.partitions:
        plan.steps.append(GrowTopic(topic.name, found.partitions, count))
    factor = topic.replication_factor
    if factor is not None and found.replication_factors != {factor}:
        plan.drift.append(
            Drift(
                f"topic {topic.name}: replication factor",
                ", ".join(map(str, sorted(found.replication_factors))),
                str(factor),
                'kafka-reassign-partitions.sh; docs/operations.md, "Move partitions"',
            )
        )
    _compare("topic", topic.name, found.configs, topic.configs, plan)


def _compare(kind: str, name: str, own: Configs, listed: Configs, plan: DesiredPlan) -> None:
    changes = {
        key: (own.get(key), value)
        for key, value in sorted(listed.items())
        if not _same(kind, key, own.get(key), value)
    }
    if changes:
        plan.steps.append(AlterEntity(kind, name, changes))
    for key in sorted(own.keys() - listed.keys()):
        value = own[key]
        shown = "set" if value is None else value
        plan.drift.append(Drift(f"{_title(kind, name)}: {key}", shown, "not listed", _unset(kind, name, key)))


def _unset(kind: str, name: str, key: str) -> str:
    return (
        f"list it, or remove it by {key}: null"
        if kind == "topic" or name == CLUSTER
        else (f"it overrides {key} of the broker's file; list it, or remove it by {key}: null")
    )


def _unlisted(listed: set[str], topics: Iterable[Topic]) -> Iterator[Drift]:
    for topic in sorted(topics, key=lambda topic: topic.name):
        if topic.name not in listed and not topic.is_internal and not topic.name.startswith(_OWN):
            factors = ", ".join(map(str, sorted(topic.replication_factors)))
            found = f"{_partitions(topic.partitions)}, replication factor {factors}"
            yield Drift(f"topic {topic.name}", found, "not listed", "list it, also with state: absent")


def _same(kind: str, key: str, one: str | None, other: str | None) -> bool:
    """Whether two values mean the same, such as 0.5 and 0.50."""
    if one is None or other is None:
        return one == other
    return _parsed(kind, key, one) == _parsed(kind, key, other)


def _parsed(kind: str, key: str, text: str) -> Value:
    row = key_of(kind, key)
    try:
        return text if row is None else row.parse(text)
    except ValueError:
        return text


def _title(kind: str, name: str) -> str:
    return "all brokers" if kind == "broker" and name == CLUSTER else f"{kind} {name}"


def _partitions(count: int) -> str:
    return f"{count} partition{'s' if count > 1 else ''}"


def _replicas(topic: WantedTopic) -> str:
    return f"replication factor {topic.replication_factor}"


def _shown(value: str | None) -> str:
    return "(not set)" if value is None else value or '""'


def table(drift: list[Drift]) -> list[str]:
    """The lines of a table; none without drift."""
    if not drift:
        return []
    rows = [("not as listed, and left so", "there is", "listed", "to change that"), *drift]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return [
        "  ".join(
            [*(cell.ljust(width) for cell, width in zip(row[:3], widths, strict=True)), row[3]]
        ).rstrip()
        for row in rows
    ]
