"""`make cluster-up` and deploy.yml on real hosts: nothing to do the second time, rolls that harm nobody.

The three-host cluster is the one that LANDLINE_LAB names (tools/test-cluster brings it up).
"""

import itertools
import json
import os
import re
import shlex

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from rig.topics import delete_topics
from rig.wait import wait_until
from tests.support.deploying import changed, make

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(1200)]


def settings(properties, tags="broker"):
    """make's argument that sets broker properties, given by key or as Ansible's expression for them."""
    variables = json.dumps({"broker_properties": properties, "broker_roll_timeout_s": 90})
    return f"ANSIBLE_ARGS=--tags {tags} -e {shlex.quote(variables)}"


@pytest.fixture
def replicated_topic(cluster):
    """A topic whose ISRs the roll has to watch."""
    name = f"roll-{os.getpid()}"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    config = {"min.insync.replicas": "2"}
    new = NewTopic(name, num_partitions=6, replication_factor=3, config=config)
    admin.create_topics([new], operation_timeout=30)[name].result(60)
    yield name
    wait_until(lambda: deleted(cluster.bootstrap, name), what=f"{name} is deleted")


def deleted(bootstrap, name):
    """False where the controller, rolled last, is not yet known everywhere: librdkafka asks no second time."""
    try:
        delete_topics(bootstrap, [name])
    except KafkaException as error:
        if error.args[0].code() != KafkaError.NOT_CONTROLLER:
            raise
        return False
    return True


def times(lab, broker_id):
    """When the broker last stopped and last became ready, in microseconds of the clock all hosts share."""
    properties = ("InactiveEnterTimestampMonotonic", "ActiveEnterTimestampMonotonic")
    command = f"systemctl show --property={','.join(properties)} landline-broker@{broker_id}"
    shown = dict(line.split("=") for line in lab.run(f"h{broker_id}", command).stdout.split())
    return tuple(int(shown[name]) for name in properties)


def elections(lab, broker_id):
    """When the broker became the controller, on the same clock."""
    journal = f"journalctl --boot --unit=landline-broker@{broker_id} --output=json --output-fields=MESSAGE"
    lines = lab.run(f"h{broker_id}", f"{journal} | grep controller_elected", check=False).stdout.splitlines()
    return [int(json.loads(line)["__MONOTONIC_TIMESTAMP"]) for line in lines]


@pytest.mark.day_two
def test_a_dry_run_shows_a_change_where_it_is_and_restarts_nothing(lab, cluster):
    """The change is one host's: the others' part is a dry run that has nothing to do."""
    before = {broker: cluster.main_pid(broker) for broker in cluster.broker_ids()}
    arguments = settings("{{ {'num.partitions': 2} if inventory_hostname == 'h1' else {} }}", tags="all")
    done = make("deploy", f"LAB={lab.name}", f"{arguments} --check --diff")
    lines = re.findall(r"^([+-]\w[\w.]*)=(.*)", done.stdout, re.MULTILINE)
    assert [key for key, _ in lines] == ["+num.partitions"]
    # The properties, and the environment that tells a process's settings from these.
    assert changed(done.stdout) == {"h1": 2, "h2": 0, "h3": 0}
    assert {broker: cluster.main_pid(broker) for broker in cluster.broker_ids()} == before


def topics(lab, *listed, **variables):
    """Brings about topics by a list, alone."""
    lists = json.dumps({"landline_topics": listed, **variables})
    return make("topics", f"LAB={lab.name}", f"ANSIBLE_ARGS=-e {shlex.quote(lists)}").stdout


def test_settings_and_topics_change_without_a_restart(lab, cluster):
    """The properties stay until the next test, which changes one that needs a restart: then both go by the roll."""
    before = {broker: cluster.main_pid(broker) for broker in cluster.broker_ids()}
    listed = {"name": f"listed-{os.getpid()}", "partitions": 2, "replication_factor": 3}
    lists = {"broker_properties": {"log.retention.hours": 24}, "landline_topics": [listed]}
    done = make(
        "deploy", f"LAB={lab.name}", f"ANSIBLE_ARGS=--tags broker -e {shlex.quote(json.dumps(lists))}"
    )
    assert changed(done.stdout) == {"h1": 3, "h2": 2, "h3": 2}  # the file and the reload; the topic
    assert f"topic {listed['name']}: created with 2 partitions" in done.stdout
    assert {broker: cluster.main_pid(broker) for broker in cluster.broker_ids()} == before
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for broker in cluster.broker_ids():
        resource = ConfigResource(ConfigResource.Type.BROKER, str(broker))
        (described,) = admin.describe_configs([resource]).values()
        assert described.result(60)["log.retention.hours"].value == "24"

    gone = {**listed, "state": "absent"}
    done = topics(lab, gone)
    assert f"landline_topics_delete={listed['name']}" in done
    assert changed(done)["h1"] == 0
    done = topics(lab, gone, landline_topics_delete=listed["name"])
    assert f"topic {listed['name']}: deleted" in done
    assert listed["name"] not in admin.list_topics(timeout=60).topics


