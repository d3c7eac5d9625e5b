"""playbooks/migrate.yml: Apache Kafka from its tarball on three hosts becomes Landline under load, and Kafka again.

In a lab of this module's own. The figures go to the directory that FIGURES names. A walk by hand through runs that end
early takes more rounds, or those of a run before: ROUNDS=5 SEED=123.
"""

import json
import os
import random
import re
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
import yaml
from kazoo.client import KazooClient

from chaos.anomalies import summary
from chaos.load import Load, LoadPlan, findings
from rig.topics import isr_sizes
from rig.wait import wait_until
from tests.support.deploying import ROOT, changed, interrupted, make
from tests.support.figures import keep_figures
from tests.support.kafka_hosts import CONFIG, LOG_DIRS, PORT, install_kafka, kafka_bind
from tests.support.labs import lab_session
from tests.support.operators_hosts import ssh_may_be_lost

pytestmark = [pytest.mark.cluster, pytest.mark.day_two, pytest.mark.slow, pytest.mark.timeout(2400)]

PLAN = LoadPlan(topics=1, partitions=6, records_per_s=200, seed=11)
LANDLINE, KAFKA = "landline-broker@{}.service", "kafka.service"
ROUNDS = int(os.environ.get("ROUNDS", "1"))
SEED = int(os.environ.get("SEED", "0")) or random.randrange(1, 1 << 16)
# Of a run that changes three hosts, about.
TASKS = 150


@pytest.fixture(scope="module")
def lab():
    make("wheelhouse")
    with lab_session("migrate", hosts=3, binds=[kafka_bind()]) as lab, lab.inside():
        yield lab


@pytest.fixture(scope="module")
def inventory(lab, tmp_path_factory):
    """What users have who have only Kafka: the hosts in the group brokers, and where ZooKeeper is nobody's business."""
    directory = tmp_path_factory.mktemp("inventory")
    common = {
        "ansible_user": "root",
        "ansible_ssh_private_key_file": str(lab.files.key),
        "ansible_ssh_common_args": f"-F {lab.files.ssh_config}",
    }
    hosts = {host.name: {"ansible_host": host.address} for host in lab.hosts}
    # ZooKeeper is deployed by the role here, and then left out of the inventory.
    for name, groups in (("zookeeper.yml", ("brokers", "zookeeper")), ("hosts.yml", ("brokers",))):
        (directory / name).write_text(
            yaml.safe_dump({"all": {"vars": common}, **{group: {"hosts": hosts} for group in groups}})
        )
    return directory


@pytest.fixture(scope="module")
def bootstrap(lab, inventory):
    play(lab, inventory / "zookeeper.yml", "deploy.yml", "--tags", "zookeeper")
    install_kafka(lab)
    return ",".join(f"{host.address}:{PORT}" for host in lab.hosts)


def playing(lab, inventory, book, *more):
    return lab.enter_argv([str(ROOT / ".venv/bin/ansible-playbook"), "-i", str(inventory), book, *more])


