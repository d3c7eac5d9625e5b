# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""Decides the next step of a ZooKeeper ensemble in which no quorum serves.

Pure. While a quorum serves, the filter `zookeeper_next_step` decides. zookeeper_ensemble has the servers
that were observed.
"""

from __future__ import annotations

from typing import Any

from ansible_collections.landline.cluster.plugins.module_utils.zookeeper_ensemble import (
    Ensemble,
    Ids,
    Server,
    majority,
    refuse,
    step_for,
    zxid_of,
)


class Recovery:
    """The start of an ensemble without a quorum.

    Servers without the tree never outvote those that have it. Only the operator may declare which copy is the
    right one (`trusted`), if no quorum has the whole tree.
    """

    def __init__(self, ensemble: Ensemble) -> None:
        self.ensemble = ensemble
        self.servers = list(ensemble.servers.values())
        self.wanted = ensemble.wanted

    def next_step(self) -> dict[str, Any]:
        """The next step: first the servers that have the tree start, then those that take it from them."""
        full = [server for server in self.servers if server.full]
        if not full:
            return self._first_install()
        newest = max(full, key=lambda server: (server.position, server.running, server.id in self.wanted))
        members = newest.members or self.wanted
        have = [
            server
            for server in full
            if server.id in members
            and (not server.bare or server.id == self.ensemble.trusted or self._was_just_filled(server))
        ]
        if step := self._become_standalone(members):
            return step
        without = [server for server in self.servers if server.id in members and server not in have]
        too_few = len(have) < majority(members)
        fills = too_few and len(have) + len(without) >= majority(members)
        truth = self._truth(have, without) if fills else None
        if fills and truth is None:
            return self._await_an_election(have, without, members) or self._refuse_the_lost(
                have, without, members
            )
        if stopped := [server for server in have if not server.running]:
            as_wanted = members == self.wanted and not any(server.running for server in self.servers)
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
        unseen = ", ".join(map(self.ensemble.name_of, self.ensemble.missing(members)))
        return refuse(
            f"no quorum of {sorted(members)}: {unseen} were not seen. Bring their hosts back, and run this again"
        )

    def _was_just_filled(self, server: Server) -> bool:
        """Whether it runs and has the same last zxid as a server with a log: a follower without writes since
        its filling.
        """
        whole = (other for other in self.servers if other.full and not other.bare)
        return server.running and any(other.position[1] == server.position[1] for other in whole)

    def _first_install(self) -> dict[str, Any]:
        if missing := self.ensemble.missing(self.wanted):
            unseen = ", ".join(map(self.ensemble.name_of, missing))
            return refuse(
                f"all servers that were seen are empty, and {unseen} were not seen: they may have the tree, which "
                "empty servers would outvote. Bring their hosts back, or take them from the inventory"
            )
        todo = [
            server
            for server in self.ensemble.wanted_servers()
            if not server.running or server.members != self.wanted
        ]
        if todo:
            return step_for("start", todo, "a new ensemble, all servers empty", self.wanted)
        return step_for("wait", self.ensemble.wanted_servers(), "a new ensemble, all servers empty")

    def _become_standalone(self, members: Ids) -> dict[str, Any] | None:
        """Restarts the last server alone: the others were stopped on purpose, and its tree is as new
        as theirs.
        """
        only = self.ensemble.servers.get(min(self.wanted))
        if len(self.wanted) > 1 or only is None or members == self.wanted or self.ensemble.missing(members):
            return None
        others = [server for server in self.servers if server.id in members and server is not only]
        if any(server.running or server.bare or server.position > only.position for server in others):
            return None
        return step_for("restart", [only], "it goes on alone, with as new a tree as any", self.wanted)

    def _truth(self, have: list[Server], without: list[Server]) -> Server | None:
        """The server whose tree the others may take, although too few servers have one.

        None if disks were lost and the operator trusts no server. The server must win the election, because a
        newer one would continue with its own tree. Or it must have the same last zxid as the winner: in an
        election, a follower that was just filled may have recorded the new epoch before its leader.
        """
        first = next((server for server in have if server.id == self.ensemble.trusted), None)
        if first is None and len(have) == 1 and have[0].sole:
            first = have[0]
        if first is None:
            return None
        alike = (
            each.position <= first.position or each.position[1] == first.position[1]
            for each in [*have, *without]
        )
        return first if all(alike) else None

    def _await_an_election(
        self, have: list[Server], without: list[Server], members: Ids
    ) -> dict[str, Any] | None:
        """Waits for running servers that are about to elect one with the tree, and to be filled by it.

        A leader notes its new epoch before its first follower has the tree. Seen in between, it is no longer
        known as the only copy, and the follower is still empty. A refusal would not prevent what such servers do,
        and only where a newer tree is stopped is there anything to tell.
        """
        electing = [
            server
            for server in (*have, *without)
            if server.running and server.members == members and (server in have or not server.full)
        ]
        newest = max(have, key=lambda server: (server.position, server.running), default=None)
        if len(electing) < majority(members) or newest not in electing:
            return None
        return step_for("wait", electing, "they elect the one that has the newest tree")

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
        return refuse(
            f"{'; '.join(filter(None, lost))}. They are members of {sorted(members)} and together would outvote "
            f"the server(s) that have the whole tree ({whole}), or those that were not seen, and take acknowledged "
            "writes from the cluster's metadata, so nothing was started. Put their disks back, if they still are "
            "somewhere, and bring back the hosts that were not seen. If that cannot be, the newest copy is all "
            f"there is, and may lack the last writes; to go on with it: -e zookeeper_trusted_id={newest.id}"
        )
