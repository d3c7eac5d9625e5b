"""The playbooks of an operator's days on hosts as operators have them (operators_hosts): each ends early, once by ^C
and once because ssh is lost, and the next run completes it. All but the first deploy are under load, with the history
checker beside them.

Four hosts of this module's own; the fourth is spare until it takes the place of one that dies. A walk by hand takes
more rounds, or those of a run before: ROUNDS=5 SEED=123.
"""

import json
import os
import random
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pyspark
import pytest
import yaml
from confluent_kafka.admin import AdminClient, NewTopic

from chaos.anomalies import summary
from chaos.load import Load, LoadPlan, findings
from lab import Bind, image
from rig.topics import await_leaders, create_topic, delete_topics, isr_sizes, partition_replicas
from rig.wait import wait_until
from rig.wire import cluster_view
from sparkctl.inventory import host_port
from tests.support.deploying import changed, interrupted, make
from tests.support.lab_cluster import BROKER_PORT
from tests.support.labs import lab_session
from tests.support.operators_hosts import DISKS, prepare, service_address, ssh_may_be_lost
from tests.support.package_repository import SOURCE, download
from tests.support.sample_inventory import filled_in, make_with

pytestmark = [pytest.mark.cluster, pytest.mark.day_two, pytest.mark.slow, pytest.mark.timeout(3600)]

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
# So many tasks has a deploy of everything at the least, and so many what does a plan.
OF_A_DEPLOY = 180
OF_A_PLAN = 100
PYSPARK, PACKAGES = Path(pyspark.__file__).parent, "/srv/packages"
NEWLY_LISTED = {
    "landline_topic_defaults": {"replication_factor": 3},
    "landline_topics": [
        {"name": "listed", "partitions": 6, "configs": {"retention.ms": 604800000}},
        {"name": "listed-too", "partitions": 2, "configs": {"cleanup.policy": "compact"}},
        {"name": "unlisted", "state": "absent"},
    ],
    "landline_broker_configs": [{"configs": {"log.cleaner.backoff.ms": 16000}}],
}


class Site:
    """The hosts, their inventory, and the load, which begins when they are deployed."""

    def __init__(self, lab, inventory: Path, bootstrap: str) -> None:
        self.lab, self.inventory, self.bootstrap = lab, inventory, bootstrap
        self.load: Load | None = None
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

    def walked(self, verb, *more, book=None, arguments=(), tasks=0, first: Callable[[], object] = int):
        """A dry run, runs that end early, and one that completes what they began, each after what comes `first`. What
        the last one said.
        """
        said = " ".join(arguments)
        if not tasks:
            dry = self.play(verb, *more, arguments=f"{said} --check")
            tasks = len(re.findall(A_TASK, dry, re.MULTILINE))
        for _ in range(ROUNDS):
            for how in ("^C", "lost ssh"):
                first()
                self.ended_early(tasks, how, book or verb, *arguments)
        first()
        done = self.play(verb, *more, arguments=said)
        if self.load is not None:
            self.load.await_progress(100, timeout_s=120)
        return done

    def set(self, **settings) -> None:
        """Sets variables of all hosts; a dict adds to the one that is there."""
        path = self.inventory.parent / "group_vars" / "all.yml"
        there = yaml.safe_load(path.read_text())
        for name, value in settings.items():
            there[name] = there.get(name, {}) | value if isinstance(value, dict) else value
        path.write_text(yaml.safe_dump(there, width=1000))

    def processes(self, unit="landline-broker@*"):
        """Of each host, when it began too: hosts have the same numbers."""
        show = f"systemctl show --property=MainPID,ExecMainStartTimestampMonotonic '{unit}'"
        return [self.lab.run(host.name, show).stdout for host in self.lab.hosts[:3]]

    def spread(self, topic):
        """How many replicas each broker has of it."""
        replicas = [broker for ids in partition_replicas(self.bootstrap, topic).values() for broker in ids]
        return {broker: replicas.count(broker) for broker in sorted(set(replicas))}


def with_a_spare(lab, hosts: Path) -> None:
    """The fourth host, in no group yet but known; and Prometheus on another one."""
    inventory = yaml.safe_load(hosts.read_text())
    spare = lab.hosts[3]
    variables = {"ansible_host": spare.address, "landline_address": service_address(spare)}
    inventory["all"].setdefault("hosts", {})[SPARE] = variables
    inventory["all"]["children"]["prometheus"] = {"hosts": {"kafka-b": {}}}
    hosts.write_text(yaml.safe_dump(inventory))
    source = SOURCE.format(path=PACKAGES)
    for host in lab.hosts:
        lab.run(host.name, f"echo '{source}' >/etc/apt/sources.list && rm -rf /etc/apt/sources.list.d")


