"""The observed servers of a ZooKeeper ensemble, their quorums, and the description of a step.

Pure. The filter `zookeeper_next_step` decides the next safe step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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


def step_for(action: str, servers: Iterable[Server], why: str, members: Ids = frozenset()) -> dict[str, Any]:
    """A step; its `why` includes the servers' names. Empty `members`: keep each server's configuration."""
    chosen = sorted(servers, key=lambda server: server.id)
    return {
        "action": action,
        "hosts": [server.host for server in chosen],
        "members": sorted(members),
        "why": f"{action} {', '.join(server.name for server in chosen)}: {why}" if chosen else why,
    }