def test_a_changed_setting_rolls_one_broker_at_a_time_the_controller_last(lab, cluster, replicated_topic):
    secret = "a-secret-in-the-properties"
    changes = {"num.partitions": 2, "password.encoder.secret": secret}
    done = make("deploy", f"LAB={lab.name}", settings(changes) + " --diff -vvv")
    assert "without a restart" not in done.stdout
    assert secret not in done.stdout
    assert lab.run("h1", f"journalctl --quiet --grep={secret} | grep -v journalctl", check=False).stdout == ""
    rolled = sorted((*times(lab, broker), broker) for broker in cluster.broker_ids())
    # Whoever it was when the first one stopped: a deploy takes minutes, and a session may end meanwhile.
    elected = [(at, broker) for broker in cluster.broker_ids() for at in elections(lab, broker)]
    assert rolled[-1][2] == max((at, broker) for at, broker in elected if at < rolled[0][0])[1]
    for (_, ready, _), (stopped, _, _) in itertools.pairwise(rolled):
        assert stopped > ready


@pytest.mark.day_two
def test_a_roll_stops_before_it_harms_and_is_resumed(lab, cluster):
    """Another setting, while one host hangs: to stop one more could stop writes."""
    another = {"broker_properties": {"num.partitions": 3}}
    hanging = max(set(cluster.broker_ids()) - {cluster.controller_id()})
    before = {broker: cluster.main_pid(broker) for broker in cluster.broker_ids()}
    lab.faults.freeze(f"h{hanging}")
    try:
        soon = shlex.quote(json.dumps(another | {"broker_roll_timeout_s": 2}))
        limits = f"ANSIBLE_ARGS=--tags broker -e {soon} --limit '!h{hanging}'"
        done = make("deploy", f"LAB={lab.name}", limits, check=False)
    finally:
        lab.faults.thaw(f"h{hanging}")
    assert done.returncode != 0
    assert f"replica {hanging} (" in done.stdout
    others = [broker for broker in cluster.broker_ids() if broker != hanging]
    assert {broker: cluster.main_pid(broker) for broker in others} == {b: before[b] for b in others}
    make("deploy", f"LAB={lab.name}", settings(another["broker_properties"]))
    after = {broker: cluster.main_pid(broker) for broker in cluster.broker_ids()}
    assert not set(after.values()) & set(before.values())
    make("deploy", f"LAB={lab.name}", "ANSIBLE_ARGS=--tags broker")


def test_a_wrong_setting_is_refused_before_anything_is_written(lab, cluster):
    before = {broker: cluster.main_pid(broker) for broker in cluster.broker_ids()}
    done = make("deploy", f"LAB={lab.name}", settings({"num.partitoins": 2}), check=False)
    assert done.returncode != 0
    assert "num.partitoins" in done.stdout
    assert "num.partitoins" not in lab.run("h1", "cat /etc/landline/broker-1.properties").stdout
    assert {broker: cluster.main_pid(broker) for broker in cluster.broker_ids()} == before


def test_a_host_comes_back_by_itself_after_a_power_loss(lab, cluster):
    lab.faults.power_loss("h2")
    lab.faults.boot("h2")

    (address,) = (host.address for host in lab.hosts if host.name == "h2")

    def ready():
        return lab.run("h2", f"curl -fsS http://{address}:8092/readyz", check=False).returncode == 0

    wait_until(ready, timeout=90, interval=0.5, what="broker 2 is ready")
    state = lab.run("h2", "systemctl is-system-running --wait", check=False).stdout.strip()
    assert state == "running"


def test_a_cluster_up_after_rolls_and_a_power_loss_changes_nothing(lab):
    """That nothing changes after the first one either is the dry run's and test_one_host's."""
    make("deploy", f"LAB={lab.name}", "ANSIBLE_ARGS=--tags broker")  # with the settings that it came with
    done = make("cluster-up", f"LAB={lab.name}")
    assert changed(done.stdout) == {"h1": 0, "h2": 0, "h3": 0}
    assert "try next" in done.stdout
    assert "controller" in done.stdout
