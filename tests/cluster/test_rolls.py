"""Who may be stopped, on five hosts of this module's own: one is off for good, one crash-loops, another asks too."""

import itertools
import json
import math
import os
import re
import shlex
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient

from lab import Bind
from rig.topics import delete_topics
from rig.wait import wait_until
from tests.support.deploying import ROOT, make
from tests.support.lab_cluster import BROKER_PORT, LAB_ENV
from tests.support.labs import lab_session
from tests.support.numbered_load import NumberedLoad, numbers_in

pytestmark = [pytest.mark.cluster, pytest.mark.day_two, pytest.mark.slow, pytest.mark.timeout(2400)]

# A refusal names the first few partitions: this one sorts before those of internal topics.
TIGHT = "TIGHT"
LOADED, WRITTEN = "loaded", "written"
INTERNAL_PORT = 9091
OFF = "h5"
SOON_S = 60
CHANGED = {"num.partitions": 2}
REST = ("h1", "h2", "h3", "h4")
FILES = "readlink /opt/landline/current; cat /etc/landline/*.properties /etc/landline/*.env"
# With four replicas, of which two have to be there, one host may be off and one more may restart.
BASE = {
    "broker_default_replication_factor": 4,
    "broker_min_insync_replicas": 2,
    "broker_journal_shipper_enabled": False,
    "broker_internal_port": INTERNAL_PORT,
}


def arguments(properties, tags="broker", **more):
    """make's argument for a deploy with these broker properties."""
    variables = {**BASE, "broker_properties": properties, **more}
    return f"ANSIBLE_ARGS=--tags {tags} -e {shlex.quote(json.dumps(variables))}"


def deploy(lab, properties, check=True, **more):
    return make("deploy", f"LAB={lab.name}", arguments(properties, **more), check=check)


@pytest.fixture(scope="module")
def lab():
    # Without Spark's package, deploys of everything are refused at once.
    with lab_session("roll", hosts=5, binds=[Bind(str(Path(pyspark.__file__).parent), "/opt/spark")]) as lab:
        make("deploy", f"LAB={lab.name}", arguments({}, tags="zookeeper,broker", broker_internal_port=0))
        with lab.inside():
            yield lab


@pytest.fixture(scope="module")
def bootstrap(lab):
    return ",".join(f"{host.address}:{BROKER_PORT}" for host in lab.hosts if host.name in REST)


def address(lab, name):
    return next(host.address for host in lab.hosts if host.name == name)


def pids(lab, hosts=REST):
    command = "systemctl show --property=MainPID --value 'landline-broker@*'"
    return {host: lab.run(host, command).stdout.strip() for host in hosts}


def files(lab):
    return {host: lab.run(host, FILES).stdout for host in REST}


@contextmanager
def beside(verb, lab, argument):
    """make while the block goes on, and waited for at its end; what it says is put into the list that is given."""
    environment = {k: v for k, v in os.environ.items() if k not in {"LANDLINE_LAB", "MAKEFLAGS"}}
    argv = ["make", verb, f"LAB={lab.name}", argument]
    # A pipe that nobody reads would stop it in the midst of its turn.
    with tempfile.TemporaryFile("w+") as output:
        other = subprocess.Popen(argv, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT)
        said = []
        try:
            yield said
        finally:
            other.wait()
            output.seek(0)
            said.append(output.read())
            print(said[0])


def without_broker(lab, host):
    """When the host had no broker that serves, as (from, to) in seconds of the clock that all hosts share."""
    unit = f"landline-broker@{host[1:]}.service"
    lines = lab.run(host, f"journalctl --output=short-monotonic --no-pager --unit={unit} _PID=1").stdout
    told = re.findall(r"^\[ *([\d.]+)\] .*: (Stopping|Started) ", lines, re.MULTILINE)
    return [
        (float(a), float(b))
        for (a, first), (b, second) in itertools.pairwise(told)
        if (first, second) == ("Stopping", "Started")
    ]


def create(bootstrap, topic):
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([topic], operation_timeout=30)[topic.topic].result(60)