@pytest.fixture(scope="module")
def bare(archives, tmp_path_factory):
    """The hosts, on which nothing is deployed."""
    directory = tmp_path_factory.mktemp("operator")
    make("wheelhouse")  # for which the network in here is no use
    packages = tmp_path_factory.mktemp("packages")
    packages.chmod(0o755)  # for apt's own user
    download(["prometheus"], image.ensure(print), packages)
    binds = [Bind(str(PYSPARK), "/opt/spark"), Bind(str(packages), PACKAGES)]
    with lab_session("daytwo", hosts=4, binds=binds) as lab, pytest.MonkeyPatch.context() as environment:
        prepare(lab)
        with lab.inside():
            three = type("Three", (), {"hosts": lab.hosts[:3], "files": lab.files})
            hosts = filled_in(three, directory, archives)
            with_a_spare(lab, hosts)
            environment.setenv("LANDLINE_INVENTORY", str(hosts))
            environment.setenv("ANSIBLE_SSH_CONTROL_PATH_DIR", f"{lab.files.sockets}/operator")
            bootstrap = ",".join(host_port(service_address(host), BROKER_PORT) for host in lab.hosts[:3])
            site = Site(lab, hosts, bootstrap)
            site.set(**SETTINGS)
            yield site


@pytest.fixture(scope="module")
def site(bare, tmp_path_factory):
    """The hosts with a cluster under load."""
    bare.play("deploy")
    with Load(bare.bootstrap, PLAN, tmp_path_factory.mktemp("load"), run="day") as bare.load:
        bare.load.await_progress(100, timeout_s=120)
        yield bare


def test_a_first_deploy_that_ends_early_is_completed(bare):
    bare.walked("deploy", tasks=OF_A_DEPLOY)
    assert set(changed(bare.play("deploy")).values()) == {0}
    assert sorted(cluster_view(service_address(bare.lab.hosts[0]), BROKER_PORT).ports) == [1, 2, 3]
    assert bare.lab.run("h2", "systemctl is-active prometheus").stdout.strip() == "active"


def all_on(bootstrap, topic, broker):
    """A topic of six partitions with one replica each, all on this broker."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 6, replica_assignment=[[broker]] * 6)])[topic].result(60)
    await_leaders(bootstrap, topic, 6)


def test_a_deploy_of_everything_that_ends_early_is_completed(site):
    """ZooKeeper's servers and the brokers are rolled, and the hosts are under load meanwhile."""
    before, servers_before = site.processes(), site.processes("zookeeper")
    site.set(
        zookeeper_properties={"snapCount": 50000},
        broker_properties={"num.partitions": 2},
        prometheus_scrape_interval_s=7,
        spark_defaults={"spark.ui.retainedJobs": 200},
    )
    site.walked("deploy", tasks=OF_A_DEPLOY)
    assert not set(site.processes()) & set(before)
    assert not set(site.processes("zookeeper")) & set(servers_before)
    wanted = {
        "grep -qx snapCount=50000 /etc/zookeeper/landline.cfg": site.lab.hosts[:3],
        "grep -qx num.partitions=2 /etc/landline/broker-*.properties": site.lab.hosts[:3],
        "grep -q 'scrape_interval: 7s' /etc/prometheus/prometheus.yml": site.lab.hosts[1:2],
    }
    for command, hosts in wanted.items():
        for host in hosts:
            site.lab.run(host.name, command)
    assert set(changed(site.play("deploy")).values()) == {0}


def test_what_a_plan_says_is_completed_by_the_next_plan_if_it_ends_early(site, tmp_path):
    file = tmp_path / "plan.json"
    before = site.processes()
    site.set(broker_properties={"num.partitions": 3}, zookeeper_properties={"snapCount": 60000})

    def plan():
        site.play("plan", f"PLAN={file}")
        return json.loads(file.read_text())

    assert [row["action"] for row in plan()["brokers"]] == ["restart"] * 3
    site.walked("apply", f"PLAN={file}", arguments=[f"-elandline_plan={file}"], tasks=OF_A_PLAN, first=plan)
    assert not set(site.processes()) & set(before)
    found = plan()
    assert {row["action"] for row in found["brokers"] + found["zookeeper"]} == {"unchanged"}


def test_lists_of_topics_that_end_early_are_brought_about_by_the_next_run(site):
    create_topic(site.bootstrap, "unlisted", 1, 3)
    site.set(**NEWLY_LISTED)
    said = site.walked("topics", arguments=["-elandline_topics_delete=unlisted"])
    assert set(changed(site.play("topics")).values()) == {0}, said
    assert len(isr_sizes(site.bootstrap, "listed")) == 6
    assert len(isr_sizes(site.bootstrap, "listed-too")) == 2
    assert "unlisted" not in AdminClient({"bootstrap.servers": site.bootstrap}).list_topics(timeout=30).topics
    site.set(landline_topics=[])
    delete_topics(site.bootstrap, {"listed", "listed-too"})


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
