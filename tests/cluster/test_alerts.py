"""Prometheus by the playbook, from Debian's package, on a host of the cluster: each planted fault raises its alert,
which ends with the fault.

Only the rules' `for:` is shorter here. What they are shipped with is what their own tests try.
"""

import json
from urllib.request import urlopen

import pytest
import yaml
from confluent_kafka import Consumer, Producer, TopicPartition

from lab import Bind, image
from rig.topics import create_topic
from rig.wait import wait_until
from tests.support.deploying import changed, make
from tests.support.lab_cluster import BROKER_PORT
from tests.support.labs import lab_session
from tests.support.numbered_load import NumberedLoad
from tests.support.package_repository import SOURCE, download

pytestmark = [pytest.mark.cluster, pytest.mark.day_two, pytest.mark.slow, pytest.mark.timeout(900)]

HTTP_PORT, PAGE_PORT = 8092, 9090
PACKAGES = "/srv/packages"
RULES = "/etc/prometheus/landline.rules.yml"
# ConsumerGroupLag's threshold is 10,000 records.
MANY = 12_000
# What a follower gets through a link of LINK_KBIT is less than what is written, and enough for its host to answer.
LINK_KBIT, RECORD = 4_000, b"r" * 10_000


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    make("wheelhouse")  # for which the network in here is no use
    packages = tmp_path_factory.mktemp("packages")
    packages.chmod(0o755)  # for apt's own user
    download(["prometheus"], image.ensure(print), packages)
    binds = [Bind(str(packages), PACKAGES)]
    with lab_session("alerts", hosts=3, binds=binds, data_disk_mb=1536) as lab, lab.inside():
        yield lab


class Operator:
    """Deploys the lab, with its first host in the group prometheus."""

    def __init__(self, lab, directory):
        self._lab = lab
        self._group = directory / "watched.yml"
        self._group.write_text("prometheus: {hosts: {h1: {}}}\n")
        self._variables = directory / "variables.yml"
        self._directory = directory

    def make(self, verb, tags, **more):
        variables = {
            "landline_security": "tls",
            "landline_security_also": ["none"],
            "landline_certificates_dir": str(self._directory / "ca"),
            "prometheus_listen_address": f"0.0.0.0:{PAGE_PORT}",
            "prometheus_scrape_interval_s": 1,
            **more,
        }
        self._variables.write_text(yaml.safe_dump(variables))
        arguments = f"-i inventory/lab.py -i {self._group} --tags {tags} -e @{self._variables}"
        return make(verb, f"LAB={self._lab.name}", f"ANSIBLE_ARGS={arguments}")


@pytest.fixture(scope="module")
def operator(lab, tmp_path_factory):
    """The cluster is deployed, with certificates that end within a day."""
    lab.run(
        "h1",
        f"echo '{SOURCE.format(path=PACKAGES)}' >/etc/apt/sources.list && rm -rf /etc/apt/sources.list.d",
    )
    operator = Operator(lab, tmp_path_factory.mktemp("operator"))
    short = {"broker_certificate_days": 1, "broker_certificate_renew_days": 0}
    operator.make("deploy", "zookeeper,broker,prometheus", **short)
    again = operator.make("deploy", "prometheus", **short)
    assert set(changed(again.stdout).values()) == {0}
    lab.run("h1", f"sed -i 's/ for: .*/ for: 1s/' {RULES} && systemctl reload prometheus")
    return operator


@pytest.fixture(scope="module")
def bootstrap(lab, operator):
    brokers = ",".join(f"{host.address}:{BROKER_PORT}" for host in lab.hosts)
    create_topic(brokers, "watched", 6, 3, {"min.insync.replicas": "1"})
    return brokers