def test_brokers_with_one_listener_get_one_of_their_own_under_load_by_one_deploy(lab, bootstrap):
    """All have both before any speaks by the new one: two restarts of each."""
    create(bootstrap, NewTopic(WRITTEN, 4, 4, config={"min.insync.replicas": "2"}))
    hosts, before = [host.name for host in lab.hosts], files(lab)
    assert not any("inter.broker.listener.name" in text for text in before.values())
    with NumberedLoad(bootstrap, WRITTEN, 4) as load:
        wait_until(lambda: len(load.acked) > 100, 240)
        done = deploy(lab, {})
    # Between the two it looked whether all hosts connect to all brokers; test_sample_inventory has one that does not.
    look = done.stdout.split(
        "TASK [landline.cluster.broker : Look whether the brokers' own listeners are reached from here]"
    )
    assert [text.count("Restart it] ***") for text in look] == [5, 5]
    for host in hosts:
        assert len(without_broker(lab, host)) == 2
        told = lab.run(host, f"curl -fsS http://{address(lab, host)}:8092/status").stdout
        assert f"BROKER://{address(lab, host)}:{INTERNAL_PORT}" in told
        between = f"ss --no-header --tcp state established '( sport = :{INTERNAL_PORT} )'"
        assert lab.run(host, between).stdout.strip(), f"nobody speaks to {host} by the new listener"
    assert all("inter.broker.listener.name=BROKER" in text for text in files(lab).values())
    assert load.failed == []
    assert load.acked <= numbers_in(bootstrap, WRITTEN, 4)


def test_brokers_beside_the_inventorys_that_lack_the_listener_are_told_of_and_nothing_is_touched(lab):
    """As Apache Kafka's in a mixed cluster."""
    before = pids(lab), files(lab)
    endpoint = "PLAINTEXT://192.0.2.77:9092"
    registration = {"version": 5, "host": "192.0.2.77", "port": 9092, "endpoints": [endpoint]}
    client = KazooClient(f"{address(lab, 'h1')}:2181", timeout=10)
    client.start(30)
    try:
        client.create("/brokers/ids/77", json.dumps(registration).encode(), ephemeral=True)
        code, words, _ = play(lab, "deploy.yml")
    finally:
        client.stop()
        client.close()
    assert code != 0
    assert "ZooKeeper has brokers that are not in the inventory and have no listener BROKER" in words
    assert f"(broker_internal_port): broker 77 at {endpoint}. They" in words
    assert "set broker_internal_port: 0" in words
    assert "PLAY [Install" not in words
    assert (pids(lab), files(lab)) == before


def test_a_refused_turn_leaves_the_host_as_it_was_and_says_for_whom_it_waits(lab, bootstrap):
    """A topic that has nothing to spare without the host that is off."""
    everywhere = [[1, 2, 3, 4], [5, 2, 3, 4], [5, 1, 3, 4], [5, 1, 2, 4]]
    create(bootstrap, NewTopic(LOADED, 4, replica_assignment=everywhere, config={"min.insync.replicas": "2"}))
    spare = [[1, 2, 5], [3, 4, 5]]
    create(bootstrap, NewTopic(TIGHT, 2, replica_assignment=spare, config={"min.insync.replicas": "2"}))
    lab.faults.power_off(OFF)
    before = pids(lab), files(lab)
    done = deploy(lab, {"num.partitions": 2}, check=False, broker_roll_timeout_s=2)
    assert done.returncode != 0
    words = re.sub(r"\s+", " ", done.stdout)
    assert re.search(
        r"TIGHT-\d would have 1 in sync without broker \d, with min.insync.replicas=2: it waits for replica 5 \(",
        words,
    )
    assert f"Not reached: {OFF}" in words
    assert (pids(lab), files(lab)) == before


