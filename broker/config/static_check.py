"""Checks each key and value of a broker's properties against the table: known, of the right type,
and supported.

`cross_checks` checks keys against each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from broker.config.authorizer_class import PREFIX as AUTHORIZER_PREFIX
from broker.config.key import Key, Use
from broker.config.keys import BROKER_KEYS, DYNAMIC_ONLY_KEYS, TOPIC_KEYS
from broker.config.listener_keys import LISTENER_PREFIX, listeners_key, used_key, why_not_lower
from broker.config.problems import ConfigError, Problem, did_you_mean
from broker.config.sasl import PER_LISTENER
from broker.config.topic_config import NO_PREALLOCATION, SYNONYMS
from broker.config.types import Value
from broker.config.values import ConfigValues

# Keys that Kafka leaves to plugins, by name or prefix. There are no such plugins here.
PLUGIN_KEYS: Final = frozenset({"config.providers"})
PLUGIN_PREFIXES: Final = (
    "config.providers.",
    "metrics.context.",
    "metrics.jmx.",
    "rlmm.config.",
    "rsm.config.",
)

_REMOVED: Final[Mapping[str, str]] = {
    "port": "listeners",
    "host.name": "listeners",
    "advertised.port": "advertised.listeners",
    "advertised.host.name": "advertised.listeners",
    "quota.producer.default": "the entity config producer_byte_rate",
    "quota.consumer.default": "the entity config consumer_byte_rate",
}
_NO_JAVA: Final = (
    "Java classes cannot be used, and brokers log in to each other by PLAIN, SCRAM or GSSAPI: remove it"
)
_ZOOKEEPER_ONLY: Final = "Landline runs in ZooKeeper mode only: remove it"
_WHY_REFUSED: Final[Mapping[str, str]] = {
    "node.id": "Landline runs in ZooKeeper mode only: set broker.id instead",
    "principal.builder.class": (
        "Java classes cannot be used, and principals come from SASL, or from certificates by "
        "ssl.principal.mapping.rules: remove it"
    ),
    "ssl.engine.factory.class": "Java classes cannot be used: remove it",
    "sasl.client.callback.handler.class": _NO_JAVA,
    "sasl.login.callback.handler.class": _NO_JAVA,
    "sasl.login.class": _NO_JAVA,
    "zookeeper.ssl.crl.enable": "revocation lists are not checked: remove it",
    "zookeeper.ssl.ocsp.enable": "revocation is not checked: remove it",
    "log.preallocate": NO_PREALLOCATION,
    "remote.log.storage.system.enable": "there is no tiered storage here: remove it",
}


class StaticCheck(NamedTuple):
    """The result of checking each key separately: the valid values, parsed; the names of Kafka's keys that
    Landline ignores; the problems; the texts of the listeners' own keys.
    """

    values: dict[str, Value]
    unused: list[str]
    problems: list[Problem]
    listener_texts: dict[str, str]


def values_of(texts: Mapping[str, str], prefixes: tuple[str, ...]) -> ConfigValues:
    """The values of the keys with these prefixes, for a command that needs no others. Raises ConfigError."""
    checked = check_static({name: text for name, text in texts.items() if name.startswith(prefixes)}, {})
    if checked.problems:
        raise ConfigError(checked.problems)
    return ConfigValues(checked.values)


def why_refused(name: str) -> str:
    """What to do about a key that is REFUSED."""
    return _WHY_REFUSED.get(name, _ZOOKEEPER_ONLY)


def check_static(texts: Mapping[str, str], lines: Mapping[str, int]) -> StaticCheck:
    """Checks every key of ``texts``; ``lines`` has their line numbers."""
    result = StaticCheck({}, [], [], {})
    for name, text in texts.items():
        key = BROKER_KEYS.get(name)
        complaint = _take(key, text, result) if key else _take_unlisted(name, text, result)
        if complaint:
            result.problems.append(Problem(name, lines.get(name), complaint))
    return result


def _take(key: Key, text: str, result: StaticCheck, name: str = "") -> str | None:
    try:
        value = key.parse(text)
    except ValueError as error:
        shown = "its value" if key.sensitive else repr(text)
        return f"{shown} is not valid: {error}"
    if key.use is Use.REFUSED and value not in ("", (), key.default):
        return why_refused(key.name)
    result.values[name or key.name] = value
    if key.use is Use.ACCEPTED:
        result.unused.append(key.name)
    return None


def _take_unlisted(name: str, text: str, result: StaticCheck) -> str | None:
    if name.startswith(LISTENER_PREFIX):
        key = listeners_key(name)
        if key is None:
            return _unknown(name)
        if used_key(name) is not None:
            return why_not_lower(name) or _take(key, text, result, name)
        if key.name in PER_LISTENER:
            result.listener_texts[name] = text.strip()
            return None
        if key.use is Use.REFUSED and text.strip() not in ("", str(key.default)):
            return why_refused(key.name)
    elif name.startswith(AUTHORIZER_PREFIX):
        return None  # `authorizer_class` checks whether there is an authorizer for it
    elif name not in PLUGIN_KEYS and not name.startswith(PLUGIN_PREFIXES):
        return _unknown(name)
    result.unused.append(name)
    return None


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
