"""Two of the playbooks of `make day-two` in their cheapest form, on the three-host cluster that LANDLINE_LAB names: a
topic that lies on two brokers is spread, then one host is rebooted, under load and with the history checker beside it.

test_moves and test_reboot go the whole way.
"""

import os
import re

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from chaos.load import LoadPlan
from rig.topics import delete_topics, partition_replicas
from tests.support.checked_load import assert_no_anomaly, checked_load
from tests.support.deploying import changed, make

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(600)]

PLAN = LoadPlan(topics=1, partitions=3, records_per_s=100, seed=3)
HOSTS = ("h1", "h2", "h3")
# None of its replicas is on broker 3.
CROOKED = [[1, 2]] * 6


def boot(lab, host):
    return lab.run(host, "cat /proc/sys/kernel/random/boot_id").stdout


def test_a_topic_is_spread_and_a_host_rebooted_under_load_and_nothing_is_lost(lab, cluster, tmp_path):
    topic, before = f"crooked-{os.getpid()}", {host: boot(lab, host) for host in HOSTS}
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    new = NewTopic(topic, len(CROOKED), replica_assignment=CROOKED, config={"min.insync.replicas": "1"})
    admin.create_topics([new], operation_timeout=30)[topic].result(60)
    with checked_load(cluster.bootstrap, PLAN, tmp_path, f"brief-{os.getpid()}") as load:
        moved = make("rebalance", f"LAB={lab.name}").stdout
        assert re.search(r"[1-9]\d* replicas, ", moved)
        assert any(3 in replicas for replicas in partition_replicas(cluster.bootstrap, topic).values())
        make("reboot", f"LAB={lab.name}", "ANSIBLE_ARGS=--limit h2 -e reboot_min_uptime_s=0")
        assert {host for host in HOSTS if boot(lab, host) != before[host]} == {"h2"}
        again = make("rebalance", f"LAB={lab.name}").stdout
        assert set(changed(again).values()) == {0}
        load.await_progress(200, timeout_s=120)
        assert_no_anomaly(lab, load, HOSTS)
        assert load.failed() == 0
    delete_topics(cluster.bootstrap, [topic])