def test_the_rest_rolls_under_load_while_one_is_off_one_crash_loops_and_another_deploys_too(lab, bootstrap):
    """What is deployed mends the one that crash-loops; two deploys at once, which want different things, take turns."""
    delete_topics(bootstrap, [TIGHT])
    # What listens there already: the broker cannot start.
    lab.run(
        "h2", "sed -i 's/^landline.http.port=.*/landline.http.port=22/' /etc/landline/broker-2.properties"
    )
    lab.run("h2", "systemctl restart --no-block landline-broker@2")
    wait_until(
        lambda: "NRestarts=0" not in lab.run("h2", "systemctl show -p NRestarts landline-broker@2").stdout,
        240,
    )
    before = pids(lab)
    with NumberedLoad(bootstrap, LOADED, 4) as load:
        wait_until(lambda: len(load.acked) > 100, 240)
        with beside("deploy", lab, arguments({**CHANGED, "log.retention.hours": 100})) as said:
            done = deploy(lab, CHANGED, check=False)
    for output in (done.stdout, *said):
        assert re.findall(r"^(h\d).*failed=[1-9]", output, re.MULTILINE) == []
        assert re.findall(r"^(h\d).*unreachable=[1-9]", output, re.MULTILINE) == [OFF]
    after = pids(lab)
    assert not set(after.values()) & set(before.values())
    assert all("num.partitions=2" in text for text in files(lab).values())
    apart = sorted(span for host in REST if host != "h2" for span in without_broker(lab, host))
    assert len(apart) >= 6
    for (_, ready), (stopped, _) in itertools.pairwise(apart):
        assert stopped > ready
    assert load.failed == []
    assert load.acked <= numbers_in(bootstrap, LOADED, 4)


def test_a_restart_changes_neither_release_nor_files(lab):
    before, pid = files(lab), pids(lab)["h1"]
    wanted = arguments({"num.partitions": 7}, broker_dist_dir="/nonexistent")
    make("restart", f"LAB={lab.name}", f"{wanted} --limit h1")
    assert files(lab) == before
    assert pids(lab)["h1"] != pid


