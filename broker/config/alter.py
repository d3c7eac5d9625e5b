"""Changes of dynamic configs (KIP-339): computes the new configs from the current ones and the changes,
without IO.

An invalid change raises :class:`AlterError`, which says whether the request or a config is to blame.
`server.apis.incremental_alter_configs` writes the result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from broker.config.broker_config import BrokerConfig, check_dynamic
from broker.config.client_floors import below_floors
from broker.config.key import Key
from broker.config.keys import BROKER_KEYS, DYNAMIC_ONLY_KEYS, TOPIC_KEYS
from broker.config.listener_keys import LISTENER_PREFIX, own_key, why_not_dynamic
from broker.config.problems import ConfigError, Problem
from broker.config.topic_config import check_topic_configs
from broker.config.types import Type, render


class Operation(IntEnum):
    """The ``config_operation`` on the wire."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Change(NamedTuple):
    """A change of one config. ``value`` is None only if the operation is DELETE."""

    name: str
    operation: int
    value: str | None


class AlterError(Exception):
    """A refused change of configs, with a reason for the client. ``invalid_request`` distinguishes a
    malformed request (INVALID_REQUEST) from a refused config (INVALID_CONFIG).
    """

    def __init__(self, message: str, *, invalid_request: bool = False) -> None:
        super().__init__(message)
        self.invalid_request = invalid_request


def alter_topic(
    config: BrokerConfig, current: Mapping[str, str], changes: Sequence[Change]
) -> dict[str, str]:
    """The topic's configs after ``changes``."""

    def default_of(name: str) -> str:
        return render(config.topic_default(name)) or ""

    changed = _apply(current, changes, TOPIC_KEYS.get, default_of)
    values, problems = check_topic_configs(_touched(changed, changes))
    _raise_for([*problems, *below_floors(config.static_values, values)])
    # Existing configs that are invalid must not prevent valid changes.
    good, _ = check_topic_configs(changed)
    try:
        config.topic_log_config({name: changed[name] for name in good})
    except ConfigError as error:
        _raise_for(error.problems)
    return changed


def alter_broker(
    config: BrokerConfig, current: Mapping[str, str], changes: Sequence[Change], *, cluster_wide: bool
) -> dict[str, str]:
    """The dynamic configs of this broker, or the cluster-wide defaults, after ``changes``."""

    def key_of(name: str) -> Key | None:
        return BROKER_KEYS.get(name) or DYNAMIC_ONLY_KEYS.get(name) or own_key(name)

    def default_of(name: str) -> str:
        if not name.startswith(LISTENER_PREFIX):
            return config.text(name) or ""
        listener, _, base = name.removeprefix(LISTENER_PREFIX).partition(".")
        return config.for_listener(listener).text(base) or ""

    changed = _apply(current, changes, key_of, default_of)
    touched = _touched(changed, changes)
    values, problems = check_dynamic(touched)
    problems += why_not_dynamic(touched, config.listeners, cluster_wide=cluster_wide)
    _raise_for([*problems, *below_floors(config.static_values, values)])
    good, _ = check_dynamic(changed)
    texts = {name: changed[name] for name in good}
    try:
        config.with_dynamic({} if cluster_wide else texts, texts if cluster_wide else {})
    except ConfigError as error:
        _raise_for(error.problems)
    return changed


def _apply(
    current: Mapping[str, str],
    changes: Sequence[Change],
    key_of: Callable[[str], Key | None],
    default_of: Callable[[str], str],
) -> dict[str, str]:
    _check_form(changes)
    changed = dict(current)
    for name, operation, value in changes:
        if operation == Operation.DELETE:
            changed.pop(name, None)
        elif operation == Operation.SET:
            changed[name] = value or ""
        else:
            key = key_of(name)
            if key is None or key.type is not Type.LIST:
                kind = "no known config" if key is None else f"a {key.type.name}"
                raise AlterError(f"{name} is {kind}: only lists can be appended to or subtracted from")
            before = current.get(name, default_of(name))
            changed[name] = _change_list(before, value or "", append=operation == Operation.APPEND)
    return changed


def _check_form(changes: Sequence[Change]) -> None:
    twice = [name for name, count in Counter(change.name for change in changes).items() if count > 1]
    if twice:
        raise AlterError(f"configs given more than once: {', '.join(sorted(twice))}", invalid_request=True)
    for name, operation, value in changes:
        if operation not in list(Operation):
            raise AlterError(f"{name}: {operation} is no operation", invalid_request=True)
        if value is None and operation != Operation.DELETE:
            raise AlterError(f"{name}: a null value can only be deleted", invalid_request=True)


def _change_list(before: str, items: str, *, append: bool) -> str:
    present = [item.strip() for item in before.split(",") if item.strip()]
    given = [item.strip() for item in items.split(",") if item.strip()]
    if append:
        return ",".join([*present, *(item for item in dict.fromkeys(given) if item not in present)])
    return ",".join(item for item in present if item not in given)


def _touched(changed: Mapping[str, str], changes: Sequence[Change]) -> dict[str, str]:
    return {change.name: changed[change.name] for change in changes if change.name in changed}


def _raise_for(problems: Sequence[Problem]) -> None:
    if problems:
        raise AlterError("; ".join(f"{problem.key}: {problem.message}" for problem in problems))
