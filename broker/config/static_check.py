"""Reads the keys and values of a broker's properties against the table: what is known, well typed and usable.

What several keys mean together is `cross_checks`' part.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from broker.config.key import Key, Use
from broker.config.keys import BROKER_KEYS, DYNAMIC_ONLY_KEYS, TOPIC_KEYS
from broker.config.problems import Problem, did_you_mean
from broker.config.topic_config import SYNONYMS
from broker.config.types import Value

# Keys that Kafka leaves to plugins, by name or prefix; we have no such plugins.
PLUGIN_KEYS: Final = frozenset({"super.users", "allow.everyone.if.no.acl.found", "config.providers"})
PLUGIN_PREFIXES: Final = (
    "config.providers.",
    "metrics.context.",
    "metrics.jmx.",
    "rlmm.config.",
    "rsm.config.",
)
LISTENER_PREFIX: Final = "listener.name."

_REMOVED: Final[Mapping[str, str]] = {
    "port": "listeners",
    "host.name": "listeners",
    "advertised.port": "advertised.listeners",
    "advertised.host.name": "advertised.listeners",
    "quota.producer.default": "the entity config producer_byte_rate",
    "quota.consumer.default": "the entity config consumer_byte_rate",
}
_ZOOKEEPER_ONLY: Final = "Landline runs in ZooKeeper mode only: remove it"
_WHY_REFUSED: Final[Mapping[str, str]] = {
    "node.id": "Landline runs in ZooKeeper mode only: set broker.id instead",
    "authorizer.class.name": "authorization is not supported yet: remove it",
    "zookeeper.ssl.client.enable": "TLS to ZooKeeper is not supported yet: remove it",
    "zookeeper.set.acl": "ACLs on znodes are not supported yet: remove it",
    "remote.log.storage.system.enable": "there is no tiered storage here: remove it",
}


class StaticCheck(NamedTuple):
    """``values`` has the good keys, parsed; ``unused`` the names that Kafka knows and Landline does not
    follow.
    """

    values: dict[str, Value]
    unused: list[str]
    problems: list[Problem]


def check_static(texts: Mapping[str, str], lines: Mapping[str, int]) -> StaticCheck:
    """Checks every key of ``texts``; ``lines`` says where each stands."""
    result = StaticCheck({}, [], [])
    for name, text in texts.items():
        key = BROKER_KEYS.get(name)
        complaint = _take(key, text, result) if key else _take_unlisted(name, result)
        if complaint:
            result.problems.append(Problem(name, lines.get(name), complaint))
    return result


def _take(key: Key, text: str, result: StaticCheck) -> str | None:
    try:
        value = key.parse(text)
    except ValueError as error:
        shown = "its value" if key.sensitive else repr(text)
        return f"{shown} is not valid: {error}"
    if key.use is Use.REFUSED and value not in ("", (), key.default):
        return _WHY_REFUSED.get(key.name, _ZOOKEEPER_ONLY)
    result.values[key.name] = value
    if key.use is Use.ACCEPTED:
        result.unused.append(key.name)
    return None


def _take_unlisted(name: str, result: StaticCheck) -> str | None:
    if not _is_plugin_key(name):
        return _unknown(name)
    result.unused.append(name)
    return None


def _is_plugin_key(name: str) -> bool:
    if name.startswith(LISTENER_PREFIX):
        # listener.name.<listener>.[<mechanism>.]<key>; listener names have no dots of their own in practice.
        parts = name.removeprefix(LISTENER_PREFIX).split(".")
        return any(".".join(parts[start:]) in BROKER_KEYS for start in (1, 2))
    return name in PLUGIN_KEYS or name.startswith(PLUGIN_PREFIXES)


def _unknown(name: str) -> str:
    if name in _REMOVED:
        return f"was removed in Kafka 3.0: use {_REMOVED[name]}"
    if name in DYNAMIC_ONLY_KEYS:
        return "exists only as a dynamic config: set it by kafka-configs.sh"
    if name in TOPIC_KEYS:
        broker_keys = " or ".join(synonym.key for synonym in SYNONYMS.get(name, ()))
        hint = f"; the broker's default for it is {broker_keys}" if broker_keys else ""
        return f"is a topic config, not a broker config{hint}"
    return "is no known config." + did_you_mean(name, BROKER_KEYS)
