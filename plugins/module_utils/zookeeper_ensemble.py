"""The servers of a ZooKeeper ensemble as they were seen, quorums of them, and a step as it is told.

Pure. What follows from all of it, the next step that is safe, is decided by the filter `zookeeper_next_step`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Ids = frozenset[int]


@dataclass(frozen=True)
class Server:
    """One server as it was seen.

    `position` is (epoch, last zxid on its disk), as elections compare them; a zxid of 0 is an empty server.
    `members` are the ids it runs with, or, stopped, those in its configuration; empty where there is none.
    `current`: it runs with the settings that the inventory wants. `sole`: nothing was committed since it was the only
    server with the tree. `bare`: it has snapshots and no transaction log, so what it was told last may be gone. `lines`
    are the addresses of its ensemble as its configuration has them, by id.
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
    """What zookeeper_server_info found on one host, with its `id` and `host`."""
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
    """How many of them decide."""
    return len(members) // 2 + 1


def can_part(first: Ids, second: Ids, alive: Ids) -> bool:
    """Whether, of those that may be alive, one quorum of each list can form without a server in common."""
    if first == second:
        return False
    quorums = len(first & alive) >= majority(first) and len(second & alive) >= majority(second)
    return quorums and majority(first) + majority(second) <= len((first | second) & alive)


def zxid_of(server: Server) -> str:
    """The last zxid on its disk, as ZooKeeper writes them."""
    return f"zxid 0x{server.position[1]:x}"


def step_for(action: str, servers: Iterable[Server], why: str, members: Ids = frozenset()) -> dict[str, Any]:
    """A step, its `why` with the servers' names; `members` empty: as each server is configured."""
    chosen = sorted(servers, key=lambda server: server.id)
    return {
        "action": action,
        "hosts": [server.host for server in chosen],
        "members": sorted(members),
        "why": f"{action} {', '.join(server.name for server in chosen)}: {why}" if chosen else why,
    }
