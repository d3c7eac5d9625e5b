"""Which quotas DescribeClientQuotas lists: the filter's rules (KIP-546, KIP-612), without IO."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from broker.quotas.entities import CLIENT_KEYS, CLIENTS, CONNECTION_RATE, IPS, USERS, decoded

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"


class Match(IntEnum):
    """How a component matches an entity's name: this name, the default, or any."""

    EXACT = 0
    DEFAULT = 1
    SPECIFIED = 2


class FilterError(Exception):
    """A filter that cannot be. ``unsupported`` marks one that another version of Kafka might know."""

    def __init__(self, message: str, *, unsupported: bool = False) -> None:
        super().__init__(message)
        self.unsupported = unsupported


class Component(NamedTuple):
    """What a filter says of one type of entity. ``name`` is None unless ``match`` is EXACT."""

    match: Match
    name: str | None = None

    def covers(self, name: str | None) -> bool:
        return self.match is Match.SPECIFIED or name == self.name


class Described(NamedTuple):
    """One quota entity with its values. The names are decoded; None is the default."""

    entity: Mapping[str, str | None]
    values: Mapping[str, float]


class Filter(NamedTuple):
    """A checked filter: components by entity type. ``strict``: entities with other types do not match."""

    components: Mapping[str, Component]
    strict: bool

    @property
    def of_ips(self) -> bool:
        """Whether IP addresses can match."""
        return IP in self.components or (not self.strict and not self.components)

    @property
    def of_clients(self) -> bool:
        """Whether users and client ids can match."""
        return IP not in self.components

    def covers(self, entity: Mapping[str, str | None]) -> bool:
        """Whether the entity matches: it has a name for each component, and no other if ``strict``."""
        if self.strict and not entity.keys() <= self.components.keys():
            return False
        return all(
            type_ in entity and component.covers(entity[type_])
            for type_, component in self.components.items()
        )


def parse_filter(components: Iterable[tuple[str, int, str | None]], *, strict: bool) -> Filter:
    """Checks the components of a request: entity type, match type and name. Raises :class:`FilterError`."""
    parsed: dict[str, Component] = {}
    for type_, match, name in components:
        if not type_:
            raise FilterError("a component has no entity type")
        if type_ not in (USER, CLIENT_ID, IP):
            raise FilterError(
                f"entity type {type_} is not supported: user, client-id and ip are", unsupported=True
            )
        if type_ in parsed:
            raise FilterError(f"the filter has more than one component for {type_}")
        if match not in Match.__members__.values():
            raise FilterError(f"match type {match} is none: 0 is this name, 1 the default, 2 any")
        if match == Match.EXACT and name is None:
            raise FilterError(f"an exact match of {type_} needs a name")
        parsed[type_] = Component(Match(match), name if match == Match.EXACT else None)
    if IP in parsed and len(parsed) > 1:
        raise FilterError("ip cannot be combined with user or client-id")
    return Filter(parsed, strict)


def described(path: str, config: Mapping[str, str]) -> Described | None:
    """What to list of the config at a path below ``/config``; None if there is no quota in it. Raises
    ValueError for a value that is no number.
    """
    entity: dict[str, str | None]
    match path.split("/"):
        case [kind, user] if kind == USERS:
            entity = {USER: decoded(user)}
        case [kind, user, _, client_id] if kind == USERS:
            entity = {USER: decoded(user), CLIENT_ID: decoded(client_id)}
        case [kind, client_id] if kind == CLIENTS:
            entity = {CLIENT_ID: decoded(client_id)}
        case [kind, ip] if kind == IPS:
            entity = {IP: decoded(ip)}
        case _:
            return None
    keys = {CONNECTION_RATE} if IP in entity else CLIENT_KEYS
    values = {key: float(text) for key, text in config.items() if key in keys}
    return Described(entity, values) if values else None
