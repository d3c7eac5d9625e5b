"""Topic configs: checks Kafka's 36 names, turns them into a :class:`LogConfig`, and maps them to their
broker keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final, NamedTuple

from broker.config.keys import TOPIC_KEYS
from broker.config.log_config import LONG_MAX, LogConfig
from broker.config.problems import ConfigError, Problem, did_you_mean
from broker.config.types import Value

_HOUR_MS: Final = 3_600_000
_MINUTE_MS: Final = 60_000


class Synonym(NamedTuple):
    """A broker key that is the default of a topic config. Its value times ``factor`` is the topic's value."""

    key: str
    factor: int = 1


# The broker keys of each topic config, in order of precedence. Topic configs that are missing here have no
# broker key.
SYNONYMS: Final[Mapping[str, tuple[Synonym, ...]]] = {
    "cleanup.policy": (Synonym("log.cleanup.policy"),),
    "compression.gzip.level": (Synonym("compression.gzip.level"),),
    "compression.lz4.level": (Synonym("compression.lz4.level"),),
    "compression.type": (Synonym("compression.type"),),
    "compression.zstd.level": (Synonym("compression.zstd.level"),),
    "delete.retention.ms": (Synonym("log.cleaner.delete.retention.ms"),),
    "file.delete.delay.ms": (Synonym("log.segment.delete.delay.ms"),),
    "flush.messages": (Synonym("log.flush.interval.messages"),),
    "flush.ms": (Synonym("log.flush.interval.ms"), Synonym("log.flush.scheduler.interval.ms")),
    "index.interval.bytes": (Synonym("log.index.interval.bytes"),),
    "local.retention.bytes": (Synonym("log.local.retention.bytes"),),
    "local.retention.ms": (Synonym("log.local.retention.ms"),),
    "max.compaction.lag.ms": (Synonym("log.cleaner.max.compaction.lag.ms"),),
    "max.message.bytes": (Synonym("message.max.bytes"),),
    "message.downconversion.enable": (Synonym("log.message.downconversion.enable"),),
    "message.format.version": (Synonym("log.message.format.version"),),
    "message.timestamp.after.max.ms": (Synonym("log.message.timestamp.after.max.ms"),),
    "message.timestamp.before.max.ms": (Synonym("log.message.timestamp.before.max.ms"),),
    "message.timestamp.difference.max.ms": (Synonym("log.message.timestamp.difference.max.ms"),),
    "message.timestamp.type": (Synonym("log.message.timestamp.type"),),
    "min.cleanable.dirty.ratio": (Synonym("log.cleaner.min.cleanable.ratio"),),
    "min.compaction.lag.ms": (Synonym("log.cleaner.min.compaction.lag.ms"),),
    "min.insync.replicas": (Synonym("min.insync.replicas"),),
    "preallocate": (Synonym("log.preallocate"),),
    "retention.bytes": (Synonym("log.retention.bytes"),),
    "retention.ms": (
        Synonym("log.retention.ms"),
        Synonym("log.retention.minutes", _MINUTE_MS),
        Synonym("log.retention.hours", _HOUR_MS),
    ),
    "segment.bytes": (Synonym("log.segment.bytes"),),
    "segment.index.bytes": (Synonym("log.index.size.max.bytes"),),
    "segment.jitter.ms": (Synonym("log.roll.jitter.ms"), Synonym("log.roll.jitter.hours", _HOUR_MS)),
    "segment.ms": (Synonym("log.roll.ms"), Synonym("log.roll.hours", _HOUR_MS)),
    "unclean.leader.election.enable": (Synonym("unclean.leader.election.enable"),),
}
NO_PREALLOCATION: Final = (
    "segments are not allocated in full here, they grow with what is written: leave it out"
)
_NO_TIERS: Final = "there is no tiered storage here"
# What a topic may say of these is false, with the reason.
_NEVER_TRUE: Final = {
    "preallocate": NO_PREALLOCATION,
    "remote.log.copy.disable": _NO_TIERS,
    "remote.log.delete.on.disable": _NO_TIERS,
    "remote.storage.enable": _NO_TIERS,
}
_LOG_CONFIG_FIELDS: Final = frozenset(field.name for field in fields(LogConfig))


def check_topic_configs(overrides: Mapping[str, str]) -> tuple[dict[str, Value], list[Problem]]:
    """The valid overrides, parsed, and the problems of the others."""
    values: dict[str, Value] = {}
    problems = []
    for name, text in overrides.items():
        key = TOPIC_KEYS.get(name)
        if key is None:
            problems.append(Problem(name, None, _unknown(name)))
            continue
        try:
            values[name] = key.parse(text)
        except ValueError as error:
            problems.append(Problem(name, None, f"{text!r} is not valid: {error}"))
    for name in sorted(values.keys() & _NEVER_TRUE):
        if values[name] is True:
            problems.append(Problem(name, None, _NEVER_TRUE[name]))
            del values[name]
    return values, problems


def build_log_config(defaults: Mapping[str, Value], overrides: Mapping[str, str]) -> LogConfig:
    """The broker's ``defaults`` (by topic config name) with a topic's ``overrides``. Raises ConfigError with
    all problems.
    """
    values, problems = check_topic_configs(overrides)
    merged = {**defaults, **values}
    problems += _contradictions(merged)
    if problems:
        raise ConfigError(problems)
    return _log_config(merged)


def _unknown(name: str) -> str:
    for topic_key, synonyms in SYNONYMS.items():
        if any(synonym.key == name for synonym in synonyms):
            return f"is a broker config; the topic's name for it is {topic_key}"
    return "is no topic config." + did_you_mean(name, TOPIC_KEYS)


def _contradictions(values: Mapping[str, Value]) -> list[Problem]:
    low, high = values.get("min.compaction.lag.ms"), values.get("max.compaction.lag.ms")
    if isinstance(low, int) and isinstance(high, int) and low > high:
        message = f"{low} is larger than max.compaction.lag.ms {high}"
        return [Problem("min.compaction.lag.ms", None, message)]
    return []


def _log_config(values: Mapping[str, Value]) -> LogConfig:
    given: dict[str, Any] = {}
    for name, value in values.items():
        field = name.replace(".", "_")
        if field in _LOG_CONFIG_FIELDS and value is not None:
            given[field] = (
                frozenset(value) if name == "cleanup.policy" and isinstance(value, tuple) else value
            )
    _apply_older_difference(values, given)
    return LogConfig(**given)


def _apply_older_difference(values: Mapping[str, Value], given: dict[str, Any]) -> None:
    """Applies message.timestamp.difference.max.ms where its two successors are unset (KIP-937)."""
    difference = values.get("message.timestamp.difference.max.ms")
    if difference is None or difference == LONG_MAX:
        return
    for field in ("message_timestamp_before_max_ms", "message_timestamp_after_max_ms"):
        if given.get(field, LONG_MAX) == LONG_MAX:
            given[field] = difference