def play(lab, book, *more):
    """How ansible-playbook ended, what it said, and in how many seconds."""
    argv = [str(ROOT / ".venv" / "bin" / "ansible-playbook"), book, "-e", json.dumps(BASE), *more]
    began = time.monotonic()
    done = subprocess.run(
        lab.enter_argv(argv),
        cwd=ROOT,
        env={**os.environ, LAB_ENV: lab.name, "BROKERS_PER_HOST": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    took_s = time.monotonic() - began
    print(done.stdout, f"{took_s:.1f} s", sep="\n")
    return done.returncode, re.sub(r"\s+", " ", done.stdout), took_s


def stop_zookeeper(lab, host):
    lab.run(host, "systemctl stop zookeeper")


def serves(host_address):
    with socket.create_connection((host_address, 2181), timeout=5) as connection:
        connection.sendall(b"srvr")
        return b"Mode: " in b"".join(iter(lambda: connection.recv(4096), b""))


def is_ready(lab, host):
    told = lab.run(host, f"systemctl is-active landline-broker@{host[1:]}", check=False).stdout
    return told.strip() == "active"


def start_zookeeper(lab, host):
    lab.run(host, "systemctl start --no-block zookeeper")


@pytest.mark.parametrize(
    ("book", "more", "take", "give"),
    [
        ("deploy.yml", ("--tags", "broker"), stop_zookeeper, start_zookeeper),
        ("playbooks/restart.yml", (), stop_zookeeper, start_zookeeper),
        (
            "deploy.yml",
            (),
            lambda lab, host: lab.faults.freeze(host),
            lambda lab, host: lab.faults.thaw(host),
        ),
    ],
    ids=["a deploy of brokers", "a restart", "a whole deploy while hosts hang"],
)
def test_without_a_quorum_of_zookeeper_nobody_is_stopped_and_that_is_said_within_a_minute(
    lab, book, more, take, give
):
    """The best of three: a machine that is busy otherwise takes its time for Ansible itself, which looks at all hosts
    first. With two cores for a dozen hosts, 30 s were mostly enough, and once 44 were not too many.
    """
    # On a host that hung for long enough the watchdog restarts the broker.
    go_on = REST if take is stop_zookeeper else ("h1", "h4")
    before, took_s = (pids(lab, go_on), files(lab)), []
    for host in ("h2", "h3"):
        take(lab, host)
    try:
        # Whom the third server follows, it gives up after zookeeper_sync_limit_ticks.
        wait_until(lambda: not serves(address(lab, "h1")), 60, what="the third server has noticed")
        while len(took_s) < 3 and min(took_s, default=math.inf) > SOON_S:
            code, words, seconds = play(lab, book, *more)
            took_s.append(seconds)
            assert code != 0
            assert "ZooKeeper has no quorum, and nothing was touched" in words
            for silent in ("h2", "h3"):
                assert f"{address(lab, silent)}:2181 does not answer" in words
    finally:
        for host in ("h2", "h3"):
            give(lab, host)
    assert min(took_s) <= SOON_S
    assert (pids(lab, go_on), files(lab)) == before
    wait_until(lambda: serves(address(lab, "h1")), 120, what="ZooKeeper has its quorum again")
    wait_until(lambda: all(is_ready(lab, host) for host in REST), 120, what="brokers that hung are back")


def test_a_play_that_is_killed_while_it_waits_for_its_turn_leaves_nobody_waiting_on_the_host(lab):
    """Killed outright it ends neither its workers nor their connections; another has the permit."""
    # Whose brokers no watchdog restarts: these hosts did not hang above.
    asks, others = "h4", ("h1", "h4")
    turn = "/opt/landline/current/venv/bin/landline {} /etc/landline/broker-1.properties --holder=another"
    argv = [str(ROOT / ".venv" / "bin" / "ansible-playbook"), "playbooks/restart.yml", "--limit", asks]

    def waiters():
        return lab.run(asks, "pgrep --full '[l]andline may-stop'", check=False).stdout.split()

    before = pids(lab, others)
    # Hosts hung above: until all that they hold is in sync again, nobody may stop.
    lab.run("h1", f"{turn.format('may-stop')} --within=240 --for=600", timeout_s=270)
    try:
        playing = subprocess.Popen(argv, cwd=ROOT, env={**os.environ, LAB_ENV: lab.name})
        try:
            wait_until(waiters, 240, what="it waits for its turn")
        finally:
            playing.kill()
            playing.wait()
        wait_until(lambda: not waiters(), 60, interval=1, what="nobody waits on the host")
    finally:
        lab.run("h1", f"{turn.format('await-return')} --within=0", check=False)
    assert pids(lab, others) == before


def test_what_one_host_has_wrong_keeps_the_roll_from_beginning(lab):
    """A setting on one, a port that another process has on another."""
    before = pids(lab), files(lab)
    wrong = "{{ {'num.partitoins': 2} if inventory_hostname == 'h4' else {'num.partitions': 3} }}"
    taken = f"{{{{ 2181 if inventory_hostname == 'h1' else {INTERNAL_PORT} }}}}"
    done = deploy(lab, wrong, check=False, broker_internal_port=taken, preflight_allow=["ports"])
    assert done.returncode != 0
    words = re.sub(r"\s+", " ", done.stdout)
    assert "num.partitoins" in words
    both = "the listener BROKER of broker 1 and ZooKeeper's clients"
    assert f"ports h1 port 2181 for {both} is in use by java, process " in words
    assert "h1: port 2181 for the listener BROKER of broker 1 is in use by java, process " in words
    assert "Nothing is restarted, for h1, h4 failed above" in words
    assert (pids(lab), files(lab)) == before


def test_one_http_address_for_all_is_refused_with_its_reason(lab):
    done = deploy(lab, {}, check=False, broker_http_host="127.0.0.1")
    assert done.returncode != 0
    words = re.sub(r"\s+", " ", done.stdout)
    assert "The 5 brokers have 1 HTTP addresses between them: http://127.0.0.1:8092" in words


def test_a_listener_by_which_brokers_speak_is_not_taken_away(lab):
    before = pids(lab), files(lab)
    done = deploy(lab, {}, check=False, broker_internal_port=0)
    assert done.returncode != 0
    words = re.sub(r"\s+", " ", done.stdout)
    assert (
        "Brokers speak to each other by the listener BROKER, which broker_internal_port=0 takes away" in words
    )
    assert (pids(lab), files(lab)) == before
