"""A ZooKeeper ensemble grows, shrinks, is lost and restored below brokers, on five hosts of this module's own.

Three of the hosts have brokers. While the ensemble grows and shrinks they are under load, with the history checker
beside it. Directories and the address of clients are not the default ones, so that these settings are seen to work.

The figures go to the file that FIGURES names, if it does; docs/figures/zookeeper.json is such a file.
"""

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient
from kazoo.security import ACL, Id

from chaos.load import LoadPlan
from lab import Lab
from rig.wait import wait_until
from tests.support.checked_load import assert_no_anomaly, checked_load
from tests.support.deploying import QUICK, ROOT, changed, interrupted, make
from tests.support.figures import keep_figures
from tests.support.lab_cluster import BROKER_PORT, LAB_ENV
from tests.support.labs import lab_session
from tests.support.numbered_load import NumberedLoad, numbers_in
from tests.support.playbook_costs import PlaybookCosts

pytestmark = [pytest.mark.cluster, pytest.mark.day_two, pytest.mark.slow, pytest.mark.timeout(2400)]

PLAN = LoadPlan(topics=1, partitions=6, records_per_s=200, seed=17)
# What is told of a quiet machine in docs/operations.md, and what one may show that does other things as well.
MOST_S = 1.0 if "FIGURES" in os.environ else 3.0
BROKERS = ("h2", "h3", "h5")
HOSTS = ("h1", "h2", "h3", "h4", "h5")
STAY = ("h1", "h4", "h5")
# The one that three become: not the one whose tree it was at first.
LAST = "h4"
# Of five, these stay at the end: the leader is among the others, as the server whose tree it was restarts last.
OTHERS = ("h1", "h2", "h3")
DATA, LOGS = "/srv/zookeeper/data", "/srv/zookeeper/logs"
SETTINGS = {
    "zookeeper_data_dir": DATA,
    "zookeeper_data_log_dir": LOGS,
    "zookeeper_client_address": "{{ ansible_host }}",
}
OTHER_PEER_PORT = 2889
NODES = 50
TOPIC, PARTITIONS = "kept", 2
WRITTEN_AT_THE_END = "kept-by-one"
OURS = {TOPIC, WRITTEN_AT_THE_END}
GUARDED = "/topics"
# Who takes a backup has to see whose passwords these are.
GUARD = [
    ACL(1, Id("world", "anyone")),
    ACL(31, Id("digest", "keeper:0ZSZ9mZ5Fs7Wz6iGvrE8pdV9Ebk=")),
    ACL(31, Id("ip", "10.89.0.0/24")),
]


