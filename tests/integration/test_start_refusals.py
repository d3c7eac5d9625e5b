"""Starts that are refused, before anybody hears of the broker, with one line that says what to do."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import threading
from pathlib import Path

import pytest

from broker.zookeeper.client import ZooKeeperStore
from broker.zookeeper.cluster_store import ClusterStore
from rig.brokers import HOST, unused_port
from rig.landline_broker import COMMAND, REPOSITORY, LandlineBroker, LandlineStandalone
from rig.topics import create_topic
from rig.wait import wait_until
from rig.zookeeper import ZooKeeperServer

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

TOPIC = "kept"


def run_to_end(*arguments: object, timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
    """Runs the command until it ends by itself."""
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def run_standalone(data_dir: Path, port: int = 0, *overrides: str) -> subprocess.CompletedProcess[str]:
    """Runs a standalone broker until it ends by itself."""
    words = [word for override in overrides for word in ("--override", override)]
    return run_to_end("standalone", "--port", port, "--data-dir", data_dir, *words)


def one_line(done: subprocess.CompletedProcess[str], event: str = "startup_failed") -> str:
    """The one line that says why nothing was started; the exit code must not be 0."""
    assert done.returncode not in (0, None), done.stderr
    assert "Traceback" not in done.stderr
    (line,) = [line for line in done.stderr.splitlines() if f" {event} " in line]
    return line


def cluster(zk_connect: str) -> ClusterStore:
    store = ZooKeeperStore(zk_connect, 10_000)
    store.connect(10_000, threading.Event())
    return ClusterStore(store)


@pytest.fixture
def squatter():
    """A port that somebody else listens on."""
    with socket.socket() as taken:
        taken.bind((HOST, unused_port()))
        taken.listen()
        yield taken.getsockname()[1]


def test_port_in_use_is_refused_naming_it(squatter: int, tmp_path: Path) -> None:
    done = run_standalone(tmp_path / "data", squatter)
    line = one_line(done)
    assert str(squatter) in line
    assert "the port is in use" in line
    assert "listeners" in line


def test_http_port_in_use_is_refused_naming_its_config(squatter: int, tmp_path: Path) -> None:
    done = run_standalone(tmp_path / "data", 0, f"landline.http.port={squatter}")
    line = one_line(done)
    assert str(squatter) in line
    assert "landline.http.port" in line


@pytest.mark.parametrize("what", ["kafka", "http"])
def test_port_in_use_is_refused_before_zookeeper_hears_of_it(
    what: str, squatter: int, zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    zk_connect = zookeeper.chroot()
    config = {"landline.http.port": squatter} if what == "http" else {}
    broker = LandlineBroker(
        1, zk_connect, tmp_path / "data", config, port=squatter if what == "kafka" else None
    )
    broker.start_nowait()
    wait_until(lambda: not broker.process.running, timeout=30)
    assert broker.process.exit_code == 1
    assert "startup_failed" in broker.log_text()
    bare = ZooKeeperStore(zookeeper.connect_string, 10_000)
    bare.connect(10_000, threading.Event())
    try:
        assert bare.exists("/" + zk_connect.partition("/")[2]) is None
    finally:
        bare.close()


def test_data_directory_of_a_running_broker_is_refused(tmp_path: Path) -> None:
    with LandlineStandalone(tmp_path / "data") as first:
        done = run_standalone(tmp_path / "data")
        line = one_line(done)
        assert str(tmp_path / "data") in line
        assert re.search(r"another|in use|locked", line)
        assert first.is_ready()
        create_topic(first.bootstrap, TOPIC, 1)


def test_log_dir_of_a_running_broker_is_refused(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    zk_connect = zookeeper.chroot()
    with LandlineBroker(1, zk_connect, tmp_path / "data") as first:
        config = {"log.dirs": tmp_path / "data"}
        second = LandlineBroker(2, zk_connect, tmp_path / "second", config)
        assert "lock" in _refusal(second)
        assert first.is_ready()
        assert set(first.view().ports) == {1}


def _refusal(broker: LandlineBroker) -> str:
    """Starts a broker that must refuse to; its line."""
    broker.start_nowait()
    wait_until(lambda: not broker.process.running, timeout=60)
    assert broker.process.exit_code == 1
    text = broker.log_text()
    assert "Traceback" not in text
    assert "broker_registered" not in text
    (line,) = [line for line in text.splitlines() if " startup_failed " in line]
    return line


def test_data_of_another_broker_is_refused(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    zk_connect = zookeeper.chroot()
    with LandlineBroker(1, zk_connect, tmp_path / "data") as first:
        first.stop()
    line = _refusal(LandlineBroker(2, zk_connect, tmp_path / "other", {"log.dirs": tmp_path / "data"}))
    assert "broker.id=2" in line
    assert "broker 1" in line
    assert "correct broker.id or log.dirs" in line


def test_data_of_another_cluster_is_refused(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    with LandlineBroker(1, zookeeper.chroot(), tmp_path / "data") as first:
        first.stop()
    elsewhere = zookeeper.chroot()
    with LandlineBroker(9, elsewhere, tmp_path / "nine"):
        line = _refusal(LandlineBroker(1, elsewhere, tmp_path / "other", {"log.dirs": tmp_path / "data"}))
    assert "meta.properties" in line
    assert "zookeeper.connect" in line


def test_data_of_a_cluster_that_zookeeper_does_not_know_is_refused(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    with LandlineBroker(1, zookeeper.chroot(), tmp_path / "data") as first:
        first.stop()
    empty = zookeeper.chroot()
    line = _refusal(LandlineBroker(1, empty, tmp_path / "other", {"log.dirs": tmp_path / "data"}))
    assert "/cluster/id" in line
    store = cluster(empty)
    try:
        assert store.store.children("/") == [], "a tree that was lost can be restored there"
    finally:
        store.store.close()


def test_data_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run_standalone(tmp_path / "file" / "data")
    assert done.returncode == 1
    assert "cannot be made" in done.stderr
    assert "--data-dir" in done.stderr
    assert "Traceback" not in done.stderr


def test_log_dir_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run_standalone(tmp_path / "data", 0, f"log.dirs={tmp_path}/file/logs")
    assert f"{tmp_path}/file/logs" in one_line(done)


@pytest.mark.skipif(os.geteuid() != 0, reason="root gives its rights away to be refused")
@pytest.mark.parametrize("which", ["", "logs"], ids=["data dir", "log dir"])
def test_directory_that_may_not_be_written_is_refused(which: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "logs").mkdir(parents=True)
    (data / which).chmod(0o555)
    without_rights = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all"]
    done = subprocess.run(
        [*without_rights, *COMMAND, "standalone", "--port", "0", "--data-dir", str(data)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    (line,) = [line for line in done.stderr.splitlines() if str(data / which) in line]
    assert re.search(r"[Pp]ermission denied|may not be written", line)
    assert re.search(r"--data-dir|log\.dirs|owner", line)


def test_configuration_errors_are_all_told_with_key_line_and_nearest_key(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text(
        "# comment\nbroker.id=1\nzookeeper.conect=localhost:2181\nnum.partitions=many\n"
        "listeners=PLAINTEXT://:9092\n"
    )
    for command in ("check-config", "start"):
        done = run_to_end(command, path)
        assert done.returncode == 78
        assert re.search(r"3.*zookeeper\.conect.*zookeeper\.connect", done.stderr)
        assert re.search(r"4.*num\.partitions.*many", done.stderr)
        assert "Traceback" not in done.stderr
        assert "nothing was started" in done.stderr


def test_keys_of_kafka_that_are_not_used_are_accepted_with_one_warning(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text(
        "broker.id=1\nzookeeper.connect=localhost:2181\n"
        "listeners=PLAINTEXT://:9092\nnum.recovery.threads.per.data.dir=1\nmetrics.recording.level=DEBUG\n"
    )
    done = run_to_end("check-config", path)
    assert done.returncode == 0, done.stderr
    warnings = [line for line in done.stdout.splitlines() if "warning" in line]
    assert len([line for line in warnings if "metrics.recording.level" in line]) == 1


def test_version_is_told_without_starting_anything() -> None:
    done = run_to_end("--version")
    assert re.fullmatch(r"landline \d+\.\d+\.\d+\S*\n", done.stdout)
