"""The playbooks of an operator's day two on hosts as operators have them (operators_hosts), under load, with the
history checker beside them: each ends early, once by ^C and once because ssh is lost, and the next run completes it.

Four hosts of this module's own; the fourth is spare until it takes the place of one that dies. A walk by hand takes
more rounds, or those of a run before: ROUNDS=5 SEED=123.
"""

import os
import random
import re
import sys
from pathlib import Path

import pytest
import yaml
from confluent_kafka.admin import AdminClient, NewTopic

from chaos.anomalies import summary
from chaos.load import Load, LoadPlan, findings
from rig.topics import await_leaders, create_topic, delete_topics, isr_sizes, partition_replicas
from rig.wait import wait_until
from rig.wire import cluster_view
from sparkctl.inventory import host_port
from tests.support.deploying import changed, interrupted, make
from tests.support.lab_cluster import BROKER_PORT
from tests.support.labs import lab_session
from tests.support.operators_hosts import DISKS, prepare, service_address, ssh_may_be_lost
from tests.support.sample_inventory import filled_in, make_with

pytestmark = [pytest.mark.cluster, pytest.mark.day_two, pytest.mark.slow, pytest.mark.timeout(2400)]

ROUNDS = int(os.environ.get("ROUNDS", "1"))
SEED = int(os.environ.get("SEED", "0")) or random.randrange(1, 1 << 16)
PLAN = LoadPlan(topics=1, partitions=3, records_per_s=100, seed=17)
SETTINGS = {
    # Whoever follows a run that was ended waits for its permit, and for a host that does not boot.
    "broker_permit_s": 30,
    "broker_reboot_timeout_s": 120,
    "broker_move_round_s": 3,
    "broker_properties": {"offsets.topic.num.partitions": 3, "transaction.state.log.num.partitions": 3},
    "broker_journal_shipper_enabled": False,
    "landline_move_throttle": 10_000_000,
}
SPARE = "kafka-d"
A_TASK = r"^TASK \["


class Site:
    """The hosts, their inventory, and the load."""

    def __init__(self, lab, inventory: Path, load: Load, bootstrap: str) -> None:
        self.lab, self.inventory, self.load, self.bootstrap = lab, inventory, load, bootstrap
        self._draws = random.Random(SEED)
        print(f"SEED={SEED}")

    def play(self, verb, *more, arguments="", check=True):
        """A verb of make's, completely."""
        done = make_with(self.inventory, verb, *more, arguments=arguments, check=check, quick=False)
        return re.sub(r"\s+", " ", done.stdout) if not check else done.stdout

    def ended_early(self, tasks: int, how: str, book: str, *arguments: str) -> None:
        """The playbook, which ends at one of its tasks, or well, if no host is needed any more."""
        at = self._draws.randrange(1, tasks + 1)
        print(f"{book} ended at task {at} of {tasks} by {how}")
        program = Path(sys.executable).with_name("ansible-playbook")
        argv = [str(program), "-i", str(self.inventory), f"playbooks/{book}.yml", *arguments]
        with ssh_may_be_lost(self.lab) as lose:
            interrupted(argv, A_TASK, at, lose if how == "lost ssh" else None)

    def walked(self, verb, *more, book=None, arguments=(), tasks=0):
        """A dry run, runs that end early, and one that completes what they began. What that said."""
        said = " ".join(arguments)
        if not tasks:
            dry = self.play(verb, *more, arguments=f"{said} --check")
            tasks = len(re.findall(A_TASK, dry, re.MULTILINE))
        for _ in range(ROUNDS):
            for how in ("^C", "lost ssh"):
                self.ended_early(tasks, how, book or verb, *arguments)
        done = self.play(verb, *more, arguments=said)
        self.load.await_progress(100, timeout_s=120)
        return done

    def processes(self):
        show = "systemctl show --property=MainPID --value 'landline-broker@*'"
        return [self.lab.run(host.name, show).stdout for host in self.lab.hosts[:3]]

    def spread(self, topic):
        """How many replicas each broker has of it."""
        replicas = [broker for ids in partition_replicas(self.bootstrap, topic).values() for broker in ids]
        return {broker: replicas.count(broker) for broker in sorted(set(replicas))}


def with_a_spare(lab, hosts: Path) -> None:
    """The fourth host, in no group yet but known."""
    inventory = yaml.safe_load(hosts.read_text())
    spare = lab.hosts[3]
    variables = {"ansible_host": spare.address, "landline_address": service_address(spare)}
    inventory["all"].setdefault("hosts", {})[SPARE] = variables
    for group in [name for name in inventory["all"]["children"] if name.startswith("spark")]:
        del inventory["all"]["children"][group]
    hosts.write_text(yaml.safe_dump(inventory))
    settings = hosts.parent / "group_vars" / "all.yml"
    settings.write_text(yaml.safe_dump(yaml.safe_load(settings.read_text()) | SETTINGS, width=1000))


@pytest.fixture(scope="module")
def site(archives, tmp_path_factory):
    directory = tmp_path_factory.mktemp("operator")
    make("wheelhouse")  # for which the network in here is no use
    with lab_session("daytwo", hosts=4) as lab, pytest.MonkeyPatch.context() as environment:
        prepare(lab)
        with lab.inside():
            three = type("Three", (), {"hosts": lab.hosts[:3], "files": lab.files})
            hosts = filled_in(three, directory, archives)
            with_a_spare(lab, hosts)
            environment.setenv("LANDLINE_INVENTORY", str(hosts))
            environment.setenv("ANSIBLE_SSH_CONTROL_PATH_DIR", f"{lab.files.sockets}/operator")
            make_with(hosts, "deploy", quick=False)
            bootstrap = ",".join(host_port(service_address(host), BROKER_PORT) for host in lab.hosts[:3])
            with Load(bootstrap, PLAN, directory / "load", run="day") as load:
                load.await_progress(100, timeout_s=120)
                yield Site(lab, hosts, load, bootstrap)


