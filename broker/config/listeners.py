"""Parses and checks the listener settings. Pure, except for the host's own name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from broker.config.endpoint import Endpoint

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SUPPORTED: Final = PROTOCOLS
_UNROUTABLE: Final = {"0.0.0.0", "::", "[::]"}  # noqa: S104 - refused, not bound
_LISTENER: Final = re.compile(
    r"(?P<name>[A-Za-z0-9_.-]+)://\[?(?P<host>[0-9A-Za-z\-%._:]*?)\]?:(?P<port>\d+)"
)
_MAX_PORT: Final = 65535

Complain = Callable[[str, str], None]


@dataclass(frozen=True, slots=True)
class Listeners:
    """A broker's listeners: the bound ones, the advertised ones, and by name the inter-broker listener and the
    one for the controller's requests. Advertised hosts may be empty and ports 0: they mean this host's name
    and the bound port.
    """

    bound: tuple[Endpoint, ...]
    advertised: tuple[Endpoint, ...]
    inter_broker: str
    controller: str


def resolve_listeners(
    get: Callable[[str], str | None], given: Mapping[str, str], complain: Complain
) -> Listeners:
    """Reads the listener keys and reports problems by ``complain(key, message)``. ``get`` returns a key's
    text; ``given`` has the keys that were set.
    """
    protocols = _protocol_map(get("listener.security.protocol.map") or "", complain)
    bound = _endpoints("listeners", get("listeners") or "", protocols, complain)
    if not list(_entries(get("listeners") or "")):
        complain("listeners", "is empty: give at least one, such as PLAINTEXT://:9092")
    _check_ports(bound, complain)
    inter_broker = _inter_broker_name(get, given, bound, complain)
    advertised = bound
    if get("advertised.listeners"):
        advertised = _endpoints(
            "advertised.listeners", get("advertised.listeners") or "", protocols, complain
        )
    _check_advertised(advertised, bound, inter_broker, given, complain)
    controller = _controller_name(get, bound, advertised, inter_broker, complain)
    return Listeners(bound, advertised, inter_broker, controller)


def with_local_name(endpoints: Sequence[Endpoint], local_name: Callable[[], str]) -> list[Endpoint]:
    """The endpoints, with empty hosts replaced by this host's name."""
    return [endpoint if endpoint.host else replace(endpoint, host=local_name()) for endpoint in endpoints]


def _protocol_map(text: str, complain: Complain) -> dict[str, str]:
    key = "listener.security.protocol.map"
    protocols: dict[str, str] = {}
    for entry in _entries(text):
        name, colon, protocol = entry.rpartition(":")
        if not colon or not name:
            complain(key, f"{entry!r} is not NAME:PROTOCOL")
        elif protocol.upper() not in PROTOCOLS:
            complain(key, f"{protocol!r} is no security protocol: one of {', '.join(PROTOCOLS)} is expected")
        elif name.upper() in protocols:
            complain(key, f"has {name.upper()} twice")
        else:
            protocols[name.upper()] = protocol.upper()
    return protocols


def _endpoints(key: str, text: str, protocols: Mapping[str, str], complain: Complain) -> tuple[Endpoint, ...]:
    found: dict[str, Endpoint] = {}
    for entry in _entries(text):
        endpoint = _endpoint(key, entry, protocols, complain)
        if endpoint is None:
            continue
        if endpoint.listener_name in found:
            complain(key, f"has two listeners named {endpoint.listener_name}: each needs a name of its own")
        found[endpoint.listener_name] = endpoint
    return tuple(found.values())


def _endpoint(key: str, entry: str, protocols: Mapping[str, str], complain: Complain) -> Endpoint | None:
    match = _LISTENER.fullmatch(entry)
    if match is None:
        complain(key, f"{entry!r} is no listener: NAME://host:port is expected, such as PLAINTEXT://:9092")
        return None
    name, port = match["name"].upper(), int(match["port"])
    if port > _MAX_PORT:
        complain(key, f"{entry!r} has a port above {_MAX_PORT}")
        return None
    protocol = protocols.get(name)
    if protocol is None:
        complain(key, f"{name} is not in listener.security.protocol.map: add {name}:PLAINTEXT to it")
        return None
    if protocol not in SUPPORTED:
        complain(
            key, f"{entry!r} speaks {protocol}, which is not supported yet: use {' or '.join(SUPPORTED)}"
        )
        return None
    return Endpoint(match["host"], port, name, protocol)


def _check_ports(endpoints: Sequence[Endpoint], complain: Complain) -> None:
    seen: dict[int, list[Endpoint]] = {}
    for endpoint in endpoints:
        for other in seen.setdefault(endpoint.port, []):
            if endpoint.port and _same_interface(endpoint.host, other.host):
                complain("listeners", f"{other} and {endpoint} want the same port {endpoint.port}")
        seen[endpoint.port].append(endpoint)


def _same_interface(one: str, other: str) -> bool:
    return one == other or bool({one, other} & {"", *_UNROUTABLE})


def _inter_broker_name(
    get: Callable[[str], str | None], given: Mapping[str, str], bound: Sequence[Endpoint], complain: Complain
) -> str:
    key, protocol_key = "inter.broker.listener.name", "security.inter.broker.protocol"
    if get(key) and protocol_key in given:
        complain(key, f"and {protocol_key} are both set: keep one")
    name = (get(key) or get(protocol_key) or "PLAINTEXT").upper()
    used = key if get(key) else protocol_key
    names = [endpoint.listener_name for endpoint in bound]
    if bound and name not in names:
        hint = f" Set {key} to one of them." if used == protocol_key else ""
        complain(used, f"{name} is not among the listeners ({', '.join(names)}).{hint}")
    return name


def _controller_name(
    get: Callable[[str], str | None],
    bound: Sequence[Endpoint],
    advertised: Sequence[Endpoint],
    inter_broker: str,
    complain: Complain,
) -> str:
    """The listener for the controller's requests: the inter-broker listener, unless it has its own (KIP-291)."""
    key = "control.plane.listener.name"
    name = (get(key) or "").upper()
    if not name:
        return inter_broker
    for where, endpoints in (("listeners", bound), ("advertised.listeners", advertised)):
        names = [endpoint.listener_name for endpoint in endpoints]
        if endpoints and name not in names:
            complain(key, f"{name} is not among the {where} ({', '.join(names)})")
            break
    if name == inter_broker:
        complain(key, f"{name} is the inter-broker listener: the controller's has to be another one, or none")
    return name


def _check_advertised(
    advertised: Sequence[Endpoint],
    bound: Sequence[Endpoint],
    inter_broker: str,
    given: Mapping[str, str],
    complain: Complain,
) -> None:
    key = "advertised.listeners" if "advertised.listeners" in given else "listeners"
    names = [endpoint.listener_name for endpoint in bound]
    for endpoint in advertised:
        if endpoint.host in _UNROUTABLE:
            complain(
                key,
                f"{endpoint} would be advertised, and no client can reach {endpoint.host}: "
                "set advertised.listeners to an address that clients can",
            )
        if endpoint.listener_name not in names:
            complain(key, f"{endpoint.listener_name} is not among the listeners ({', '.join(names)})")
    offered = [endpoint.listener_name for endpoint in advertised]
    if advertised is not bound and inter_broker in names and inter_broker not in offered:
        complain(key, f"lacks {inter_broker}, by which the brokers reach each other")


def _entries(text: str) -> Iterator[str]:
    return (entry.strip() for entry in text.split(",") if entry.strip())
