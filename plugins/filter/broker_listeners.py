"""By which listeners a cluster's brokers speak: from settings, and what was seen on hosts, to decisions. Pure."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

# What modules use too. Ansible brings it to the hosts; a filter runs here, where it is found by its directory.
sys.path.append(str(Path(__file__).parents[1] / "module_utils"))

from addresses import host_port

CLIENTS, BETWEEN = "PLAINTEXT", "BROKER"
# Where one of these is set by hand, all listeners are: a further one would not be among them.
_BY_HAND = (
    "listeners",
    "advertised.listeners",
    "listener.security.protocol.map",
    "security.inter.broker.protocol",
)
_LISTENER = re.compile(r"\s*(?P<name>[\w.-]+)://\[?(?P<host>[^,]*?)\]?:(?P<port>\d+)\s*")
# The listener itself, and none whose name has this in it.
_NAMED = re.compile(rf"(?<![\w.-]){BETWEEN}(?![\w.-])", re.IGNORECASE)
_SET_BY = {CLIENTS: "broker_kafka_port", BETWEEN: "broker_internal_port"}


def broker_own_port(port: int | str, properties: Mapping[str, Any]) -> int:
    """Returns the port of the listener between a host's first broker and others; 0 where it gets none.

    Listeners that the user's `properties` name are all that there are, unless they name this one too.
    """
    by_hand = [_text(properties[key]) for key in _BY_HAND if key in properties]
    return int(port) if all(_NAMED.search(text) for text in by_hand) else 0


def broker_between(hosts: Iterable[Mapping[str, Any]], own: str, may_change: bool) -> str:
    """Returns the inter.broker.listener.name for the brokers of the host `own`, where each has two listeners.

    Takes the variables of all hosts of the cluster; `broker_listeners.stdout` has the lines of advertised.listeners and
    inter.broker.listener.name in a host's properties files, and is missing where nobody looked. A broker that speaks by
    a listener which another does not have cannot reach it: so all have both first, and speak by the old one. Who speaks
    by the old one changes only where it `may_change`, and who has changed stays; who is new goes with those that have,
    or, in a new cluster, begins with the new one.
    """
    looks = {
        str(host["inventory_hostname"]): host.get("broker_listeners", {}).get("stdout") for host in hosts
    }
    mine = looks[own]
    if mine is not None and _speaks_between(mine):
        return BETWEEN
    if not mine and any(_speaks_between(text) for text in looks.values() if text):
        return BETWEEN
    everywhere = all(text is not None and _listens_between(text) for text in looks.values())
    is_new = not any(looks.values())
    return BETWEEN if everywhere and (may_change or is_new) else CLIENTS


def _speaks_between(text: str) -> bool:
    return f"inter.broker.listener.name={BETWEEN}" in text.splitlines()


def _listens_between(text: str) -> bool:
    advertised = [line for line in text.splitlines() if line.startswith("advertised.listeners=")]
    return all(_NAMED.search(line) for line in advertised)


def broker_strangers(
    hosts: Iterable[Mapping[str, Any]],
    port: int | str,
    looks: Iterable[Mapping[str, Any]],
    ids: Iterable[int],
) -> list[str]:
    """Returns, in words, the registered brokers that have none of these `ids` and cannot be reached by the listener by
    which the hosts' brokers are to speak; none where they get no such listener, or go on by another.

    `hosts`: the variables of the brokers' hosts, `port` where they have no `broker_internal_port`; `looks`: what
    zookeeper_quorum_info found on each host.
    """
    if not any(_is_to_speak_between(host, port) for host in hosts):
        return []
    known = {int(broker_id) for broker_id in ids}
    found = {int(key): each for look in looks for key, each in (look.get("registered") or {}).items()}
    return [
        f"broker {broker_id} at {', '.join(found[broker_id]['endpoints']) or 'no address'}"
        for broker_id in sorted(set(found) - known)
        if BETWEEN not in _names(found[broker_id]["endpoints"])
    ]


def broker_any_without_own(hosts: Iterable[Mapping[str, Any]], port: int | str) -> bool:
    """Returns whether brokers of one of these hosts are to have no listener of their own.

    `hosts`: their variables, `port` where they have no `broker_internal_port`.
    """
    return any(_own_port_of(host, port) == 0 for host in hosts)


def broker_speaks_between(hosts: Iterable[Mapping[str, Any]]) -> bool:
    """Returns whether a broker speaks by a listener of brokers alone, by any host's files or by its registration.

    Takes the variables of the hosts: `broker_speak.stdout` has the lines that say so in a host's properties files,
    `broker_quorum_looked` what zookeeper_quorum_info found there. Either is missing where nobody looked.
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
    """Returns all that a host's brokers, of broker_instances, listen on: each with `host`, `port`, `unit`, what it is
    `for`, in words, and the variable that it is `set_by`.
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
    """Returns, in words, the ports that a host's brokers want twice; takes what `broker_ports` returns."""
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
    """Returns where the listeners for brokers alone of these hosts' brokers are; takes the hosts' variables, of which
    `broker_all` has their brokers as broker_instances returns them.
    """
    return [
        address
        for host in hosts
        for broker in host.get("broker_all", [])
        if (address := _address_between(broker))
    ]


def _address_between(broker: Mapping[str, Any]) -> str:
    """`host:port`, an IPv6 address in brackets; empty where it has no such listener."""
    matches = map(_LISTENER.fullmatch, broker["properties"]["advertised.listeners"].split(","))
    found = [each for each in matches if each and each["name"].upper() == BETWEEN]
    if not found:
        return ""
    return host_port(found[0]["host"], found[0]["port"])


def broker_unreached(hosts: Iterable[Mapping[str, Any]], all_are_up: bool) -> list[str]:
    """Returns, in words, which hosts cannot connect to which brokers' own listeners; takes the variables of all hosts,
    with `broker_all`, and `broker_reached.unreached`, what broker_reach_info found there.

    Unless `all_are_up`, a broker whom its own host does not reach either is left out: it may wait for this deployment
    to be mended, and that nobody listens there says nothing of what is between.
    """
    looked = [host for host in hosts if "unreached" in host.get("broker_reached", {})]
    brokers = [
        (str(host["inventory_hostname"]), int(broker["id"]), address, host["broker_reached"]["unreached"])
        for host in looked
        for broker in host.get("broker_all", [])
        if (address := _address_between(broker))
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
    """What Ansible loads."""

    def filters(self) -> dict[str, Any]:
        return {
            "broker_own_port": broker_own_port,
            "broker_between": broker_between,
            "broker_strangers": broker_strangers,
            "broker_any_without_own": broker_any_without_own,
            "broker_speaks_between": broker_speaks_between,
            "broker_ports": broker_ports,
            "broker_port_clashes": broker_port_clashes,
            "broker_addresses": broker_addresses,
            "broker_unreached": broker_unreached,
        }