@dataclass
class Ensemble:
    """The hosts with ZooKeeper's playbook, each run with an inventory of its own."""

    lab: Lab
    variables: dict
    directory: Path
    settings: dict = field(default_factory=lambda: dict(SETTINGS))
    costs: PlaybookCosts = field(default_factory=PlaybookCosts)
    records: int = 0

    @contextmanager
    def load(self, bootstrap, directory, run):
        """A load of the brokers beside the block, judged at its end."""
        with checked_load(bootstrap, PLAN, directory, run) as load:
            yield load
            self.records += load.acked()
            assert_no_anomaly(self.lab, load, BROKERS)
            assert load.failed() == 0

    def measured(self, what, load, *members, **given):
        """A playbook as users run it, beside a load."""
        return self.costs.run(what, load, lambda: self.play(*members, quick=False, **given))

    def playing(self, *members, book, more):
        """The command that runs a playbook with these hosts in the group zookeeper; all five are in the inventory."""
        hosts = {name: self.variables[name] for name in HOSTS}
        groups = {
            "zookeeper": {"hosts": {name: {"zookeeper_id": int(name[1:])} for name in members}},
            "brokers": {"hosts": {name: {} for name in BROKERS}},
        }
        inventory = self.directory / "hosts.json"
        inventory.write_text(json.dumps({"all": {"hosts": hosts, "children": groups, "vars": self.settings}}))
        program = str(ROOT / ".venv" / "bin" / "ansible-playbook")
        return self.lab.enter_argv([program, "-i", str(inventory), book, *more])

    def play(self, *members, book="deploy.yml", more=("--tags=zookeeper,broker",), fails=False, quick=True):
        """Runs a playbook with these hosts in the group zookeeper; all five are in the inventory."""
        done = subprocess.run(
            self.playing(*members, book=book, more=more),
            cwd=ROOT,
            env=os.environ | (QUICK if quick else {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        print(done.stdout)
        assert (done.returncode != 0) is fails, done.stdout[-4000:]
        return done

    def ensemble_becomes(self, *members, more=(), fails=False):
        """ZooKeeper alone: brokers roll when the test says so."""
        return self.play(*members, book="playbooks/zookeeper.yml", more=more, fails=fails)

    def refused(self, *members, more=()):
        """What the play says, in one line, that must not go on."""
        return " ".join(self.ensemble_becomes(*members, more=more, fails=True).stdout.split())

    def pids(self, hosts):
        return [self.says(host, "systemctl show -p MainPID --value zookeeper") for host in hosts]

    def connected(self, host):
        address = next(each.address for each in self.lab.hosts if each.name == host)
        client = KazooClient(f"{address}:2181", timeout=10)
        client.start(30)
        return client

    def tree(self, host):
        """What this one server has of the cluster's id, our topics, and of nodes that no broker knows."""
        client = self.connected(host)
        try:
            return (
                client.get("/cluster/id")[0],
                # A deploy's probe of clients makes topics of its own.
                sorted(OURS & set(client.get_children("/brokers/topics"))),
                len(client.get_children(GUARDED)),
                client.get_acls(GUARDED)[0],
            )
        finally:
            client.stop()
            client.close()

    def running(self):
        return {host for host in HOSTS if self.says(host, "systemctl is-active zookeeper") == "active"}

    def says(self, host, command):
        return self.lab.run(host, command, check=False).stdout.strip()


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory):
    make("wheelhouse")
    with lab_session("zk", hosts=5) as lab:
        listing = subprocess.run(
            [sys.executable, "inventory/lab.py", "--list"],
            cwd=ROOT,
            env={**os.environ, LAB_ENV: lab.name},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        variables = json.loads(listing)["_meta"]["hostvars"]
        for each in variables.values():
            del each["zookeeper_id"]  # as in the sample inventory, only hosts of the group have one
        with lab.inside():
            yield Ensemble(lab, variables, tmp_path_factory.mktemp("inventory"))


@pytest.fixture(scope="module")
def bootstrap(ensemble):
    return ",".join(f"{host.address}:{BROKER_PORT}" for host in ensemble.lab.hosts if host.name in BROKERS)


def broker_pids(ensemble):
    return [ensemble.says(host, "systemctl show -p MainPID --value 'landline-broker@*'") for host in BROKERS]


def properties(ensemble):
    return {ensemble.says(host, "grep ^zookeeper.connect= /etc/landline/*.properties") for host in BROKERS}


def create(bootstrap, topic):
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 3)], operation_timeout=30)[topic].result(60)


def write_some(bootstrap, topic, first=0):
    with NumberedLoad(bootstrap, topic, PARTITIONS, first=first, pause_s=0.02) as load:
        wait_until(lambda: len(load.acked) > 100, 120)
    assert load.failed == []
    assert load.acked <= numbers_in(bootstrap, topic, PARTITIONS)


def assert_left(ensemble, host):
    """It is stopped for good, and its data is aside: should it come back, it comes empty."""
    assert ensemble.says(host, "systemctl is-active zookeeper") == "inactive"
    assert ensemble.says(host, "systemctl is-enabled zookeeper") == "disabled"
    assert "version-2.left-" in ensemble.says(host, f"ls {DATA}")


def assert_on(ensemble, tree, *members):
    """These run, and each of them has the tree."""
    assert ensemble.running() == set(members)
    for host in members:
        assert ensemble.tree(host) == tree, host


def test_one_server_becomes_three_below_brokers_that_lose_nothing(ensemble, bootstrap, tmp_path):
    ensemble.play("h1")
    create(bootstrap, TOPIC)
    write_some(bootstrap, TOPIC)
    client = ensemble.connected("h1")
    for number in range(NODES):
        client.create(f"{GUARDED}/t{number}", b"x", makepath=True)
    client.set_acls(GUARDED, GUARD)
    client.stop()
    client.close()
    tree = ensemble.tree("h1")
    assert TOPIC in tree[1]
    assert tree[2:] == (NODES, GUARD)
    with ensemble.load(bootstrap, tmp_path, "grows") as load:
        ensemble.measured("`deploy`: one server becomes three, and the brokers roll", load, *STAY)
        assert_on(ensemble, tree, *STAY)
        assert all(line.count(":2181") == 3 for line in properties(ensemble))
        again = ensemble.play(*STAY)
        assert set(changed(again.stdout).values()) == {0}


