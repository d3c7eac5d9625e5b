# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""Decides how a ZooKeeper ensemble is changed: from the observed state of its servers, the next single
safe step.

Pure. The role inspects all servers, calls `zookeeper_next_step`, does that step, and repeats until no step is
left. No state is kept between two steps, so a run that dies anywhere is continued by the next one.
docs/adr/0022 explains what makes a step safe, and the order of the steps. This module has the steps while a
quorum serves; zookeeper_recovery has those without a quorum, zookeeper_ensemble the observed servers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ansible_collections.landline.cluster.plugins.module_utils.zookeeper_ensemble import (
    Ensemble,
    Ids,
    Server,
    majority,
    refuse,
    server_of,
    step_for,
)
from ansible_collections.landline.cluster.plugins.module_utils.zookeeper_recovery import Recovery

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
    # In order, for hosts are seen as they answer, and the words must not depend on that.
    servers = {server.id: server for server in sorted(map(server_of, seen), key=lambda each: each.id)}
    ensemble = Ensemble(
        servers,
        {int(key): host for key, host in wanted.items()},
        frozenset(map(int, gone)),
        int(trusted),
        {int(key): line for key, line in (lines or {}).items()},
    )
    step = _next_step(ensemble)
    return {**step, "witness": _witness(ensemble, step), "until": _until(ensemble, step)}


def _next_step(ensemble: Ensemble) -> dict[str, Any]:
    if len(ensemble.leaders) > 1:
        names = " and ".join(f"{leader.name} leads {sorted(leader.members)}" for leader in ensemble.leaders)
        return refuse(
            f"there are two ensembles, with a tree each: {names}. Stop zookeeper.service on the hosts of the wrong "
            "one, disable it there, and move its version-2 away"
        )
    if refused := _refuse_what_others_set_up(ensemble) or _refuse_moved_servers(ensemble):
        return refused
    if ensemble.leaders:
        return Change(ensemble, ensemble.leaders[0]).next_step()
    return _behind_an_unseen_leader(ensemble) or Recovery(ensemble).next_step()


def _witness(ensemble: Ensemble, step: Mapping[str, Any]) -> str:
    """The host that is asked, while a leader restarts, whether the others have elected a new leader; ""
    for none.
    """
    leads = [
        server for server in ensemble.leaders if server.mode == "leader" and server.host in step["hosts"]
    ]
    others = [
        server for server in ensemble.wanted_servers() if server.serves and server.host not in step["hosts"]
    ]
    return others[0].host if step["action"] == "restart" and leads and others else ""


def _until(ensemble: Ensemble, step: Mapping[str, Any]) -> str:
    """The state to wait for in a started server: serving, or only alive where it needs other servers
    to serve.
    """
    standalone = any(server.mode == "standalone" for server in ensemble.leaders)
    grows = standalone and len(step["members"]) > 1
    return "alive" if not ensemble.leaders or grows else "serving"


def _refuse_what_others_set_up(ensemble: Ensemble) -> dict[str, Any] | None:
    """Refuses running servers of which neither the process nor a configuration of the role's tells the ensemble."""
    names = [server.name for server in ensemble.servers.values() if server.running and not server.members]
    if not names:
        return None
    return refuse(
        f"{', '.join(names)}: zookeeper.service runs there, and was not set up by this role, so its ensemble is not "
        "known. No server was touched. If the brokers are to use that ensemble as it is, take its hosts out of the "
        "group zookeeper, and set broker_zookeeper_connect. Otherwise stop and disable zookeeper.service there, move "
        "version-2 out of its data directory if nobody needs its tree, and run this again"
    )


def _refuse_moved_servers(ensemble: Ensemble) -> dict[str, Any] | None:
    """Refuses new addresses of running servers.

    A restarted server would connect to the new addresses, where the servers that still run with the old
    ones do not listen. A stopped server may change its address, because no other server counts on it now.
    """
    moved = [
        f"{ensemble.name_of(own_id)} listens at {old} and is to be at {ensemble.lines[own_id]}"
        for own_id in sorted(ensemble.wanted & set(ensemble.lines))
        if (old := ensemble.listens_at(own_id)) not in {"", ensemble.lines[own_id]}
    ]
    if not moved:
        return None
    return refuse(
        f"addresses or ports of running servers change: {'; '.join(moved)}. One server at a time cannot take "
        "them: the first one that restarts finds nobody at the new addresses. Nothing was touched. Set "
        "zookeeper_address, zookeeper_peer_port and zookeeper_election_port back; or, to change them, stop "
        "zookeeper.service on all hosts of the ensemble and run this again at once: all start with the new "
        "ones. Until then no broker's death is noticed, and no leader moves"
    )


