"""Decides how a ZooKeeper ensemble is changed: from the observed state of its servers, the next single
safe step.

Pure. The role inspects all servers, calls `zookeeper_next_step`, does that step, and repeats until no step is
left. No state is kept between two steps, so a run that dies anywhere is continued by the next one.
docs/adr/0022 explains what makes a step safe, and the order of the steps.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

# Ansible copies these modules to the hosts. A filter runs on the controller, where it finds them
# by directory.
sys.path.append(str(Path(__file__).parents[1] / "module_utils"))

from zookeeper_ensemble import Ids, Server, can_part, majority, server_of, step_for, zxid_of

_AT_A_TIME = 2


def zookeeper_next_step(
    seen: Iterable[Mapping[str, Any]],
    wanted: Mapping[Any, str],
    gone: Collection[Any] = (),
    trusted: Any = 0,
    lines: Mapping[Any, str] | None = None,
) -> dict[str, Any]:
    """Returns the next step: `action`, the `hosts` it is for, `members` to configure, and `why`, as text.

    `seen`: the results of zookeeper_server_info, each with its `id` and `host`, including servers that leave.
    `wanted`: the hosts of the ensemble by id. `gone`: ids of former members that are on no host of the
    inventory and do not answer. `trusted`: the id of the server whose tree the operator declared to be the
    right one. `lines`: the wanted addresses by id, as in zoo.cfg.

    Actions: none; start (several at once); restart, stop or retire one; wait; refuse. Empty `members`: keep
    the server's configuration.
    """
    servers = {server.id: server for server in map(server_of, seen)}
    ensemble = Ensemble(
        servers,
        {int(key): host for key, host in wanted.items()},
        frozenset(map(int, gone)),
        int(trusted),
        {int(key): line for key, line in (lines or {}).items()},
    )
    step = ensemble.next_step()
    return {**step, "witness": ensemble.witness(step), "until": ensemble.until(step)}


class Ensemble:
    """The observed ensemble, and what follows from it."""

    def __init__(
        self,
        servers: Mapping[int, Server],
        wanted: Mapping[int, str],
        gone: Ids,
        trusted: int,
        lines: Mapping[int, str],
    ) -> None:
        self.servers = servers
        self.hosts = wanted
        self.wanted: Ids = frozenset(wanted)
        self.gone = gone
        self.trusted = trusted
        self.lines = lines
        self.serving = {server.id for server in servers.values() if server.serves}
        self.leaders = [server for server in servers.values() if server.leads]

    def next_step(self) -> dict[str, Any]:
        """The next step."""
        if len(self.leaders) > 1:
            names = " and ".join(f"{leader.name} leads {sorted(leader.members)}" for leader in self.leaders)
            return self._refuse(
                f"there are two ensembles, with a tree each: {names}. Stop zookeeper.service on the hosts of the wrong "
                "one, disable it there, and move its version-2 away"
            )
        if moved := self._refuse_moved_servers():
            return moved
        if self.leaders:
            return self._while_serving(self.leaders[0])
        return self._behind_an_unseen_leader() or self._without_quorum()

    def witness(self, step: Mapping[str, Any]) -> str:
        """The host that is asked, while a leader restarts, whether the others have elected a new leader; ""
        for none.
        """
        leads = [
            server for server in self.leaders if server.mode == "leader" and server.host in step["hosts"]
        ]
        others = [
            server for server in self._wanted_servers() if server.serves and server.host not in step["hosts"]
        ]
        return others[0].host if step["action"] == "restart" and leads and others else ""

    def until(self, step: Mapping[str, Any]) -> str:
        """The state to wait for in a started server: serving, or only alive where it needs other servers
        to serve.
        """
        standalone = any(server.mode == "standalone" for server in self.leaders)
        grows = standalone and len(step["members"]) > 1
        return "alive" if not self.leaders or grows else "serving"

    def _refuse_moved_servers(self) -> dict[str, Any] | None:
        """Refuses new addresses of running servers.

        A restarted server would connect to the new addresses, where the servers that still run with the old
        ones do not listen. A stopped server may change its address, because no other server counts on it now.
        """
        moved = [
            f"{self._name(own_id)} listens at {old} and is to be at {self.lines[own_id]}"
            for own_id in sorted(self.wanted & set(self.lines))
            if (old := self._listens_at(own_id)) not in {"", self.lines[own_id]}
        ]
        if not moved:
            return None
        return self._refuse(
            f"addresses or ports of running servers change: {'; '.join(moved)}. One server at a time cannot take "
            "them: the first one that restarts finds nobody at the new addresses. Nothing was touched. Set "
            "zookeeper_address, zookeeper_peer_port and zookeeper_election_port back; or, to change them, stop "
            "zookeeper.service on all hosts of the ensemble and run this again at once: all start with the new "
            "ones. Until then no broker's death is noticed, and no leader moves"
        )

    def _listens_at(self, own_id: int) -> str:
        """The address of a server that others may count on and that is not configured as wanted; "" for
        any other.
        """
        if own_id in self.servers:
            server = self.servers[own_id]
            counts = server.serves if self.serving else server.running
            return server.lines.get(own_id, "") if counts and not server.current else ""
        others = [server for server in self.servers.values() if server.running and not server.current]
        return next((server.lines[own_id] for server in others if own_id in server.lines), "")

    def _behind_an_unseen_leader(self) -> dict[str, Any] | None:
        """Followers serve, so there is a quorum. If its leader was not seen, no step is allowed."""
        followers = [server for server in self.servers.values() if server.serves]
        unseen = sorted(frozenset().union(*(server.members for server in followers)) - set(self.servers))
        if not unseen:
            return None
        names = ", ".join(map(self._name, unseen))
        if all(server.current and server.members == self.wanted for server in self._wanted_servers()):
            return step_for("none", [], f"{names} were not seen; the others are as wanted")
        return self._refuse(
            f"{followers[0].name} serves, but its leader was not seen. Bring these hosts back, or run this without "
            f"--limit: {names}"
        )

    # A quorum serves

    def _while_serving(self, leader: Server) -> dict[str, Any]:
        target = self._target(leader)
        steps = (
            self._refuse_a_stranger(leader),
            self._retire(leader),
            self._start_a_member(leader),
            self._restart_one(leader, target),
            self._start_a_newcomer(leader, target),
            self._stop_a_leaver(leader, target),
            self._hand_over(leader, target),
            self._start_a_leaver(leader, target),
            self._leave_the_standalone(leader, target),
            self._to_the_standalone(leader, target),
        )
        for step in steps:
            if step is not None:
                return step
        old = self._outdated(target)
        if old or target != self.wanted or leader.members != self.wanted:
            return self._refuse(self._why_stuck(leader, target))
        missing = self._missing(target)
        return step_for("none", [], f"server(s) {missing} were not seen" if missing else "nothing to do")

    def _target(self, leader: Server) -> Ids:
        """The member list to aim for now: new servers join before any server leaves, two at a time.

        Two, because new servers need a quorum of the new list that serves already, and because a leaving
        server must hand over the leadership to one that stays. If two lists are in use, the change between
        them is completed first.
        """
        running = {
            server.members
            for server in self.servers.values()
            if server.running and server.id in leader.members
        }
        lists = {one - self.gone for one in running}
        if len(lists) > 1:
            return (
                min(lists, key=len) if all(one >= self.wanted for one in lists) else frozenset().union(*lists)
            )
        (members,) = lists
        if coming := sorted(self.wanted - members):
            return members.union(coming[:_AT_A_TIME] if len(members) > 1 else coming)
        return members.difference(sorted(members - self.wanted)[-_AT_A_TIME:])

    def _start_a_member(self, leader: Server) -> dict[str, Any] | None:
        """Starts a stopped member with the leader's list. If it is empty, the leader sends it the tree."""
        down = [
            server
            for server in self._wanted_servers()
            if not server.running and server.id in leader.members and not self._is_newcomer(server, leader)
        ]
        if not down:
            return None
        return step_for("start", down[:1], "a member that does not run", leader.members)

    def _is_newcomer(self, server: Server, leader: Server) -> bool:
        """Whether it is in the leader's list but not in every voter's. It has to wait until it is in all
        of them.
        """
        voters = [each for each in self.servers.values() if each.running and each.id in leader.members]
        return any(server.id not in each.members for each in voters)

    def _refuse_a_stranger(self, leader: Server) -> dict[str, Any] | None:
        """Refuses a new server that this role never configured but that has a tree: it may be
        another ensemble's.
        """
        for server in self._wanted_servers():
            if self._is_outside(server) and server.full and not server.members and server is not leader:
                return self._refuse(
                    f"{server.name} is to join, but has a tree of its own (zxid 0x{server.position[1]:x}). If nobody "
                    "needs it, move version-2 out of its data directory (and out of zookeeper_data_log_dir)"
                )
        return None

    def _retire(self, leader: Server) -> dict[str, Any] | None:
        """A server that is in no list leaves for good. Its data is moved aside, so if it joins again, it
        starts empty.
        """
        left = [
            server
            for server in self.servers.values()
            if self._is_outside(server)
            and server is not leader
            and (server.full or server.running or server.enabled)
            and not (server.running and server.id in self.wanted)
        ]
        return step_for("retire", left[:1], "the ensemble has it no more") if left else None

    def _is_outside(self, server: Server) -> bool:
        """Whether no running server that is or was a voter has it in its list."""
        voters = [each for each in self.servers.values() if each.running and each.id != server.id]
        return not any(server.id in each.members for each in voters if each.id in self.wanted or each.serves)

    def _outdated(self, target: Ids) -> list[Server]:
        running = [server for server in self.servers.values() if server.running and server.id in target]
        return [
            server
            for server in running
            if server.members != target or (target == self.wanted and not server.current)
        ]

    def _restart_one(self, leader: Server, target: Ids) -> dict[str, Any] | None:
        """Followers first, because each restart of a leader costs an election."""
        outdated = sorted(self._outdated(target), key=lambda server: (server.leads, server.serves, server.id))
        for server in outdated:
            if server.leads and len(outdated) > 1:
                continue
            if self._bears(server, leader, target) and self._is_safe({target}):
                why = (
                    "its settings changed"
                    if server.members == target
                    else f"its ensemble becomes {sorted(target)}"
                )
                return step_for("restart", [server], why, target)
        return None

    def _bears(self, server: Server, leader: Server, target: Ids) -> bool:
        """Whether the others keep serving without it, and it finds a quorum of its new list when it
        is back.
        """
        rest = frozenset(self.serving - {server.id})
        if target == leader.members and majority(target) == len(target):
            return rest == target - {server.id}  # one server: there is no other to lose
        if len(rest & target) < majority(target):
            return False
        if server.leads:
            return all(self.servers[each].members == target for each in rest & target)
        return len(rest & leader.members) >= majority(leader.members) and leader.id in target

    def _is_safe(self, more: Collection[Ids], start: int = 0) -> bool:
        """Whether no two lists in use could form separate quorums, if these lists and this server were used
        as well.
        """
        running = [server for server in self.servers.values() if server.running]
        lists = {server.members for server in running} | set(more)
        known_down = {
            server.id for server in self.servers.values() if not server.running and not server.enabled
        }
        alive = frozenset().union(*lists) - known_down - self.gone | {start}
        return not any(can_part(one, other, alive) for one, other in itertools.combinations(lists, 2))

    def _start_a_newcomer(self, leader: Server, target: Ids) -> dict[str, Any] | None:
        if leader.mode == "standalone" or len(self.serving & target) < majority(target):
            return None
        for server in self._wanted_servers():
            if not server.running and server.id in target and self._is_safe({target}, server.id):
                return step_for("start", [server], "it joins, and takes the tree from the leader", target)
        return None

    def _stop_a_leaver(self, leader: Server, target: Ids) -> dict[str, Any] | None:
        """While both lists are in use, fewer servers must be alive than the sum of both quorums."""
        leaving = sorted(
            (
                each
                for each in self.servers.values()
                if each.id not in target and (each.running or each.enabled)
            ),
            key=lambda server: (server.running, server.leads, -server.id),
        )
        for server in leaving:
            serves_on = len((self.serving - {server.id}) & leader.members) >= majority(leader.members)
            if serves_on and (len(target) == 1 or not self._is_safe({target})):
                return step_for("stop", [server], f"it leaves the ensemble, which becomes {sorted(target)}")
        return None

    def _hand_over(self, leader: Server, target: Ids) -> dict[str, Any] | None:
        if leader.id in target or len((self.serving - {leader.id}) & leader.members) < majority(
            leader.members
        ):
            return None
        return step_for("restart", [leader], "a server that leaves must not lead", leader.members)

    def _start_a_leaver(self, leader: Server, target: Ids) -> dict[str, Any] | None:
        """The server is needed again, so that the others can change to the new list while the old one keeps
        its quorum.
        """
        for server in sorted(self.servers.values(), key=lambda each: each.id):
            leaves = not server.running and server.id in leader.members - target
            if leaves and len(target) > 1 and self._is_safe({target}, server.id):
                return step_for(
                    "start", [server], "the others need it until they have changed", leader.members
                )
        return None

    def _leave_the_standalone(self, leader: Server, target: Ids) -> dict[str, Any] | None:
        """The only server gets the new list first; then one empty server forms a quorum with it."""
        if len(leader.members) > 1 or leader.id not in target or target == leader.members:
            return None
        ready = [server for server in self._wanted_servers() if not server.running and not server.full]
        if len(ready) < majority(target) - 1:
            return None
        return step_for("restart", [leader], f"its ensemble becomes {sorted(target)}", target)

    def _to_the_standalone(self, leader: Server, target: Ids) -> dict[str, Any] | None:
        """If no quorum is possible without the last server, it has all acknowledged writes, and the others
        may stop.
        """
        if len(target) > 1 or not target <= self.serving or leader.members == target:
            return None
        down = {server.id for server in self.servers.values() if not server.running and not server.enabled}
        if len(leader.members - target - down - self.gone) >= majority(leader.members):
            return None
        leaving = [server for server in self.servers.values() if server.running and server.id not in target]
        return (
            step_for("stop", leaving, f"{self.servers[min(target)].name} has the whole tree")
            if leaving
            else None
        )

    def _why_stuck(self, leader: Server, target: Ids) -> str:
        down = sorted((leader.members | self.wanted) - self.serving)
        names = ", ".join(self._name(each) for each in down) or "none"
        return (
            f"the ensemble {sorted(leader.members)} is to become {sorted(target)}, or a server to restart, "
            f"but without one more of it there would be no quorum, or two. Not serving: {names}. Bring them back "
            "(journalctl -u zookeeper.service there; no --limit), and run this again. A host that is gone for good is "
            "replaced by one with the same zookeeper_id; one that leaves stays in the inventory, outside "
            "of the ensemble's group, until it was stopped"
        )

    # No quorum

    def _without_quorum(self) -> dict[str, Any]:
        full = [server for server in self.servers.values() if server.full]
        if not full:
            return self._first_install()
        newest = max(full, key=lambda server: (server.position, server.running, server.id in self.wanted))
        members = newest.members or self.wanted
        have = [
            server
            for server in full
            if server.id in members
            and (not server.bare or server.id == self.trusted or self._was_just_filled(server))
        ]
        if step := self._become_standalone(members):
            return step
        without = [server for server in self.servers.values() if server.id in members and server not in have]
        too_few = len(have) < majority(members)
        fills = too_few and len(have) + len(without) >= majority(members)
        truth = self._truth(have, without) if fills else None
        if fills and truth is None:
            return self._refuse_the_lost(have, without, members)
        if stopped := [server for server in have if not server.running]:
            as_wanted = members == self.wanted and not any(server.running for server in self.servers.values())
            return step_for(
                "start",
                stopped,
                "the servers with the tree come first",
                self.wanted if as_wanted else frozenset(),
            )
        if not too_few:
            return step_for("wait", have, "they are enough for a quorum")
        if truth is not None:
            return self._fill(truth, have, without, members)
        unseen = ", ".join(self._name(each) for each in sorted(members - set(self.servers)))
        return self._refuse(
            f"no quorum of {sorted(members)}: {unseen} were not seen. Bring their hosts back, and run this again"
        )

    def _was_just_filled(self, server: Server) -> bool:
        """Whether it runs and has the same last zxid as a server with a log: a follower without writes since
        its filling.
        """
        whole = (other for other in self.servers.values() if other.full and not other.bare)
        return server.running and any(other.position[1] == server.position[1] for other in whole)

    def _first_install(self) -> dict[str, Any]:
        if missing := self._missing(self.wanted):
            return self._refuse(
                f"all servers that were seen are empty, and {', '.join(map(self._name, missing))} were not seen: they "
                "may have the tree, which empty servers would outvote. Bring their hosts back, or take them from the "
                "inventory"
            )
        todo = [
            server for server in self._wanted_servers() if not server.running or server.members != self.wanted
        ]
        if todo:
            return step_for("start", todo, "a new ensemble, all servers empty", self.wanted)
        return step_for("wait", self._wanted_servers(), "a new ensemble, all servers empty")

    def _become_standalone(self, members: Ids) -> dict[str, Any] | None:
        """Restarts the last server alone: the others were stopped on purpose, and its tree is as new
        as theirs.
        """
        only = self.servers.get(min(self.wanted))
        if len(self.wanted) > 1 or only is None or members == self.wanted or members - set(self.servers):
            return None
        others = [server for server in self.servers.values() if server.id in members and server is not only]
        if any(server.running or server.bare or server.position > only.position for server in others):
            return None
        return step_for("restart", [only], "it goes on alone, with as new a tree as any", self.wanted)

    def _truth(self, have: list[Server], without: list[Server]) -> Server | None:
        """The server whose tree the others may take, although too few servers have one.

        None if disks were lost and the operator trusts no server. The server must win the election, because a
        newer one would continue with its own tree. Or it must have the same last zxid as the winner: in an
        election, a follower that was just filled may have recorded the new epoch before its leader.
        """
        first = next((server for server in have if server.id == self.trusted), None)
        if first is None and len(have) == 1 and have[0].sole:
            first = have[0]
        if first is None:
            return None
        alike = (
            each.position <= first.position or each.position[1] == first.position[1]
            for each in [*have, *without]
        )
        return first if all(alike) else None

    def _fill(self, truth: Server, have: list[Server], without: list[Server], members: Ids) -> dict[str, Any]:
        """Starts as many servers without a tree as a quorum needs.

        This is for the change from one server to several, or for a server that the operator trusts.
        """
        need = majority(members) - len(have)
        running = [server for server in without if server.running]
        if len(running) >= need:
            return step_for("wait", [*have, *running], "they are enough for a quorum")
        chosen = [server for server in without if not server.running][: need - len(running)]
        return step_for("start", chosen, f"it makes a quorum with {truth.name}, and takes its tree", members)

    def _refuse_the_lost(self, have: list[Server], without: list[Server], members: Ids) -> dict[str, Any]:
        newest = max([*have, *without], key=lambda server: server.position)
        empty = ", ".join(server.name for server in without if not server.full)
        bare = ", ".join(f"{server.name}, {zxid_of(server)}" for server in without if server.full)
        whole = ", ".join(f"{server.name}, {zxid_of(server)}" for server in have) or "none that was seen"
        lost = [
            f"{empty} lost the tree: nothing in their data directories" if empty else "",
            f"{bare} have snapshots without any transaction log (zookeeper_data_log_dir): what they were told after "
            "them is gone, if there was anything"
            if bare
            else "",
        ]
        return self._refuse(
            f"{'; '.join(filter(None, lost))}. They are members of {sorted(members)} and together would outvote "
            f"the server(s) that have the whole tree ({whole}), or those that were not seen, and take acknowledged "
            "writes from the cluster's metadata, so nothing was started. Put their disks back, if they still are "
            "somewhere, and bring back the hosts that were not seen. If that cannot be, the newest copy is all "
            f"there is, and may lack the last writes; to go on with it: -e zookeeper_trusted_id={newest.id}"
        )

    # Helpers

    def _wanted_servers(self) -> list[Server]:
        return [self.servers[each] for each in sorted(self.wanted) if each in self.servers]

    def _missing(self, members: Ids) -> list[int]:
        return sorted(members - set(self.servers))

    def _name(self, own_id: int) -> str:
        if own_id in self.servers:
            return self.servers[own_id].name
        return (
            f"server {own_id} ({self.hosts[own_id]}, not seen)"
            if own_id in self.hosts
            else f"server {own_id}"
        )

    def _refuse(self, why: str) -> dict[str, Any]:
        return step_for("refuse", [], why)


class FilterModule:
    """The class that Ansible loads."""

    def filters(self) -> dict[str, Any]:
        return {"zookeeper_next_step": zookeeper_next_step}
