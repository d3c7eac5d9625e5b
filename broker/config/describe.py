"""Configs as DescribeConfigs returns them: value, source, synonyms, type. Pure.

Sources and the order of synonyms are those of KIP-226: this broker's dynamic config, the cluster's dynamic
default, the properties file, the built-in default. Passwords are never returned.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import IntEnum
from itertools import dropwhile
from typing import Final, NamedTuple

from broker.config.broker_config import BrokerConfig
from broker.config.key import Key
from broker.config.keys import BROKER_KEYS, DYNAMIC_ONLY_KEYS, TOPIC_KEYS
from broker.config.listener_keys import own_key
from broker.config.topic_config import SYNONYMS, check_topic_configs
from broker.config.types import Value, render


class Source(IntEnum):
    """The ``config_source`` on the wire."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6


class SynonymEntry(NamedTuple):
    """A place where a value may be set. The first one of a list is in force."""

    name: str
    value: str | None
    source: Source


class Entry(NamedTuple):
    """One config of a topic or broker."""

    key: Key
    value: str | None
    source: Source
    read_only: bool
    synonyms: tuple[SynonymEntry, ...]


# Groups of broker keys for one value, in order of precedence. Each also lists those after it as synonyms.
_KEY_GROUPS: Final = {
    group[0].key: tuple(synonym.key for synonym in group) for group in SYNONYMS.values() if len(group) > 1
}


def topic_entries(
    config: BrokerConfig, overrides: Mapping[str, str], names: Collection[str] | None
) -> list[Entry]:
    """A topic's configs; all of them if ``names`` is None."""
    own, _ = check_topic_configs(overrides)
    return [
        _topic_entry(config, key, own) for key in TOPIC_KEYS.values() if names is None or key.name in names
    ]


def broker_entries(config: BrokerConfig, names: Collection[str] | None) -> list[Entry]:
    """A broker's configs. Dynamic-only ones and listeners' own are included if they are set."""
    keys = [
        *BROKER_KEYS.values(),
        *(key for key in DYNAMIC_ONLY_KEYS.values() if key.name in config.set_values),
        *(key for name in config.set_values if (key := own_key(name)) is not None),
    ]
    return [_broker_entry(config, key) for key in keys if names is None or key.name in names]


def default_broker_entries(config: BrokerConfig, names: Collection[str] | None) -> list[Entry]:
    """The cluster-wide dynamic defaults that are set."""
    entries = []
    for name, value in config.dynamic_default_values.items():
        if names is None or name in names:
            key = BROKER_KEYS.get(name) or own_key(name) or DYNAMIC_ONLY_KEYS[name]
            synonym = _synonym(key, value, Source.DYNAMIC_DEFAULT_BROKER)
            entries.append(Entry(key, synonym.value, synonym.source, not key.alterable, (synonym,)))
    return entries


def _topic_entry(config: BrokerConfig, key: Key, own: Mapping[str, Value]) -> Entry:
    synonyms = [_synonym(key, own[key.name], Source.DYNAMIC_TOPIC)] if key.name in own else []
    broker_keys = [BROKER_KEYS[synonym.key] for synonym in SYNONYMS.get(key.name, ())]
    synonyms.extend(_broker_synonyms(config, broker_keys))
    value = own[key.name] if key.name in own else config.topic_default(key.name)
    if value is None:
        value = key.default
    source = synonyms[0].source if synonyms else Source.DEFAULT
    return Entry(key, render(value), source, read_only=False, synonyms=tuple(synonyms))


def _broker_entry(config: BrokerConfig, key: Key) -> Entry:
    names = _KEY_GROUPS.get(key.name, ())
    synonyms = _broker_synonyms(config, [BROKER_KEYS[name] for name in names] or [key])
    value = None if key.sensitive else config.text(key.name)
    source = synonyms[0].source if synonyms else Source.DEFAULT
    return Entry(key, value, source, not key.alterable, tuple(synonyms))


def _broker_synonyms(config: BrokerConfig, keys: Sequence[Key]) -> list[SynonymEntry]:
    """The synonyms, layer by layer. As in Kafka, those before the first key's own are left out, so the list
    is empty if that key is set nowhere.
    """
    layers = (
        (config.dynamic_broker_values, Source.DYNAMIC_BROKER),
        (config.dynamic_default_values, Source.DYNAMIC_DEFAULT_BROKER),
        (config.static_values, Source.STATIC_BROKER),
        ({key.name: key.default for key in keys if key.default is not None}, Source.DEFAULT),
    )
    told = [
        _synonym(key, values[key.name], source)
        for values, source in layers
        for key in keys
        if key.name in values
    ]
    return list(dropwhile(lambda synonym: bool(keys) and synonym.name != keys[0].name, told))


def _synonym(key: Key, value: Value, source: Source) -> SynonymEntry:
    return SynonymEntry(key.name, None if key.sensitive else render(value), source)
