# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""Decides which listeners a cluster's brokers use, from settings and the observed state of the
hosts. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.landline.cluster.plugins.module_utils.addresses import host_port

CLIENTS, BETWEEN, SECURE = "PLAINTEXT", "BROKER", "BROKER_SSL"
# If one of these keys is set by the user, all listeners are the user's, and no further listener is added.
_BY_HAND = (
    "listeners",
    "advertised.listeners",
    "listener.security.protocol.map",
    "security.inter.broker.protocol",
)
_LISTENER = re.compile(r"\s*(?P<name>[\w.-]+)://\[?(?P<host>[^,]*?)\]?:(?P<port>\d+)\s*")
# Matches the listener's name, but not a longer name that contains it.
_NAMED = re.compile(rf"(?<![\w.-]){BETWEEN}(?![\w.-])", re.IGNORECASE)
_SET_BY = {
    CLIENTS: "broker_kafka_port",
    BETWEEN: "broker_internal_port",
    "SSL": "broker_ssl_port",
    "SASL_SSL": "broker_sasl_ssl_port",
    SECURE: "broker_internal_ssl_port",
}


def broker_own_port(port: int | str, properties: Mapping[str, Any]) -> int:
    """Returns the port of the inter-broker listener of a host's first broker; 0 if it gets none.

    If the user's `properties` name listeners, those are all. They must name this listener too, or there
    is none.
    """
    by_hand = [_text(properties[key]) for key in _BY_HAND if key in properties]
    return int(port) if all(_NAMED.search(text) for text in by_hand) else 0


def broker_strangers(
    hosts: Iterable[Mapping[str, Any]],
    port: int | str,
    looks: Iterable[Mapping[str, Any]],
    ids: Iterable[int],
    security: str = "none",
) -> list[str]:
    """Returns descriptions of the registered brokers that have none of these `ids` and lack the
    inter-broker listener, which is another one with `security`.

    The hosts' brokers are to use that listener and could not reach them. The list is empty if the hosts'
    brokers get no such listener, or keep using another one.

    `hosts`: the variables of the brokers' hosts; `port` applies where they have no `broker_internal_port`.
    `looks`: the result of zookeeper_quorum_info on each host.
    """
    if security == "none" and not any(_is_to_speak_between(host, port) for host in hosts):
        return []
    between = BETWEEN if security == "none" else SECURE
    known = {int(broker_id) for broker_id in ids}
    found = {int(key): each for look in looks for key, each in (look.get("registered") or {}).items()}
    return [
        f"broker {broker_id} at {', '.join(found[broker_id]['endpoints']) or 'no address'}"
        for broker_id in sorted(set(found) - known)
        if between not in _names(found[broker_id]["endpoints"])
    ]


def broker_any_without_own(hosts: Iterable[Mapping[str, Any]], port: int | str) -> bool:
    """Returns whether the brokers of one of these hosts are to have no inter-broker listener.

    `hosts`: their variables; `port` applies where they have no `broker_internal_port`.
    """
    return any(_own_port_of(host, port) == 0 for host in hosts)


def broker_speaks_between(hosts: Iterable[Mapping[str, Any]]) -> bool:
    """Returns whether a broker uses the inter-broker listener, according to any host's files or
    the registrations.

    Takes the variables of the hosts. `broker_speak.stdout` has the matching lines of a host's properties
    files, and `broker_quorum_looked` the result of zookeeper_quorum_info there. Either is missing if the host
    was not inspected.
    """
    return any(
        host.get("broker_speak", {}).get("stdout")
        or any(
            each.get("speaks_by") == BETWEEN
            for each in (host.get("broker_quorum_looked", {}).get("registered") or {}).values()
        )
        for host in hosts
    )


def _own_port_of(host: Mapping[str, Any], port: int | str) -> int:
    return broker_own_port(host.get("broker_internal_port", port), host.get("broker_properties") or {})


def _is_to_speak_between(host: Mapping[str, Any], port: int | str) -> bool:
    properties = host.get("broker_properties") or {}
    by_hand = _text(properties.get("inter.broker.listener.name", BETWEEN)).upper()
    return by_hand == BETWEEN and _own_port_of(host, port) > 0


def _names(endpoints: Iterable[str]) -> set[str]:
    return {endpoint.partition("://")[0] for endpoint in endpoints}