def test_a_tree_that_all_servers_lost_is_restored_with_its_acls_and_the_brokers_take_it(
    ensemble, bootstrap, tmp_path
):
    file = tmp_path / "landline.tree"
    by_file = ("-e", f"broker_metadata_file={file}")
    ensemble.play(*STAY, book="playbooks/backup.yml", more=by_file)
    assert file.stat().st_mode & 0o777 == 0o600
    assert not [host for host in BROKERS if "landline-work" in ensemble.says(host, "ls /var/lib")]
    tree, kept, pids = ensemble.tree("h1"), numbers_in(bootstrap, TOPIC, PARTITIONS), broker_pids(ensemble)

    refused = ensemble.play(*STAY, book="playbooks/restore.yml", more=by_file, fails=True)
    assert "This cluster has its metadata, and nothing is touched" in " ".join(refused.stdout.split())
    assert broker_pids(ensemble) == pids

    for host in STAY:
        ensemble.lab.run(host, "systemctl stop zookeeper")
    for host in STAY:
        ensemble.lab.run(host, f"rm -rf {DATA}/* {LOGS}/*")
    # ^C while they are stopped: systemd starts them, and an ensemble without a tree stays as it is.
    soon = (*by_file, "-e", "broker_metadata_return_s=30")
    argv = ensemble.playing(*STAY, book="playbooks/restore.yml", more=soon)
    code, _ = interrupted(argv, "TASK .*zookeeper : ")
    assert code != 0
    wait_until(
        lambda: not {"", "0"} & set(broker_pids(ensemble)), 120, what="systemd has started the brokers"
    )
    for host in STAY:
        ensemble.lab.run(host, f"echo {host[1:]} >{DATA}/myid; systemctl start zookeeper")
    since = ensemble.says(BROKERS[0], "date +%s")
    refused = f"journalctl --unit='landline-broker@*' --since=@{since} --grep='ZooKeeper has no /cluster/id'"
    for host in BROKERS:
        wait_until(lambda at=host: ensemble.lab.run(at, refused, check=False).returncode == 0, 120)
    ensemble.play(*STAY, book="playbooks/restore.yml", more=by_file)
    for host in STAY:
        assert ensemble.tree(host) == tree, host
    assert not set(broker_pids(ensemble)) & set(pids)
    assert numbers_in(bootstrap, TOPIC, PARTITIONS) == kept
    write_some(bootstrap, TOPIC, first=10**6)


def test_a_changed_setting_restarts_nobody_where_the_quorum_would_go(ensemble):
    on = [host for host in STAY if host != LAST]
    before = ensemble.pids(on)
    ensemble.lab.faults.power_off(LAST)
    try:
        words = ensemble.refused(*STAY, more=("-e", "zookeeper_heap_mb=200"))
    finally:
        ensemble.lab.faults.boot(LAST)
    assert f"Not serving: server {LAST[1:]} ({LAST}, not seen)" in words
    assert ensemble.pids(on) == before


def test_other_ports_of_servers_that_run_are_refused_before_anything_is_touched(ensemble):
    wait_until(lambda: ensemble.running() == set(STAY), 60, what="the host that was off is back")
    before = ensemble.pids(STAY), [ensemble.says(host, "cat /etc/zookeeper/landline.cfg") for host in STAY]
    words = ensemble.refused(*STAY, more=("-e", f"zookeeper_peer_port={OTHER_PEER_PORT}"))
    for host in STAY:
        address = ensemble.variables[host]["ansible_host"]
        assert f"({host}) listens at {address}:2888:3888 and is to be at {address}:2889:3888" in words
    after = ensemble.pids(STAY), [ensemble.says(host, "cat /etc/zookeeper/landline.cfg") for host in STAY]
    assert after == before


