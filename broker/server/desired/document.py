"""The topics and dynamic configs that a cluster is to have: reads and checks the JSON document. Pure.

`plan` compares it with what there is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from broker.config.broker_config import check_dynamic
from broker.config.key import Key
from broker.config.keys import BROKER_KEYS, DYNAMIC_ONLY_KEYS, TOPIC_KEYS
from broker.config.listener_keys import own_key
from broker.config.problems import did_you_mean
from broker.config.topic_config import check_topic_configs
from broker.config.topic_name import topic_name_problem

CLUSTER: Final = ""
"""The name of the cluster-wide defaults, as in requests; ``<default>`` in the document."""
_DEFAULT: Final = "<default>"
_PARTS: Final[Mapping[str, type]] = {"topics": list, "defaults": dict, "brokers": list, "delete": list}
_TOPIC: Final = ("name", "partitions", "replication_factor", "configs", "state")
_DEFAULTS: Final = ("partitions", "replication_factor", "configs")
_BROKER: Final = ("broker", "configs")
_MOST: Final = {"partitions": (1 << 31) - 1, "replication_factor": (1 << 15) - 1}

Configs = Mapping[str, str | None]
"""Values as a request has them; None for a config that is not to be set."""


class DocumentError(Exception):
    """What is wrong with the document, all of it, and where."""


@dataclass(frozen=True, slots=True)
class WantedTopic:
    """A listed topic. Without a number of partitions or replicas, the brokers' default applies when it is created, and
    what there is stays.
    """

    name: str
    is_absent: bool = False
    partitions: int | None = None
    replication_factor: int | None = None
    configs: Configs = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The document. ``brokers`` has dynamic configs by broker id, or :data:`CLUSTER`. ``may_delete`` names the absent
    topics that may be deleted.
    """

    topics: tuple[WantedTopic, ...] = ()
    brokers: Mapping[str, Configs] = field(default_factory=dict)
    may_delete: frozenset[str] = frozenset()


def key_of(kind: str, name: str) -> Key | None:
    """The key of a config of a ``topic`` or ``broker``."""
    if kind == "topic":
        return TOPIC_KEYS.get(name)
    return BROKER_KEYS.get(name) or DYNAMIC_ONLY_KEYS.get(name) or own_key(name)


def read_document(text: str) -> Wanted:
    """Raises :class:`DocumentError` with everything that is wrong."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DocumentError("the standard input is no JSON") from error
    if not isinstance(document, dict) or not document.keys() <= _PARTS.keys():
        raise DocumentError(f"the document must be an object of {', '.join(_PARTS)}")
    found = {part: kind() if document.get(part) is None else document[part] for part, kind in _PARTS.items()}
    problems = [
        f"{part} must be {'a list' if kind is list else 'an object'}"
        for part, kind in _PARTS.items()
        if not isinstance(found[part], kind)
    ]
    problems = problems or [*_problems(found)]
    if problems:
        raise DocumentError("; ".join(problems))
    topics = tuple(_topic(row, found["defaults"]) for row in found["topics"])
    brokers = {_broker_name(row): _texts(row.get("configs")) for row in found["brokers"]}
    return Wanted(topics, brokers, frozenset(found["delete"]))


def _topic(row: Mapping[str, Any], defaults: Mapping[str, Any]) -> WantedTopic:
    usual = {} if row.get("state") == "absent" else defaults
    return WantedTopic(
        row["name"],
        row.get("state") == "absent",
        _number(row.get("partitions", usual.get("partitions"))),
        _number(row.get("replication_factor", usual.get("replication_factor"))),
        {**_texts(usual.get("configs")), **_texts(row.get("configs"))},
    )


def _number(value: Any) -> int | None:
    """A number, which a template may have made a text."""
    if isinstance(value, str) and value.isdecimal():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _broker_name(row: Mapping[str, Any]) -> str:
    name = str(row.get("broker", _DEFAULT))
    return CLUSTER if name == _DEFAULT else name


def _texts(configs: Mapping[str, Any] | None) -> dict[str, str | None]:
    return {name: None if value is None else _text(value) for name, value in (configs or {}).items()}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(map(_text, value)) if isinstance(value, list) else str(value)


# -- what is wrong


def _problems(found: Mapping[str, Any]) -> Iterator[str]:
    yield from _row_problems("defaults", found["defaults"], _DEFAULTS, "topic")
    seen: set[str] = set()
    absent: set[str] = set()
    for number, row in enumerate(found["topics"], 1):
        place = f"topics, entry {number}"
        if not isinstance(row, dict) or not isinstance(row.get("name"), str):
            yield f"{place}: name is missing"
            continue
        name = row["name"]
        if (wrong := topic_name_problem(name)) is not None:
            yield f"{place}: {wrong}"
        if name in seen:
            yield f"{place}: {name} is listed twice"
        seen.add(name)
        if row.get("state", "present") not in ("present", "absent"):
            yield f"{place}: state is {row['state']!r}, neither present nor absent"
        if row.get("state") == "absent":
            absent.add(name)
        yield from _row_problems(f"{place} ({name})", row, _TOPIC, "topic")
    brokers: set[str] = set()
    for number, row in enumerate(found["brokers"], 1):
        place = f"brokers, entry {number}"
        if not isinstance(row, dict):
            yield f"{place} must be an object of {', '.join(_BROKER)}"
            continue
        name = _broker_name(row)
        if name != CLUSTER and not name.isdecimal():
            yield f"{place}: broker is {name!r}, neither an id nor {_DEFAULT}"
        if name in brokers:
            yield f"{place}: {name or _DEFAULT} is listed twice"
        brokers.add(name)
        yield from _row_problems(place, row, _BROKER, "broker")
    for name in found["delete"]:
        if not isinstance(name, str) or name not in absent:
            yield f"delete: {name!r} is not listed in topics with state: absent"


def _row_problems(place: str, row: Mapping[str, Any], known: tuple[str, ...], kind: str) -> Iterator[str]:
    for key in row:
        if key not in known:
            yield f"{place}: {key} is unknown.{did_you_mean(str(key), known) or ' Known: ' + ', '.join(known)}"
    for key, most in _MOST.items():
        value = row.get(key)
        number = _number(value)
        if value is not None and (number is None or not 0 < number <= most):
            yield f"{place}: {key} is {value!r}, no number of at least 1"
    configs = row.get("configs")
    if configs is not None and not isinstance(configs, dict):
        yield f"{place}: configs must be values by config"
        return
    if any(isinstance(value, dict) for value in (configs or {}).values()):
        yield f"{place}: a config's value is a text, a number, a list or null"
        return
    yield from (f"{place}: {problem}" for problem in _config_problems(kind, _texts(configs)))


def _config_problems(kind: str, configs: Configs) -> Iterator[str]:
    for name in configs:
        key = key_of(kind, name)
        if key is not None and key.sensitive:
            yield f"{name}: is a password, which nobody can compare. Set it by kafka-configs.sh, or in the file"
            return
    given = {name: value for name, value in configs.items() if value is not None}
    check = check_topic_configs if kind == "topic" else check_dynamic
    yield from (f"{problem.key}: {problem.message}" for problem in check(given)[1])
    for name in configs.keys() - given.keys():
        if key_of(kind, name) is None:
            yield f"{name}: is no {kind} config"
