"""Which keys of a properties file a running broker takes up by a reload, and which need a restart. Pure.

A key is live if Kafka lets it change cluster-wide at run time (KIP-226), or if it is the same setting in
another unit, such as log.retention.hours: then it is the default of a topic config, which the file may set in
hours and a dynamic config in milliseconds only. `server.dynamic_config` carries out a reload.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from broker.config.broker_config import BrokerConfig
from broker.config.key import Mode, Use
from broker.config.keys import BROKER_KEYS
from broker.config.listener_keys import CONNECTIONS, LISTENER_PREFIX
from broker.config.topic_config import SYNONYMS
from broker.config.types import Value


def _live_names() -> frozenset[str]:
    # Those that Landline does not use need no restart either.
    alterable = {
        key.name
        for key in BROKER_KEYS.values()
        if key.mode is Mode.CLUSTER_WIDE and key.use is not Use.REFUSED and not key.restart
    }
    groups = [{synonym.key for synonym in group} for group in SYNONYMS.values()]
    scaled = {synonym.key for group in SYNONYMS.values() for synonym in group if synonym.factor > 1}
    return frozenset(alterable.union(*(group & scaled for group in groups if group & alterable)))


LIVE_KEYS: Final = _live_names()
"""Without those of single listeners; `plugins/module_utils/live_keys.py` has the same names."""


def is_live(name: str) -> bool:
    """Whether a reload takes up a changed value of this key."""
    if name.startswith(LISTENER_PREFIX):
        return name.removeprefix(LISTENER_PREFIX).partition(".")[2] in CONNECTIONS
    return name in LIVE_KEYS


class Differences(NamedTuple):
    """The names of keys whose texts differ between two files."""

    live: list[str]
    restart: list[str]


def differences(before: Mapping[str, str], after: Mapping[str, str]) -> Differences:
    """What differs between two files' properties, sorted."""
    names = sorted(name for name in before.keys() | after.keys() if _text(before, name) != _text(after, name))
    return Differences([n for n in names if is_live(n)], [n for n in names if not is_live(n)])


def reloaded(running: BrokerConfig, file: BrokerConfig) -> BrokerConfig:
    """The running configuration with the live keys of a changed file. Raises ConfigError if they contradict
    what else is in force.
    """
    kept = {name: value for name, value in running.static_values.items() if not is_live(name)}
    new = {name: value for name, value in file.static_values.items() if is_live(name)}
    return running.with_static({**kept, **new})


def differing_values(before: Mapping[str, Value], after: Mapping[str, Value]) -> list[str]:
    """The names of keys whose values differ, sorted."""
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def _text(texts: Mapping[str, str], name: str) -> str | None:
    text = texts.get(name)
    return None if text is None else text.strip()