def test_a_run_that_is_interrupted_between_stop_and_start_leaves_no_server_down(ensemble):
    before = ensemble.pids(STAY)
    # The turn of a run that dies is over after so long: the next test's run has to wait for it.
    settings = {"zookeeper_heap_mb": 200, "zookeeper_return_s": 45, "zookeeper_turn_s": 30}
    more = ("-e", json.dumps(settings))
    argv = ensemble.playing(*STAY, book="playbooks/zookeeper.yml", more=more)
    code, _ = interrupted(argv, "TASK .*zookeeper : Configure")
    assert code != 0
    assert len(ensemble.running()) == 2
    wait_until(lambda: ensemble.running() == set(STAY), 120, what="systemd has started the server")
    assert sum(one != other for one, other in zip(before, ensemble.pids(STAY), strict=True)) == 1


def test_two_lost_disks_of_three_are_refused_until_somebody_names_the_copy_that_counts(ensemble):
    """All are stopped, as for the other ports, which they get here."""
    tree = ensemble.tree(LAST)
    ensemble.settings["zookeeper_peer_port"] = OTHER_PEER_PORT
    for host in STAY:
        ensemble.lab.run(host, "systemctl stop zookeeper")
    for host in set(STAY) - {LAST}:
        ensemble.lab.run(host, f"rm -rf {DATA}/version-2 {LOGS}/version-2")
    words = ensemble.refused(*STAY)
    assert "server 1 (h1), server 5 (h5) lost the tree" in words
    assert "so nothing was started" in words
    assert ensemble.running() == set()
    ensemble.ensemble_becomes(*STAY, more=("-e", f"zookeeper_trusted_id={LAST[1:]}"))
    for host in STAY:
        assert f":{OTHER_PEER_PORT}:" in ensemble.says(host, "grep ^server /etc/zookeeper/landline.cfg")
        assert ensemble.tree(host) == tree, host


def test_three_servers_become_one_below_brokers_that_lose_nothing(ensemble, bootstrap, tmp_path):
    create(bootstrap, WRITTEN_AT_THE_END)
    kept, tree = numbers_in(bootstrap, TOPIC, PARTITIONS), ensemble.tree(LAST)
    assert tree[1] == sorted({*tree[1], TOPIC, WRITTEN_AT_THE_END})
    with ensemble.load(bootstrap, tmp_path, "shrinks") as load:
        ensemble.measured("`deploy`: three servers become one, and the brokers roll", load, LAST)
        assert ensemble.running() == {LAST}
        assert ensemble.tree(LAST) == tree
        assert all(line.count(":2181") == 1 for line in properties(ensemble))
        write_some(bootstrap, WRITTEN_AT_THE_END)
    assert numbers_in(bootstrap, TOPIC, PARTITIONS) == kept
    for host in sorted(set(STAY) - {LAST}):
        assert_left(ensemble, host)
    # Nobody rolls again, and the brokers were told of the one that is left.
    again = ensemble.play(LAST)
    assert set(changed(again.stdout).values()) == {0}


def test_one_server_becomes_five_and_three_others_below_brokers_that_lose_nothing(
    ensemble, bootstrap, tmp_path
):
    tree = ensemble.tree(LAST)
    with ensemble.load(bootstrap, tmp_path, "grows-again") as load:
        alone = {"book": "playbooks/zookeeper.yml", "more": ()}
        ensemble.measured("`zookeeper`: one server becomes five", load, *HOSTS, **alone)
        assert_on(ensemble, tree, *HOSTS)
        said = ensemble.refused(*OTHERS)
        assert "brokers that run know no server that stays: landline-broker@" in said
        assert "Put h4, h5 back into the group zookeeper" in said
        assert_on(ensemble, tree, *HOSTS)
        ensemble.measured("`deploy`: the brokers learn of the five", load, *HOSTS)
        ensemble.measured("`deploy`: five servers become three others, and the brokers roll", load, *OTHERS)
        assert_on(ensemble, tree, *OTHERS)
        assert all(line.count(":2181") == 3 for line in properties(ensemble))
    for host in sorted(set(HOSTS) - set(OTHERS)):
        assert_left(ensemble, host)
    costs = ensemble.costs
    keep_figures("zookeeper", {"took_s": costs.took_s, "records": ensemble.records, "lost": 0}, costs.rows)
    assert costs.longest_gap_s < MOST_S, costs.rows