def firing(lab):
    """The alerts that fire, each with what it is about."""
    with urlopen(f"http://{lab.hosts[0].address}:{PAGE_PORT}/api/v1/alerts", timeout=10) as response:
        alerts = json.load(response)["data"]["alerts"]
    about = ("instance", "follower", "consumergroup")
    return {
        (
            alert["labels"]["alertname"],
            next((alert["labels"][each] for each in about if each in alert["labels"]), ""),
        )
        for alert in alerts
        if alert["state"] == "firing"
    }


def wait_for(lab, *alerts):
    wait_until(lambda: firing(lab).issuperset(alerts), 90, what=f"{alerts} fire")


def wait_for_the_end_of(lab, *alerts):
    wait_until(lambda: firing(lab).isdisjoint(alerts), 120, what=f"{alerts} end")


def instance(lab, name):
    return f"{lab.host(name).address}:{HTTP_PORT}"


def test_certificates_about_to_end_raise_an_alert_until_they_are_renewed(lab, operator):
    ending = [("KafkaCertificateExpiresNow", instance(lab, host.name)) for host in lab.hosts]
    wait_for(lab, *ending)
    operator.make("certificates", "all")
    wait_for_the_end_of(lab, *ending)


def test_a_healthy_cluster_raises_no_alert(lab, bootstrap):
    with NumberedLoad(bootstrap, "watched", 6, pause_s=0.005) as load:
        wait_until(lambda: len(load.acked) > 1000, 60)
    assert load.failed == []
    wait_until(lambda: firing(lab) == set(), 60, what="no alert is left")


def test_a_lagging_group_raises_an_alert_until_it_has_caught_up(lab, bootstrap):
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(MANY):
        producer.produce("watched", str(number), partition=0)
        producer.poll(0)
    assert producer.flush(60) == 0
    group = Consumer({"bootstrap.servers": bootstrap, "group.id": "laggard"})
    try:
        _, end = group.get_watermark_offsets(TopicPartition("watched", 0), 30)
        group.commit(offsets=[TopicPartition("watched", 0, 0)], asynchronous=False)
        wait_for(lab, ("ConsumerGroupLag", "laggard"))
        group.commit(offsets=[TopicPartition("watched", 0, end)], asynchronous=False)
    finally:
        group.close()
    wait_for_the_end_of(lab, ("ConsumerGroupLag", "laggard"))


def test_a_slow_follower_raises_an_alert_until_it_is_quick_again(lab, bootstrap):
    slow = ("KafkaFollowerSlow", "3")
    producer = Producer({"bootstrap.servers": bootstrap, "acks": 1})
    lab.faults.slow("h3", LINK_KBIT)
    try:

        def written_until_it_fires():
            for _ in range(100):
                for partition in range(6):
                    producer.produce("watched", RECORD, partition=partition)
                producer.poll(0.01)
            return slow in firing(lab)

        wait_until(written_until_it_fires, 90, what="the follower falls behind")
    finally:
        lab.faults.heal("h3")
    wait_for_the_end_of(lab, slow)


def test_a_dead_host_raises_alerts_until_it_is_back(lab, bootstrap):
    dead = ("KafkaBrokerDown", instance(lab, "h3"))
    lab.faults.power_off("h3")
    wait_for(lab, dead)
    wait_until(lambda: "KafkaUnderReplicatedPartitions" in {name for name, _ in firing(lab)}, 90)
    lab.faults.boot("h3")
    wait_for_the_end_of(lab, dead)
    wait_until(lambda: "KafkaUnderReplicatedPartitions" not in {name for name, _ in firing(lab)}, 120)


def test_a_full_disk_raises_alerts_until_there_is_room(lab, bootstrap):
    full = [(name, instance(lab, "h2")) for name in ("KafkaDiskSpaceLow", "KafkaLogDirectoryRefusesProduce")]
    lab.faults.fill_disk("h2")
    try:
        wait_for(lab, *full)
    finally:
        lab.faults.free_disk("h2")
    wait_for_the_end_of(lab, *full)
    wait_until(lambda: firing(lab) == set(), 60, what="no alert is left")
