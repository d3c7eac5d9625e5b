"""Whom a quota is for: a user, a client id, both, or an IP address; and their names in znodes.

Names are URL-encoded as by Kafka's Sanitizer, so that ``<default>`` is nobody's name.
"""

from __future__ import annotations

import ipaddress
from enum import Enum
from typing import Final, NamedTuple
from urllib.parse import quote, unquote_plus

DEFAULT: Final = "<default>"
USERS: Final = "users"
CLIENTS: Final = "clients"
IPS: Final = "ips"


class QuotaType(Enum):
    """The four client quotas, each with its config key; Kafka's ClientQuotaType."""

    PRODUCE = "producer_byte_rate"
    FETCH = "consumer_byte_rate"
    REQUEST = "request_percentage"
    CONTROLLER_MUTATION = "controller_mutation_rate"


CONNECTION_RATE: Final = "connection_creation_rate"
#: The largest value of the keys of Kafka's types LONG and INT. The others are DOUBLE.
MOST: Final = {
    QuotaType.PRODUCE.value: (1 << 63) - 1,
    QuotaType.FETCH.value: (1 << 63) - 1,
    CONNECTION_RATE: (1 << 31) - 1,
}
CLIENT_KEYS: Final = frozenset(kind.value for kind in QuotaType)


class QuotaEntity(NamedTuple):
    """Whom a client quota is for, by encoded names. ``<default>`` stands for all that have none of their own,
    None for a part that the quota does not look at. Kafka's KafkaQuotaEntity.
    """

    user: str | None
    client_id: str | None

    @property
    def path(self) -> str:
        """The path below ``/config``."""
        if self.user is None:
            return f"{CLIENTS}/{self.client_id}"
        return f"{USERS}/{self.user}" + ("" if self.client_id is None else f"/{CLIENTS}/{self.client_id}")


def encoded(name: str | None) -> str:
    """The name as a znode has it; None is the default entity."""
    return DEFAULT if name is None else quote(name, safe="*").replace("*", "%2A").replace("~", "%7E")


def decoded(name: str) -> str | None:
    """The name of a znode's entity; None for the default entity."""
    return None if name == DEFAULT else unquote_plus(name)


def entity_at(path: str) -> QuotaEntity | None:
    """The entity of a path below ``/config``: ``users/U``, ``users/U/clients/C`` or ``clients/C``. None if
    client quotas are not kept there.
    """
    match path.split("/"):
        case [kind, user] if kind == USERS:
            return QuotaEntity(user, None)
        case [kind, user, middle, client_id] if kind == USERS and middle == CLIENTS:
            return QuotaEntity(user, client_id)
        case [kind, client_id] if kind == CLIENTS:
            return QuotaEntity(None, client_id)
    return None


def number_of(key: str, text: str) -> float:
    """A quota's value as a znode has it. Raises ValueError."""
    most = MOST.get(key)
    value = float(text) if most is None else int(text)
    if not 0 <= value < float("inf") or (most is not None and value > most):
        raise ValueError(f"{text[:40]} is no rate")
    return float(value)


def address_of(host: str) -> str:
    """An IP address as connections are counted by. Raises ValueError if it is none, for example a name."""
    address = ipaddress.ip_address(host)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)
