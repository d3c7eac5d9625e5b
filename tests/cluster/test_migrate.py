"""playbooks/migrate.yml: Apache Kafka from its tarball on three hosts becomes Landline under load, and Kafka again.

In a lab of this module's own. The figures go to the directory that FIGURES names.
"""

import os
import re
import subprocess
import time

import pytest
import yaml

from chaos.anomalies import summary
from chaos.load import Load, LoadPlan, findings
from tests.support.deploying import ROOT, changed, make
from tests.support.figures import keep_figures
from tests.support.kafka_hosts import CONFIG, LOG_DIRS, PORT, install_kafka, kafka_bind
from tests.support.labs import lab_session

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(1200)]

PLAN = LoadPlan(topics=1, partitions=6, records_per_s=200, seed=11)
LANDLINE, KAFKA = "landline-broker@{}.service", "kafka.service"


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


def play(lab, inventory, book, *more, check=True):
    """How ansible-playbook ended, and what it said."""
    argv = [str(ROOT / ".venv/bin/ansible-playbook"), "-i", str(inventory), book, *more]
    environment = {k: v for k, v in os.environ.items() if k != "LANDLINE_LAB"}
    done = subprocess.run(
        lab.enter_argv(argv),
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
    gaps = [max(load.gaps_s(at, end).values()) for (at, _), end in zip(told, ends, strict=True)]
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


def test_three_brokers_of_kafka_become_landlines_and_kafkas_again_under_load_and_nothing_is_lost(
    lab, inventory, bootstrap, tmp_path
):
    before = runs(lab)
    assert refuses_a_key_by_its_name(lab, inventory)
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
        # The inventory has all now that a deploy goes by.
        _, said, _ = play(lab, inventory / "hosts.yml", "deploy.yml", "--tags", "broker")
        assert changed(said) == dict.fromkeys(before, 0)
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
