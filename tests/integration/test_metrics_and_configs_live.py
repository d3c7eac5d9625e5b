"""A running `landline standalone`: its metrics are those documented, and configs change while it runs."""

import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from broker.metrics.docs import families
from rig.landline_broker import LandlineStandalone
from rig.wait import wait_until

pytestmark = pytest.mark.integration
REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with LandlineStandalone(tmp_path_factory.mktemp("standalone") / "data") as running:
        yield running


@pytest.fixture
def admin(broker):
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def describe(admin, kind, name):
    (future,) = admin.describe_configs([ConfigResource(kind, name)]).values()
    return future.result(timeout=30)


def alter(admin, kind, name, key, operation, value):
    entry = ConfigEntry(key, value, incremental_operation=operation)
    resource = ConfigResource(kind, name, incremental_configs=[entry])
    (future,) = admin.incremental_alter_configs([resource]).values()
    return future.result(timeout=30)


def test_the_documented_metrics_are_those_that_are_exported(broker):
    with urlopen(f"{broker.http_url}/metrics") as response:
        exported = {(family.name, family.kind) for family in families(response.read().decode())}
    page = (REPOSITORY / "docs" / "metrics.md").read_text()
    documented = set(re.findall(r"^\| `(\w+)` \| (\w+) \|", page, re.MULTILINE))
    assert documented == exported, "run: python -m broker.metrics.docs URL > docs/metrics.md"


def test_a_topics_config_is_changed_by_an_unmodified_client(admin):
    (created,) = admin.create_topics([NewTopic("live", 1, 1, config={"retention.ms": "1000"})]).values()
    created.result(timeout=30)
    wait_until(lambda: describe(admin, ResourceType.TOPIC, "live")["retention.ms"].value == "1000")
    alter(admin, ResourceType.TOPIC, "live", "cleanup.policy", AlterConfigOpType.APPEND, "compact")
    configs = describe(admin, ResourceType.TOPIC, "live")
    assert configs["cleanup.policy"].value == "delete,compact"
    assert configs["cleanup.policy"].source == 1


def test_the_clusters_default_is_in_force_without_a_restart(admin, broker):
    name = str(broker.broker_id)
    alter(admin, ResourceType.BROKER, name, "log.retention.ms", AlterConfigOpType.SET, "5000")
    wait_until(lambda: describe(admin, ResourceType.BROKER, name)["log.retention.ms"].value == "5000")
    alter(admin, ResourceType.BROKER, name, "log.retention.ms", AlterConfigOpType.DELETE, None)
    wait_until(lambda: describe(admin, ResourceType.BROKER, name)["log.retention.ms"].value is None)


def test_each_part_takes_up_its_settings_without_a_restart(admin, broker):
    name = str(broker.broker_id)
    changes = {
        "background.threads": "5",
        "log.cleaner.backoff.ms": "1000",
        "log.cleaner.io.max.bytes.per.second": "1000000.0",
        "num.io.threads": "3",
        "num.recovery.threads.per.data.dir": "2",
        "num.replica.fetchers": "2",
        "producer.id.expiration.ms": "1000000",
    }
    for key, value in changes.items():
        alter(admin, ResourceType.BROKER, name, key, AlterConfigOpType.SET, value)

    def are_in_force() -> bool:
        told = describe(admin, ResourceType.BROKER, name)
        return all(told[key].value == value and not told[key].is_read_only for key, value in changes.items())

    wait_until(are_in_force)
    assert "config_listener_failed" not in broker.process.log_text()
    with pytest.raises(KafkaException, match="restart"):
        alter(admin, ResourceType.BROKER, name, "num.network.threads", AlterConfigOpType.SET, "2")


@contextmanager
def standalone(data_dir, **streams):
    command = [sys.executable, "-m", "broker", "standalone", "--port", "0", "--data-dir", str(data_dir)]
    with subprocess.Popen(command, cwd=REPOSITORY, text=True, **streams) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def test_standalone_prints_its_port_keeps_its_data_and_stops_when_told(tmp_path):
    cluster_ids = set()
    for _ in range(2):
        with standalone(tmp_path / "d", stdout=subprocess.PIPE) as process:
            ready = process.stdout.readline()
            match = re.match(
                r"Landline \S+ ready on (127\.0\.0\.1:\d+) \(data (\S+), \d+ ms\)\. Its state: (http://\S+)$",
                ready,
            )
            assert match, ready
            with urlopen(match[3]) as status:
                assert b'"state": "Running' in status.read()
            admin = AdminClient({"bootstrap.servers": match[1]})
            cluster_ids.add(admin.list_topics(timeout=30).cluster_id)
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=60) == 0
    assert len(cluster_ids) == 1
    assert (tmp_path / "d" / "metadata.sqlite").exists()


def test_two_brokers_of_one_machine_take_different_http_ports_without_being_told(tmp_path):
    with (
        standalone(tmp_path / "a", stdout=subprocess.PIPE) as one,
        standalone(tmp_path / "b", stdout=subprocess.PIPE) as other,
    ):
        told = [re.search(r"Its state: (http://\S+)$", each.stdout.readline())[1] for each in (one, other)]
        assert told[0] != told[1]
        for url in told:
            with urlopen(url) as status:
                assert b'"state": "Running' in status.read()


@pytest.mark.parametrize("delay_s", [0.0, 0.05, 0.15, 0.3, 0.6])
def test_a_stop_at_any_moment_of_the_start_is_clean(tmp_path, delay_s):
    with standalone(tmp_path / "d", stderr=subprocess.PIPE) as process:
        # From the first line of the log on, signals are the daemon's; before it the process just ends.
        process.stderr.readline()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=max(delay_s, 0.001))
        process.send_signal(signal.SIGTERM)
        _, rest = process.communicate(timeout=60)
    assert process.returncode == 0, rest
    assert "traceback" not in rest


def test_a_port_in_use_is_said_in_one_line_and_nothing_stays_behind(broker, tmp_path):
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "broker",
            "standalone",
            "--port",
            str(broker.port),
            "--data-dir",
            str(tmp_path / "d"),
        ],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    assert "the port is in use" in done.stderr
    assert "traceback" not in done.stderr
