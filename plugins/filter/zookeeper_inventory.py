# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""An ensemble according to the inventory and to the observed state of its hosts. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ansible_collections.landline.cluster.plugins.module_utils.addresses import host_port, service_address
from ansible_collections.landline.cluster.plugins.module_utils.zookeeper_words import servers_in


def zookeeper_hosts(hosts: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Returns the names of an ensemble's hosts by server id; takes the hosts' inventory variables."""
    return {
        str(host.get("zookeeper_id") or place): str(host["inventory_hostname"])
        for place, host in enumerate(hosts, 1)
    }


def zookeeper_lines(hosts: Iterable[Mapping[str, Any]], peer_port: int, election_port: int) -> dict[str, str]:
    """Returns the addresses of an ensemble's servers as in zoo.cfg, by id."""
    lines = {}
    for place, host in enumerate(hosts, 1):
        address = str(host.get("zookeeper_address") or service_address(host))
        lines[str(host.get("zookeeper_id") or place)] = host_port(address, f"{peer_port}:{election_port}")
    return lines


def zookeeper_seen_on(hosts: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns the result of zookeeper_server_info on each host, plus the `host`."""
    return [
        {**host["zookeeper_looked"], "host": str(host["inventory_hostname"])}
        for host in hosts
        if host.get("zookeeper_looked", {}).get("present")
    ]


def zookeeper_unknown(seen: Iterable[Mapping[str, Any]], wanted: Mapping[Any, str]) -> dict[str, str]:
    """Returns the addresses, by id, of members that were neither seen on a host nor are wanted."""
    servers = list(seen)
    known = {int(server["id"]) for server in servers} | set(map(int, wanted))
    lines = {key: line for server in servers for key, line in server["servers"].items()}
    return {key: line for key, line in sorted(lines.items()) if int(key) not in known}


def zookeeper_leavers(hosts: Iterable[Mapping[str, Any]], group: Collection[str]) -> list[str]:
    """Returns the hosts outside of `group` whose servers serve; takes all hosts' variables."""
    return [
        str(seen["host"])
        for seen in zookeeper_seen_on(hosts)
        if seen["state"] != "stopped" and seen["mode"] and seen["host"] not in group
    ]


def zookeeper_left_behind(hosts: Iterable[Mapping[str, Any]], connect: str, leaving: str = "") -> list[str]:
    """Returns descriptions of the brokers that run and know none of the servers in `connect` but those in `leaving`;
    takes the hosts' variables, with the result of zookeeper_quorum_info.
    """
    staying = set(map(_place, servers_in(connect).values())) - set(map(_place, servers_in(leaving).values()))
    return [
        f"{unit} on {host['inventory_hostname']} knows {', '.join(named)}"
        for host in hosts
        for unit, named in sorted(host.get("broker_quorum_looked", {}).get("broker_connects", {}).items())
        if not staying & set(map(_place, servers_in(",".join(named)).values()))
    ]


def _place(server: tuple[str, int]) -> tuple[str, int]:
    """A server in the one way to write it: an address of IPv6 has many."""
    host, port = server
    try:
        return str(ipaddress.ip_address(host)), port
    except ValueError:
        return host.lower(), port


_BEST_FIRST = ("serves", "unclear", "alone", "silent")
_IN_WORDS = {
    "silent": "{} does not answer",
    "alone": "{} answers that it serves nobody",
}


def zookeeper_doubts(looks: Iterable[Mapping[str, Any]], mended: bool) -> list[str]:
    """Returns descriptions of the servers that keep a deployment from starting; empty if it may start.

    `looks`: the result of zookeeper_quorum_info on each host that was reached. `mended`: this run starts
    stopped servers.

    A deployment may start in any of three cases. A server serves, or may serve as far as can be seen. No
    broker runs that could be lost. The servers that answer and those that can be started are enough for a
    quorum. If several answer, none leads, and none is stopped, a deployment does not know what to fix.
    """
    seen = list(looks)
    states = {
        server: min((look["servers"].get(server, "silent") for look in seen), key=_BEST_FIRST.index)
        for server in sorted({server for look in seen for server in look["servers"]})
    }
    if not any(look["broker_runs"] for look in seen) or {"serves", "unclear"} & set(states.values()):
        return []
    enough = len(states) // 2 + 1
    startable = sum(bool(look["server_stopped"]) for look in seen) if mended else 0
    if (startable or (mended and len(states) == 1)) and list(states.values()).count(
        "alone"
    ) + startable >= enough:
        return []
    return [_IN_WORDS[state].format(server) for server, state in states.items()]


class FilterModule:
    """The class that Ansible loads."""

    def filters(self) -> dict[str, Any]:
        return {
            "zookeeper_hosts": zookeeper_hosts,
            "zookeeper_lines": zookeeper_lines,
            "zookeeper_seen_on": zookeeper_seen_on,
            "zookeeper_unknown": zookeeper_unknown,
            "zookeeper_leavers": zookeeper_leavers,
            "zookeeper_left_behind": zookeeper_left_behind,
            "zookeeper_doubts": zookeeper_doubts,
        }