def _behind_an_unseen_leader(ensemble: Ensemble) -> dict[str, Any] | None:
    """Followers serve, so there is a quorum. If its leader was not seen, no step is allowed."""
    followers = [server for server in ensemble.servers.values() if server.serves]
    unseen = sorted(frozenset().union(*(server.members for server in followers)) - set(ensemble.servers))
    if not unseen:
        return None
    names = ", ".join(map(ensemble.name_of, unseen))
    if all(server.current and server.members == ensemble.wanted for server in ensemble.wanted_servers()):
        return step_for("none", [], f"{names} were not seen; the others are as wanted")
    return refuse(
        f"{followers[0].name} serves, but its leader was not seen. Bring these hosts back, or run this without "
        f"--limit: {names}"
    )


class Change:
    """The change of a serving ensemble into the wanted one.

    No step lets two lists of members have separate quorums. `leader` leads the ensemble, with the list
    `members`; `target` is the list to aim for now.
    """

    def __init__(self, ensemble: Ensemble, leader: Server) -> None:
        self.ensemble = ensemble
        self.servers = list(ensemble.servers.values())
        self.wanted = ensemble.wanted
        self.serving = ensemble.serving
        self.leader = leader
        self.members = leader.members
        self.target = self._target()

    def next_step(self) -> dict[str, Any]:
        """The first step in this order that is possible now; none where all is as wanted; or a refusal."""
        steps = (
            self._refuse_a_stranger,
            self._retire,
            self._start_a_member,
            self._restart_one,
            self._start_a_newcomer,
            self._stop_a_leaver,
            self._hand_over,
            self._start_a_leaver,
            self._leave_the_standalone,
            self._to_the_standalone,
        )
        for find in steps:
            if step := find():
                return step
        old = self._outdated()
        if old or self.target != self.wanted or self.members != self.wanted:
            return refuse(self._why_stuck())
        missing = self.ensemble.missing(self.target)
        return step_for("none", [], f"server(s) {missing} were not seen" if missing else "nothing to do")

    def _target(self) -> Ids:
        """The member list to aim for now: new servers join before any server leaves, two at a time.

        Two, because new servers need a quorum of the new list that serves already, and because a leaving
        server must hand over the leadership to one that stays. If two lists are in use, the change between
        them is completed first.
        """
        running = {server.members for server in self.servers if server.running and server.id in self.members}
        lists = {one - self.ensemble.gone for one in running}
        if len(lists) > 1:
            return (
                min(lists, key=len) if all(one >= self.wanted for one in lists) else frozenset().union(*lists)
            )
        (members,) = lists
        if coming := sorted(self.wanted - members):
            return members.union(coming[:_AT_A_TIME] if len(members) > 1 else coming)
        return members.difference(sorted(members - self.wanted)[-_AT_A_TIME:])

    def _start_a_member(self) -> dict[str, Any] | None:
        """Starts a stopped member with the leader's list. If it is empty, the leader sends it the tree."""
        down = [
            server
            for server in self.ensemble.wanted_servers()
            if not server.running
            and server.id in self.members
            and not self.ensemble.is_newcomer(server, self.leader)
        ]
        if not down:
            return None
        return step_for("start", down[:1], "a member that does not run", self.members)

    def _refuse_a_stranger(self) -> dict[str, Any] | None:
        """Refuses a new server that this role never configured but that has a tree: it may be
        another ensemble's.
        """
        for server in self.ensemble.wanted_servers():
            unknown = server.full and not server.members and server is not self.leader
            if unknown and self.ensemble.is_outside(server):
                return refuse(
                    f"{server.name} is to join, but has a tree of its own (zxid 0x{server.position[1]:x}). If nobody "
                    "needs it, move version-2 out of its data directory (and out of zookeeper_data_log_dir)"
                )
        return None

    def _retire(self) -> dict[str, Any] | None:
        """A server that is in no list leaves for good. Its data is moved aside, so if it joins again, it
        starts empty.
        """
        left = [
            server
            for server in self.servers
            if self.ensemble.is_outside(server)
            and server is not self.leader
            and (server.full or server.running or server.enabled)
            and not (server.running and server.id in self.wanted)
        ]
        return step_for("retire", left[:1], "the ensemble has it no more") if left else None

    def _outdated(self) -> list[Server]:
        running = [server for server in self.servers if server.running and server.id in self.target]
        return [
            server
            for server in running
            if server.members != self.target or (self.target == self.wanted and not server.current)
        ]

    def _restart_one(self) -> dict[str, Any] | None:
        """Followers first, because each restart of a leader costs an election."""
        outdated = sorted(self._outdated(), key=lambda server: (server.leads, server.serves, server.id))
        for server in outdated:
            if server.leads and len(outdated) > 1:
                continue
            if self._bears(server) and self.ensemble.is_safe({self.target}):
                why = (
                    "its settings changed"
                    if server.members == self.target
                    else f"its ensemble becomes {sorted(self.target)}"
                )
                return step_for("restart", [server], why, self.target)
        return None

    def _bears(self, server: Server) -> bool:
        """Whether the others keep serving without it, and it finds a quorum of its new list when it
        is back.
        """
        rest = self.serving - {server.id}
        if self.target == self.members and majority(self.target) == len(self.target):
            return rest == self.target - {server.id}  # one server: there is no other to lose
        if len(rest & self.target) < majority(self.target):
            return False
        if server.leads:
            return all(self.ensemble.servers[each].members == self.target for each in rest & self.target)
        return self._serves_without(server) and self.leader.id in self.target

    def _serves_without(self, server: Server) -> bool:
        """Whether the others keep the quorum of the leader's list."""
        return len((self.serving - {server.id}) & self.members) >= majority(self.members)

    def _start_a_newcomer(self) -> dict[str, Any] | None:
        if self.leader.mode == "standalone" or len(self.serving & self.target) < majority(self.target):
            return None
        for server in self.ensemble.wanted_servers():
            joins = not server.running and server.id in self.target
            if joins and self.ensemble.is_safe({self.target}, server.id):
                why = "it joins, and takes the tree from the leader"
                return step_for("start", [server], why, self.target)
        return None

    def _stop_a_leaver(self) -> dict[str, Any] | None:
        """While both lists are in use, fewer servers must be alive than the sum of both quorums."""
        leaving = sorted(
            (each for each in self.servers if each.id not in self.target and (each.running or each.enabled)),
            key=lambda server: (server.running, server.leads, -server.id),
        )
        for server in leaving:
            must_go = len(self.target) == 1 or not self.ensemble.is_safe({self.target})
            if must_go and self._serves_without(server):
                why = f"it leaves the ensemble, which becomes {sorted(self.target)}"
                return step_for("stop", [server], why)
        return None

    def _hand_over(self) -> dict[str, Any] | None:
        if self.leader.id in self.target or not self._serves_without(self.leader):
            return None
        return step_for("restart", [self.leader], "a server that leaves must not lead", self.members)

    def _start_a_leaver(self) -> dict[str, Any] | None:
        """The server is needed again, so that the others can change to the new list while the old one keeps
        its quorum.
        """
        for server in sorted(self.servers, key=lambda each: each.id):
            leaves = not server.running and server.id in self.members - self.target
            if leaves and len(self.target) > 1 and self.ensemble.is_safe({self.target}, server.id):
                return step_for("start", [server], "the others need it until they have changed", self.members)
        return None

    def _leave_the_standalone(self) -> dict[str, Any] | None:
        """The only server gets the new list first; then one empty server forms a quorum with it."""
        if len(self.members) > 1 or self.leader.id not in self.target or self.target == self.members:
            return None
        ready = [
            server for server in self.ensemble.wanted_servers() if not server.running and not server.full
        ]
        if len(ready) < majority(self.target) - 1:
            return None
        return step_for("restart", [self.leader], f"its ensemble becomes {sorted(self.target)}", self.target)

    def _to_the_standalone(self) -> dict[str, Any] | None:
        """If no quorum is possible without the last server, it has all acknowledged writes, and the others
        may stop.
        """
        if len(self.target) > 1 or not self.target <= self.serving or self.members == self.target:
            return None
        others = self.members - self.target - self.ensemble.down - self.ensemble.gone
        if len(others) >= majority(self.members):
            return None
        leaving = [server for server in self.servers if server.running and server.id not in self.target]
        return (
            step_for("stop", leaving, f"{self.ensemble.servers[min(self.target)].name} has the whole tree")
            if leaving
            else None
        )

    def _why_stuck(self) -> str:
        down = sorted((self.members | self.wanted) - self.serving)
        names = ", ".join(self.ensemble.name_of(each) for each in down) or "none"
        return (
            f"the ensemble {sorted(self.members)} is to become {sorted(self.target)}, or a server to restart, "
            f"but without one more of it there would be no quorum, or two. Not serving: {names}. Bring them back "
            "(journalctl -u zookeeper.service there; no --limit), and run this again. A host that is gone for good is "
            "replaced by one with the same zookeeper_id; one that leaves stays in the inventory, outside "
            "of the ensemble's group, until it was stopped"
        )


class FilterModule:
    """The class that Ansible loads."""

    def filters(self) -> dict[str, Any]:
        return {"zookeeper_next_step": zookeeper_next_step}
