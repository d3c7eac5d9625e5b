"""A model of an ensemble: servers that elect and replicate as ZooKeeper's do, and the role's tasks that
change them.
"""

from dataclasses import dataclass, field

from tests.support.deploy_code import load

steps = load("plugins/filter/zookeeper.py")
ensemble = load("plugins/module_utils/zookeeper_ensemble.py")

SETTINGS = "settings of now"


@dataclass
class Node:
    """One server, whose disk, configuration and unit outlive its process."""

    id: int
    configured: frozenset = frozenset()
    running_with: frozenset = frozenset()
    running: bool = False
    enabled: bool = False
    settings: str = ""
    epoch: int = 0
    zxid: int = 0
    mark: tuple = ()
    reachable: bool = True
    follows: int = 0
    bare: bool = False
    lines: dict = field(default_factory=dict)
    running_lines: dict = field(default_factory=dict)

    def finds(self, leader):
        """Whether the leader listens at the address that this server connects to."""
        return self.running_lines.get(leader.id) == leader.running_lines.get(leader.id)


@dataclass
class World:
    """Servers that elect and replicate as ZooKeeper's do; `committed` is the newest
    acknowledged transaction.
    """

    nodes: dict = field(default_factory=dict)
    committed: int = 0
    log: list = field(default_factory=list)
    port: int = 2888

    def line(self, number):
        return f"h{number}:{self.port}:3888"

    def node(self, number):
        return self.nodes.setdefault(number, Node(number))

    def up(self, number):
        return self.nodes[number].running

    def settle(self):
        """Runs elections and synchronisation until nothing changes; then one write, if there is a leader."""
        for node in self.nodes.values():
            if not self._still_follows(node):
                node.follows = 0
        self._lapse()
        leaders = [node for node in self.nodes.values() if node.running and node.follows == node.id]
        if not leaders:
            self._elect()
        for leader in [node for node in self.nodes.values() if node.running and node.follows == node.id]:
            self._join(leader)
            self._write(leader)

    def _still_follows(self, node):
        leader = self.nodes.get(node.follows)
        return node.running and leader is not None and leader.running and leader.follows == leader.id

    def _lapse(self):
        for leader in [node for node in self.nodes.values() if node.running and node.follows == node.id]:
            voters = [
                n for n in self.nodes.values() if n.follows == leader.id and n.id in leader.running_with
            ]
            if len(voters) < ensemble.majority(leader.running_with):
                for node in self.nodes.values():
                    if node.follows == leader.id:
                        node.follows = 0

    def _elect(self):
        ranked = sorted(
            (node for node in self.nodes.values() if node.running),
            key=lambda node: (node.epoch, node.zxid, node.id),
            reverse=True,
        )
        for leader in ranked:
            voters = [
                n
                for n in ranked
                if leader.id in n.running_with
                and n.id in leader.running_with
                and n.finds(leader)
                and not n.follows
            ]
            better = [n for n in voters if (n.epoch, n.zxid) > (leader.epoch, leader.zxid)]
            if not better and len(voters) >= ensemble.majority(leader.running_with):
                if leader.running_with != {leader.id}:
                    leader.epoch = max(n.epoch for n in voters) + 1
                leader.follows = leader.id
                for voter in voters:
                    self._follow(voter, leader)
                # Each elector counts its own list.
                for voter in voters:
                    agreeing = [n for n in voters if n.id in voter.running_with]
                    if voter is not leader and len(agreeing) < ensemble.majority(voter.running_with):
                        voter.follows = 0
                self._lapse()
                if leader.follows:
                    return

    def _follow(self, node, leader):
        node.follows = leader.id
        node.epoch, node.zxid, node.bare = leader.epoch, leader.zxid, False

    def _join(self, leader):
        """A late server needs a quorum of its own list that already follows."""
        for node in self.nodes.values():
            dials = leader.id in node.running_with and node.finds(leader)
            if node.running and not node.follows and dials:
                following = [
                    n for n in self.nodes.values() if n.follows == leader.id and n.id in node.running_with
                ]
                if len(following) >= ensemble.majority(node.running_with):
                    self._follow(node, leader)

    def _write(self, leader):
        assert leader.zxid >= self.committed, f"the tree was lost: {self}"
        leader.zxid += 1
        self.committed = max(self.committed, leader.zxid)
        for node in self.nodes.values():
            if node.follows == leader.id:
                node.zxid = leader.zxid

    # The role's actions

    def seen(self, wanted):
        return [
            {
                "id": node.id,
                "host": f"h{node.id}",
                "state": "stopped"
                if not node.running
                else "current"
                if node.running_with == wanted
                and node.settings == SETTINGS
                and node.running_lines == self._lines(wanted)
                else "changed",
                "enabled": node.enabled,
                "mode": self._mode(node),
                "members": node.running_with if node.running else node.configured,
                "epoch": node.epoch,
                "zxid": node.zxid,
                "sole": node.mark == (node.epoch, node.zxid),
                "bare": node.bare,
                "servers": {str(key): line for key, line in node.lines.items() if len(node.configured) > 1},
            }
            for node in self.nodes.values()
            if node.reachable
        ]

    def _lines(self, members):
        return {each: self.line(each) for each in members}

    def _mode(self, node):
        if not node.running or not node.follows:
            return ""
        if node.running_with == {node.id}:
            return "standalone"
        return "leader" if node.follows == node.id else "follower"

    def next_step(self, wanted, trusted=0):
        wanted = frozenset(wanted)
        step = steps.zookeeper_next_step(
            self.seen(wanted),
            {each: f"h{each}" for each in wanted},
            trusted=trusted,
            lines={str(each): self.line(each) for each in wanted},
        )
        self.log.append(step["why"])
        return step

    def parts(self, step):
        """The step as the role's tasks do it; each of them may be the last one."""
        for host in step["hosts"]:
            node = self.node(int(host[1:]))
            members = frozenset(step["members"])
            if step["action"] in {"stop", "retire"}:
                node.running = node.enabled = False
                node.follows = 0
                yield
                if step["action"] == "retire":
                    node.zxid = node.epoch = 0
            elif step["action"] in {"start", "restart"}:
                grows = self._mode(node) == "standalone" and len(members) > 1
                if step["action"] == "restart":
                    node.running, node.follows = False, 0
                    yield
                if grows:
                    node.mark = (node.epoch, node.zxid)
                    yield
                if members:
                    node.configured, node.settings = members, SETTINGS
                    node.lines = self._lines(members)
                    yield
                node.running, node.enabled, node.follows = True, True, 0
                node.running_with, node.running_lines = node.configured, node.lines
            yield

    def deploy(self, wanted, trusted=0, dies=lambda: False, limit=60):
        """Takes steps until there is none, or the play dies; returns the last step's action."""
        for _ in range(limit):
            step = self.next_step(wanted, trusted)
            if step["action"] in {"none", "refuse"}:
                return step["action"]
            for _ in self.parts(step):
                self.settle()
                if dies():
                    return "died"
            if step["action"] == "wait":
                self.settle()
        raise AssertionError(f"no end: {self.log[-12:]}")


def installed(*members):
    world = World()
    for number in members:
        world.node(number)
    assert world.deploy(members) == "none", world.log
    for _ in range(3):
        world.settle()
    return world


def add(world, *numbers):
    for number in numbers:
        world.node(number)
