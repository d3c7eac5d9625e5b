# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""The observed servers of a ZooKeeper ensemble, their quorums, and the description of a step.

Pure. The next step is decided by the filter `zookeeper_next_step` while a quorum serves, and by
zookeeper_recovery while none does.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Ids = frozenset[int]


@dataclass(frozen=True)
class Server:
    """One server as it was observed.

    `position` is (epoch, last zxid on its disk), as elections compare them; a zxid of 0 is an empty server.
    `members` are the ids that it runs with or, if stopped, those in its configuration; empty where there is
    none. `current`: it runs with the settings that the inventory wants. `sole`: nothing was committed since
    it was the only server with the tree. `bare`: it has snapshots and no transaction log, so its last writes
    may be lost. `lines` are the addresses of its ensemble in its configuration, by id.
    """

    id: int
    host: str
    running: bool
    current: bool
    enabled: bool
    mode: str
    members: Ids
    position: tuple[int, int]
    sole: bool
    bare: bool
    lines: Mapping[int, str]

    @property
    def serves(self) -> bool:
        return self.running and bool(self.mode)

    @property
    def full(self) -> bool:
        return self.position[1] > 0

    @property
    def leads(self) -> bool:
        return self.running and self.mode in {"leader", "standalone"}

    @property
    def name(self) -> str:
        return f"server {self.id} ({self.host})"


def server_of(seen: Mapping[str, Any]) -> Server:
    """Builds a server from the result of zookeeper_server_info on one host, plus its `id` and `host`."""
    own_id = int(seen["id"])
    running = seen["state"] != "stopped"
    return Server(
        id=own_id,
        host=str(seen["host"]),
        running=running,
        current=seen["state"] == "current",
        enabled=bool(seen["enabled"]),
        mode=str(seen["mode"]) if running else "",
        members=frozenset(map(int, seen["members"])),
        position=(int(seen["epoch"]), int(seen["zxid"])),
        sole=bool(seen["sole"]),
        bare=bool(seen["bare"]),
        lines={int(key): str(line) for key, line in seen["servers"].items()},
    )


def majority(members: Ids) -> int:
    """The number of members that form a quorum."""
    return len(members) // 2 + 1


def can_part(first: Ids, second: Ids, alive: Ids) -> bool:
    """Whether the servers that may be alive can form a quorum of each list without a server in common."""
    if first == second:
        return False
    quorums = len(first & alive) >= majority(first) and len(second & alive) >= majority(second)
    return quorums and majority(first) + majority(second) <= len((first | second) & alive)


def zxid_of(server: Server) -> str:
    """The last zxid on its disk, as ZooKeeper writes it."""
    return f"zxid 0x{server.position[1]:x}"


@dataclass(frozen=True)
class Ensemble:
    """A ZooKeeper ensemble as it was observed and as it is wanted. Nothing in it changes.

    `servers`: the observed ones, by id, including those that leave. `hosts`: the wanted hosts, by id.
    `gone`: ids of former members that are on no host of the inventory and do not answer. `trusted`: the id
    of the server whose tree the operator declared to be the right one; 0 for none. `lines`: the wanted
    addresses, by id.
    """

    servers: Mapping[int, Server]
    hosts: Mapping[int, str]
    gone: Ids
    trusted: int
    lines: Mapping[int, str]

    @property
    def wanted(self) -> Ids:
        """The ids of the wanted servers."""
        return frozenset(self.hosts)

    @property
    def serving(self) -> Ids:
        """The ids of the servers that serve."""
        return frozenset(server.id for server in self.servers.values() if server.serves)

    @property
    def leaders(self) -> list[Server]:
        """The servers that lead; more than one is two ensembles."""
        return [server for server in self.servers.values() if server.leads]

    @property
    def down(self) -> Ids:
        """The ids of the servers that are stopped and stay so at boot."""
        return frozenset(
            server.id for server in self.servers.values() if not server.running and not server.enabled
        )

    def wanted_servers(self) -> list[Server]:
        """The observed ones of the wanted servers, by id."""
        return [self.servers[each] for each in sorted(self.wanted) if each in self.servers]

    def missing(self, members: Ids) -> list[int]:
        """The ids of these that were not observed."""
        return sorted(members - set(self.servers))

    def name_of(self, own_id: int) -> str:
        """The server's name, with its host where that is known."""
        if own_id in self.servers:
            return self.servers[own_id].name
        return (
            f"server {own_id} ({self.hosts[own_id]}, not seen)"
            if own_id in self.hosts
            else f"server {own_id}"
        )

    def listens_at(self, own_id: int) -> str:
        """The address of a server that others may count on and that is not configured as wanted; "" for
        any other.
        """
        if own_id in self.servers:
            server = self.servers[own_id]
            counts = server.serves if self.serving else server.running
            return server.lines.get(own_id, "") if counts and not server.current else ""
        others = [server for server in self.servers.values() if server.running and not server.current]
        return next((server.lines[own_id] for server in others if own_id in server.lines), "")

    def is_newcomer(self, server: Server, leader: Server) -> bool:
        """Whether it is in the leader's list but not in every voter's. It has to wait until it is in all
        of them.
        """
        voters = [each for each in self.servers.values() if each.running and each.id in leader.members]
        return any(server.id not in each.members for each in voters)

    def is_outside(self, server: Server) -> bool:
        """Whether no running server that is or was a voter has it in its list."""
        voters = [each for each in self.servers.values() if each.running and each.id != server.id]
        return not any(server.id in each.members for each in voters if each.id in self.wanted or each.serves)

    def is_safe(self, more: Collection[Ids], start: int = 0) -> bool:
        """Whether no two lists in use could form separate quorums, if these lists and this server were used
        as well.
        """
        running = [server for server in self.servers.values() if server.running]
        lists = {server.members for server in running} | set(more)
        alive = frozenset().union(*lists) - self.down - self.gone | {start}
        return not any(can_part(one, other, alive) for one, other in itertools.combinations(lists, 2))


def step_for(action: str, servers: Iterable[Server], why: str, members: Ids = frozenset()) -> dict[str, Any]:
    """A step; its `why` includes the servers' names. Empty `members`: keep each server's configuration."""
    chosen = sorted(servers, key=lambda server: server.id)
    return {
        "action": action,
        "hosts": [server.host for server in chosen],
        "members": sorted(members),
        "why": f"{action} {', '.join(server.name for server in chosen)}: {why}" if chosen else why,
    }


def refuse(why: str) -> dict[str, Any]:
    """The step that does nothing and says why."""
    return step_for("refuse", [], why)