def play(lab, inventory, book, *more, check=True):
    """How ansible-playbook ended, and what it said."""
    environment = {k: v for k, v in os.environ.items() if k != "LANDLINE_LAB"}
    done = subprocess.run(
        playing(lab, inventory, book, *more),
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    print(done.stdout)
    assert not check or done.returncode == 0
    return done.returncode, done.stdout, re.sub(r"\s+", " ", done.stdout)


def migrate(lab, inventory, *more, check=True):
    return play(lab, inventory / "hosts.yml", "playbooks/migrate.yml", *more, check=check)


def runs(lab):
    """Each host's main processes, Kafka's and Landline's, and who owns the files of the data."""
    found = {}
    for host in lab.hosts:
        units = (KAFKA, LANDLINE.format(host.index))
        show = "systemctl show --property=MainPID,UnitFileState --value"
        owners = f"find {' '.join(LOG_DIRS)} -printf '%u\\n' | sort -u"
        said = lab.run(host.name, "; ".join([*(f"{show} {unit}" for unit in units), owners])).stdout.split()
        found[host.name] = said
    return found


def owners(lab):
    return {host: said[-1] for host, said in runs(lab).items()}


def stops(lab, unit, since):
    """When each host's unit was told to stop, by the clock that all hosts share."""
    found = []
    for host in lab.hosts:
        command = f"journalctl --output=short-monotonic --no-pager --unit={unit.format(host.index)} _PID=1"
        lines = lab.run(host.name, command).stdout
        print(host.name, lines[-2000:], sep="\n")
        told = [float(at) for at in re.findall(r"^\[ *([\d.]+)\] .*: Stopping ", lines, re.MULTILINE)]
        found += [(at, host.name) for at in told if at > since]
    return sorted(found)


def rows_of(load, lab, unit, way, began, ended):
    told = [(at, host) for at, host in stops(lab, unit, began) if at < ended]
    ends = [at for at, _ in told[1:]] + [ended]
    gaps = [load.worst_gap_s(at, end) for (at, _), end in zip(told, ends, strict=True)]
    print(way, gaps)
    return [
        {"way": way, "host": host, "took_s": end - at, "longest_gap_s": gap}
        for (at, host), end, gap in zip(told, ends, gaps, strict=True)
    ]


def refuses_a_key_by_its_name(lab, inventory):
    """The release, which is on the hosts after this, does not take it; nothing is stopped."""
    lab.run("h2", f"echo principal.builder.class=com.example.Mine >>{CONFIG}")
    code, _, words = migrate(lab, inventory, check=False)
    lab.run("h2", f"sed -i /com.example.Mine/d {CONFIG}")
    return code != 0 and "principal.builder.class: Java classes cannot be used" in words


def refuses_a_file_that_only_kafka_reads(lab, inventory):
    """The release reads it as the user that it will run as; nothing is stopped."""
    lab.run("h2", "echo only-kafka-reads-this >/opt/kafka/tokens")
    lab.run("h2", "chown kafka: /opt/kafka/tokens && chmod 600 /opt/kafka/tokens")
    lab.run("h2", f"echo landline.http.token.file=/opt/kafka/tokens >>{CONFIG}")
    code, _, words = migrate(lab, inventory, check=False)
    lab.run("h2", f"sed -i /token.file/d {CONFIG}; rm /opt/kafka/tokens")
    return code != 0 and "/opt/kafka/tokens cannot be read: Permission denied" in words


def assert_no_anomaly(lab, load, directory):
    """In what the clients saw, by the history checker, and in what the brokers have in both log directories."""
    history = load.finish(timeout_s=240)
    places = {}
    for host in lab.hosts:
        place = places[host.index] = directory / host.name
        place.mkdir()
        for log_dir in LOG_DIRS:
            for replica in (lab.files.root(host) / log_dir.lstrip("/")).iterdir():
                if replica.is_dir():
                    (place / replica.name).symlink_to(replica)
    assert not (found := findings(history, places)), summary(found)


@contextmanager
def permit_of_another(lab):
    """Somebody has the permit from the moment that Kafka has come on h3, whatever this run does with its own."""
    client = KazooClient(f"{lab.host('h1').address}:2181/kafka", timeout=10)
    client.start(30)
    lease = {"version": 1, "holder": "another", "broker": 1, "for_ms": 600_000, "broker_epoch": -1}

    def take():
        came = f"systemctl is-active {KAFKA}"
        wait_until(lambda: lab.run("h3", came, check=False).stdout == "active\n", 240, interval=0.1)
        client.set("/landline/stop_permit", json.dumps({**lease, "out_of_isr": {}}).encode())

    with ThreadPoolExecutor(1) as beside:
        taking = beside.submit(take)
        try:
            yield
            taking.result(60)
        finally:
            client.set("/landline/stop_permit", b"")
            client.stop()
            client.close()


def test_a_broker_that_came_and_is_not_in_sync_is_stopped_only_as_the_cluster_permits(
    lab, inventory, bootstrap, tmp_path
):
    """The run was granted the stop of what left, and gave that permit back: the stop of what came takes another one."""
    # Kafka takes its time to come, which it does not get.
    start = "/opt/kafka/bin/kafka-server-start.sh"
    lab.run("h3", f"sed -i '2i sleep 20' {start}")
    impatient = ("--limit=h3", "-e", "migrate_to=kafka", "-e", "broker_migrate_timeout_s=0")
    with Load(bootstrap, PLAN, tmp_path, run="rescued") as load:
        load.await_progress(500, timeout_s=120)
        # One that ends before it has told the clients is continued.
        argv = playing(lab, inventory / "hosts.yml", "playbooks/migrate.yml", "--limit=h3")
        code, _ = interrupted(argv, "TASK .*Write the settings for clients")
        assert code != 0
        assert owners(lab)["h3"] == "landline"
        migrate(lab, inventory, "--limit=h3")
        lab.run("h3", "test -s /etc/landline/client.properties && test -L /opt/landline/current")
        code, said, words = migrate(lab, inventory, *impatient, check=False)
        assert code != 0
        assert "h3 runs landline-broker@3.service again" in words
        assert "Wait until the cluster grants the stop" in said.split("Note what failed")[1]
        assert owners(lab)["h3"] == "landline"
        with permit_of_another(lab):
            code, said, words = migrate(lab, inventory, *impatient, "-e", "broker_ask_s=30", check=False)
        assert code != 0
        assert re.search(r"h3 runs kafka\.service, though .*broker 3 is not back", words)
        held = "broker 3 may not stop: the permit is held by another for broker 1: it waits"
        assert held in words.split("It was not stopped")[1]
        assert set(owners(lab).values()) == {"kafka"}
        # The next run finds it in its place.
        _, said, _ = migrate(lab, inventory, "-e", "migrate_to=kafka")
        assert set(changed(said).values()) == {0}
        lab.run("h3", f"sed -i 2d {start}")
        wait_until(lambda: set(isr_sizes(bootstrap, load.topics[0]).values()) == {3}, 120)
        assert_no_anomaly(lab, load, tmp_path)
        assert load.failed() == 0


def all_owners(lab, host):
    return set(lab.run(host, f"find {' '.join(LOG_DIRS)} -printf '%u\\n'").stdout.split())


# As unit_swap is in the midst of it: Kafka is stopped, and half of its files are Landline's, which has run here before.
HALF = """
systemctl stop kafka && chown -R landline: /var/lib/kafka/a
for each in $(find /var/lib/kafka/b -type f | sort | sed -n 'n;p'); do chown landline: "$each"; done
"""


def test_a_host_that_went_off_while_its_directories_changed_hands_is_mended_by_the_next_run(
    lab, inventory, bootstrap, tmp_path
):
    with Load(bootstrap, PLAN, tmp_path, run="mended") as load:
        load.await_progress(500, timeout_s=120)
        lab.run("h3", HALF)
        lab.faults.power_loss("h3")
        lab.faults.boot("h3")
        assert all_owners(lab, "h3") == {"kafka", "landline"}
        for to in ("landline", "kafka"):
            migrate(lab, inventory, "--limit=h3", "-e", f"migrate_to={to}")
            assert all_owners(lab, "h3") == {to}
            wait_until(lambda: set(isr_sizes(bootstrap, load.topics[0]).values()) == {3}, 120)
        assert_no_anomaly(lab, load, tmp_path)
        assert load.failed() == 0
    _, said, _ = migrate(lab, inventory, "--limit=h3", "-e", "migrate_to=kafka")
    assert changed(said) == {"h3": 0}


def test_migrations_that_end_early_are_completed_by_the_next_run(lab, inventory, bootstrap, tmp_path):
    """Each way once by ^C and once because ssh is lost, at any task, the second where the first ended."""
    draws = random.Random(SEED)
    print(f"SEED={SEED}")
    with Load(bootstrap, PLAN, tmp_path, run="early") as load:
        load.await_progress(500, timeout_s=120)
        for to in ("landline", "kafka"):
            settings = ("-e", json.dumps({"migrate_to": to, "broker_permit_s": 30}))
            argv = playing(lab, inventory / "hosts.yml", "playbooks/migrate.yml", *settings)
            for how in ("^C", "lost ssh") * ROUNDS:
                at = draws.randrange(1, TASKS + 1)
                print(f"to {to}, ended at task {at} by {how}")
                with ssh_may_be_lost(lab, port=22) as lose:
                    interrupted(argv, r"^TASK \[", at, lose if how == "lost ssh" else None)
            migrate(lab, inventory, *settings)
            assert set(owners(lab).values()) == {to}
            _, said, _ = migrate(lab, inventory, *settings)
            assert set(changed(said).values()) == {0}
            wait_until(lambda: set(isr_sizes(bootstrap, load.topics[0]).values()) == {3}, 120)
        assert_no_anomaly(lab, load, tmp_path)
        assert load.failed() == 0


def test_three_brokers_of_kafka_become_landlines_and_kafkas_again_under_load_and_nothing_is_lost(
    lab, inventory, bootstrap, tmp_path
):
    before = runs(lab)
    assert refuses_a_key_by_its_name(lab, inventory)
    assert refuses_a_file_that_only_kafka_reads(lab, inventory)
    assert runs(lab) == before
    _, _, words = migrate(lab, inventory, "--check")
    assert "kafka.service would leave, and landline-broker@1.service come" in words
    assert words.count(" may stop") == 3
    assert runs(lab) == before
    rows, began = [], time.monotonic()
    with Load(bootstrap, PLAN, tmp_path, run="moved") as load:
        load.await_progress(500, timeout_s=120)
        migrate(lab, inventory)
        ended = time.monotonic()
        assert set(owners(lab).values()) == {"landline"}
        rows += rows_of(load, lab, KAFKA, "to Landline", began, ended)
        # The inventory has all now that a deploy goes by, of ZooKeeper too, whose group it does not have.
        _, said, _ = play(lab, inventory / "hosts.yml", "deploy.yml")
        assert changed(said) == dict.fromkeys(before, 0)
        plan = tmp_path / "plan.json"
        play(
            lab,
            inventory / "hosts.yml",
            "playbooks/plan.yml",
            "--check",
            "-e",
            f"landline_plan_file={plan}",
        )
        assert json.loads(plan.read_text())["zookeeper"] == []
        # One host's Kafka does not start any more: Landline goes on there, and the others had their turns or keep it.
        lab.run("h2", "chmod -x /opt/kafka/bin/kafka-server-start.sh")
        back = time.monotonic()
        code, _, words = migrate(lab, inventory, "-e", "migrate_to=kafka", check=False)
        lab.run("h2", "chmod +x /opt/kafka/bin/kafka-server-start.sh")
        assert code != 0
        assert (
            "h2 runs landline-broker@2.service again, as before. kafka.service did not take its place"
            in words
        )
        assert owners(lab)["h2"] == "landline"
        again = time.monotonic()
        migrate(lab, inventory, "-e", "migrate_to=kafka")
        ended = time.monotonic()
        load.await_progress(500, timeout_s=120)
        for since, until in ((back, again), (again, ended)):
            rows += [
                row
                for row in rows_of(load, lab, LANDLINE, "back to Kafka", since, until)
                if since == again or row["host"] != "h2"
            ]
        assert set(owners(lab).values()) == {"kafka"}
        assert_no_anomaly(lab, load, tmp_path)
        assert load.failed() == 0
    keep_figures("migrate", {"took_s": ended - began, "records": load.acked(), "lost": 0}, rows)
    _, said, _ = migrate(lab, inventory, "-e", "migrate_to=kafka")
    assert changed(said) == dict.fromkeys(before, 0)