def all_on(bootstrap, topic, broker):
    """A topic of six partitions with one replica each, all on this broker."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 6, replica_assignment=[[broker]] * 6)])[topic].result(60)
    await_leaders(bootstrap, topic, 6)


def test_a_restart_that_ends_early_is_completed(site):
    before = site.processes()
    site.walked("restart", tasks=60)
    assert not set(site.processes()) & set(before)


def test_moves_that_end_early_are_completed_by_the_next_run_or_taken_back(site):
    all_on(site.bootstrap, "moved", 1)
    assert site.spread("moved") == {1: 6}
    site.walked("rebalance")
    assert site.spread("moved") == {1: 2, 2: 2, 3: 2}
    assert set(changed(site.play("rebalance")).values()) == {0}
    all_on(site.bootstrap, "paused", 1)
    said = site.play("rebalance", "PAUSE=1")
    assert set(changed(said).values()) == {0}, "nothing was under way"


def test_a_backup_and_a_bundle_that_end_early_leave_nothing_behind(site, tmp_path):
    saved = tmp_path / "tree"
    site.walked("backup", f"FILE={saved}", arguments=[f"-ebroker_metadata_file={saved}"])
    assert saved.stat().st_size > 0
    site.walked("support-bundle", book="support_bundle")
    for host in site.lab.hosts[:3]:
        left = "find /tmp /var/tmp -newer /etc/landline -type f -size +0 -not -path '*/systemd-private*'"
        assert "landline" not in site.lab.run(host.name, left).stdout


def test_reboots_that_end_early_are_completed(site):
    boots = "cat /proc/sys/kernel/random/boot_id; systemctl show --property=UserspaceTimestampMonotonic"
    before = [site.lab.run(host.name, boots).stdout for host in site.lab.hosts[:3]]
    site.walked("reboot", arguments=["-ereboot_min_uptime_s=0"], tasks=60)
    after = [site.lab.run(host.name, boots).stdout for host in site.lab.hosts[:3]]
    assert not set(before) & set(after)
    assert set(changed(site.play("reboot")).values()) == {0}


def in_place_of(site, dead: str, new: str) -> None:
    """The inventory, in which a machine has taken another's place in each group."""
    inventory = yaml.safe_load(site.inventory.read_text())
    for group in inventory["all"]["children"].values():
        hosts = group.get("hosts") or {}
        if dead in hosts:
            kept = hosts.pop(dead) or {}
            hosts[new] = {key: value for key, value in kept.items() if key.endswith(("_id", "_rack"))}
    site.inventory.write_text(yaml.safe_dump(inventory))


def test_a_replacement_and_a_decommission_that_end_early_are_completed(site):
    """The spare machine joins as broker 4, leaves, and takes the place of broker 3, whose host dies."""
    inventory = yaml.safe_load(site.inventory.read_text())
    inventory["all"]["children"]["brokers"]["hosts"][SPARE] = {"broker_first_id": 4}
    site.inventory.write_text(yaml.safe_dump(inventory))
    site.play("deploy", arguments="--tags broker")
    all_on(site.bootstrap, "leaving", 4)
    leaves = (f"-edecommission_host={SPARE}",)
    site.walked("decommission", f"HOST={SPARE}", arguments=leaves)
    assert 4 not in site.spread("leaving")
    assert 4 not in cluster_view(service_address(site.lab.hosts[0]), BROKER_PORT).ports
    assert set(changed(site.play("decommission", f"HOST={SPARE}")).values()) == {0}
    del inventory["all"]["children"]["brokers"]["hosts"][SPARE]
    site.inventory.write_text(yaml.safe_dump(inventory))

    create_topic(site.bootstrap, "kept", 3, 3)
    site.lab.faults.power_loss("h3")
    wait_until(
        lambda: 3 not in cluster_view(service_address(site.lab.hosts[0]), BROKER_PORT).ports,
        60,
        what="broker 3 is known to be dead",
    )
    in_place_of(site, "kafka-c", SPARE)
    refused = site.play("replace", f"HOST={SPARE}", check=False)
    assert re.search(
        r"only broker 3 has all records of \S+-\d.*: an empty one in its place would lose them", refused
    )
    there = AdminClient({"bootstrap.servers": site.bootstrap}).list_topics(timeout=30).topics
    delete_topics(site.bootstrap, {"moved", "paused", "leaving"} & there.keys())
    site.walked("replace", f"HOST={SPARE}", arguments=[f"-ereplace_host={SPARE}"])
    wait_until(lambda: set(isr_sizes(site.bootstrap, "kept").values()) == {3}, 120, what="all are in sync")
    assert set(changed(site.play("replace", f"HOST={SPARE}")).values()) == {0}


def test_no_record_was_lost_doubled_or_reordered_meanwhile(site, tmp_path):
    site.load.await_progress(100, timeout_s=120)
    history = site.load.finish(timeout_s=240)
    places = {}
    for broker, host in zip((1, 2, 3), ("h1", "h2", "h4"), strict=True):
        # One directory with what lies on both disks.
        places[broker] = tmp_path / f"broker-{broker}"
        places[broker].mkdir()
        for point in DISKS:
            on_disk = site.lab.files.root(site.lab.host(host)) / f"{point.lstrip('/')}/broker-{broker}"
            for log in on_disk.glob("day*"):
                (places[broker] / log.name).symlink_to(log)
    assert not (found := findings(history, places)), summary(found)
    assert site.load.failed() == 0
