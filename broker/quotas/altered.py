"""What AlterClientQuotas makes of an entity's config, without IO (KIP-546)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Final

from broker.quotas.described import CLIENT_ID, IP, USER
from broker.quotas.entities import (
    CLIENT_KEYS,
    CLIENTS,
    CONNECTION_RATE,
    IPS,
    MOST,
    USERS,
    encoded,
)

_EPSILON: Final = 1e-6


class AlterationError(ValueError):
    """An alteration that is refused as an invalid request; the message says why."""


def altered_path(entity: Mapping[str, str | None]) -> str:
    """The path below ``/config`` of a request's entity, by entity type. Raises :class:`AlterationError`."""
    if not entity:
        raise AlterationError("the entity is empty: name a user, a client-id, both, or an ip")
    for type_, name in entity.items():
        if type_ not in (USER, CLIENT_ID, IP):
            raise AlterationError(f"entity type {type_} has no quotas: user, client-id and ip have")
        if name == "":
            raise AlterationError(f"an empty {type_} is not supported")
    if IP in entity:
        if len(entity) > 1:
            raise AlterationError("ip cannot be combined with user or client-id")
        return f"{IPS}/{encoded(entity[IP])}"
    if USER not in entity:
        return f"{CLIENTS}/{encoded(entity[CLIENT_ID])}"
    path = f"{USERS}/{encoded(entity[USER])}"
    return path if CLIENT_ID not in entity else f"{path}/{CLIENTS}/{encoded(entity[CLIENT_ID])}"


def altered(
    path: str, config: Mapping[str, str], changes: Iterable[tuple[str, float, bool]]
) -> dict[str, str]:
    """The config at ``path`` after the changes: key, value, and whether to remove the key instead. Other
    keys, such as SCRAM credentials, stay. Raises :class:`AlterationError`.
    """
    keys = {CONNECTION_RATE} if path.startswith(f"{IPS}/") else CLIENT_KEYS
    after = dict(config)
    for key, value, is_removed in changes:
        if key not in keys and not (
            is_removed and key not in config
        ):  # to remove what is not there is no error
            raise AlterationError(f"{key} is no quota of {path}: {', '.join(sorted(keys))} are")
        if is_removed:
            after.pop(key, None)
        else:
            after[key] = _text(key, value)
    return after


def emptied_paths(path: str) -> list[str]:
    """The znodes below ``/config`` to delete with an entity that has no config any more, if they have become
    empty too: the entity, then for a user's client ``clients`` and the user.
    """
    head, _, _ = path.partition(f"/{CLIENTS}/")
    return [path] if head == path else [path, f"{head}/{CLIENTS}", head]


def _text(key: str, value: float) -> str:
    if not math.isfinite(value) or value < 0:
        raise AlterationError(f"{key}={value} is no rate: it must be a number of at least 0")
    most = MOST.get(key)
    if most is None:
        return java_double(value)
    whole = min(int(value + _EPSILON), most)
    if abs(whole - value) > max(_EPSILON, value * 1e-15):
        raise AlterationError(f"{key}={value} must be a whole number of at most {most}")
    return str(whole)


def java_double(value: float) -> str:
    """The number as Java writes a double, which is how Kafka writes it to znodes."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    mantissa, _, exponent = f"{Decimal(repr(value)).normalize():E}".partition("E")
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}E{int(exponent)}"