def broker_ports(brokers: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns all ports that a host's brokers, from broker_instances, listen on.

    Each entry has `host`, `port`, `unit`, a description of what it is `for`, and `set_by`, the variable that
    sets it.
    """
    found = []
    for broker in brokers:
        properties = broker["properties"]
        for match in filter(None, map(_LISTENER.fullmatch, properties["listeners"].split(","))):
            name = match["name"].upper()
            found.append(
                {
                    "host": match["host"],
                    "port": int(match["port"]),
                    "unit": broker["unit"],
                    "for": f"the listener {name} of broker {broker['id']}",
                    "set_by": _SET_BY.get(name, "broker_properties"),
                }
            )
        found.append(
            {
                "host": properties.get("landline.http.host", ""),
                "port": int(broker["http_port"]),
                "unit": broker["unit"],
                "for": f"HTTP of broker {broker['id']}",
                "set_by": "broker_http_port",
            }
        )
    return found


def broker_port_clashes(ports: Iterable[Mapping[str, Any]]) -> list[str]:
    """Returns descriptions of the ports that a host's brokers would use twice; takes the result
    of `broker_ports`.
    """
    wanted: dict[int, list[Mapping[str, Any]]] = {}
    for each in ports:
        wanted.setdefault(int(each["port"]), []).append(each)
    return [
        f"port {port} is wanted for {' and for '.join(each['for'] for each in users)}: another one is set by "
        f"{' or '.join(dict.fromkeys(each['set_by'] for each in users))}, or broker_port_step"
        for port, users in sorted(wanted.items())
        if port and len(users) > 1
    ]


def broker_addresses(hosts: Iterable[Mapping[str, Any]]) -> list[str]:
    """Returns the addresses of the inter-broker listeners of these hosts' brokers.

    Takes the hosts' variables: `broker_all` has their brokers as returned by broker_instances, `broker_target`
    the name of the listener, BROKER if it is missing.
    """
    return [
        address
        for host in hosts
        for broker in host.get("broker_all", [])
        if (address := _address_between(host, broker))
    ]


def _address_between(host: Mapping[str, Any], broker: Mapping[str, Any]) -> str:
    """`host:port`, with an IPv6 address in brackets; empty if the broker has no such listener."""
    wanted = str(host.get("broker_target", BETWEEN))
    matches = map(_LISTENER.fullmatch, broker["properties"]["advertised.listeners"].split(","))
    found = [each for each in matches if each and each["name"].upper() == wanted]
    if not found:
        return ""
    return host_port(found[0]["host"], found[0]["port"])


def broker_unreached(hosts: Iterable[Mapping[str, Any]], all_are_up: bool) -> list[str]:
    """Returns descriptions of which hosts cannot connect to which brokers' inter-broker listeners.

    Takes the variables of all hosts, with `broker_all`, and `broker_reached.unreached`, the result
    of broker_reach_info.

    Unless `all_are_up`, a broker that its own host cannot reach either is left out. It may be down until this
    deployment fixes it, and its closed port says nothing about the network between the hosts.
    """
    looked = [host for host in hosts if "unreached" in host.get("broker_reached", {})]
    brokers = [
        (str(host["inventory_hostname"]), int(broker["id"]), address, host["broker_reached"]["unreached"])
        for host in looked
        for broker in host.get("broker_all", [])
        if (address := _address_between(host, broker))
    ]
    return [
        f"{host['inventory_hostname']} cannot connect to broker {broker_id} on {name} at {address} "
        f"({host['broker_reached']['unreached'][address]})"
        for host in looked
        for name, broker_id, address, by_itself in brokers
        if address in host["broker_reached"]["unreached"] and (all_are_up or address not in by_itself)
    ]


def _text(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


class FilterModule:
    """The class that Ansible loads."""

    def filters(self) -> dict[str, Any]:
        return {
            "broker_own_port": broker_own_port,
            "broker_strangers": broker_strangers,
            "broker_any_without_own": broker_any_without_own,
            "broker_speaks_between": broker_speaks_between,
            "broker_ports": broker_ports,
            "broker_port_clashes": broker_port_clashes,
            "broker_addresses": broker_addresses,
            "broker_unreached": broker_unreached,
        }
