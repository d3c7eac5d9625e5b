"""How new a ZooKeeper server's tree is, from its files alone."""

import os
import socket
import struct

import pytest

from tests.support.deploy_code import load

data = load("plugins/module_utils/zookeeper_data.py")
configs = load("plugins/module_utils/zookeeper_config.py")
info = load("plugins/modules/zookeeper_server_info.py")

HEADER = b"ZKLG" + bytes(12)


def record(zxid):
    transaction = struct.pack(">qiqqi", 1, 1, zxid, 0, 1)
    return struct.pack(">qi", 0, len(transaction)) + transaction + b"B"


def version(directory):
    (directory / data.VERSION_DIR).mkdir()
    return directory / data.VERSION_DIR


def test_a_server_without_files_has_no_tree(tmp_path):
    assert data.last_zxid(tmp_path) == 0
    version(tmp_path)
    assert data.last_zxid(tmp_path / "none") == data.last_zxid(tmp_path) == data.current_epoch(tmp_path) == 0


def test_the_last_whole_record_of_the_newest_log_counts(tmp_path):
    files = version(tmp_path)
    (files / "snapshot.5").write_bytes(b"")
    (files / "log.1").write_bytes(HEADER + record(1) + record(9))
    (files / "log.a").write_bytes(HEADER + record(0x200000001) + record(0x200000002)[:-3] + bytes(100))
    (files / "currentEpoch").write_text("2")
    assert data.last_zxid(tmp_path) == 0x200000001
    assert data.current_epoch(tmp_path) == 2


def test_a_new_log_without_a_record_does_not_hide_the_older_ones(tmp_path):
    files = version(tmp_path)
    (files / "log.1").write_bytes(HEADER + record(9))
    (files / "log.a").write_bytes(HEADER + bytes(100))
    assert data.last_zxid(tmp_path) == 9


def test_a_log_directory_of_its_own_is_read_and_a_snapshot_alone_is_a_tree(tmp_path):
    snapshots, logs = tmp_path / "data", tmp_path / "logs"
    for each in (snapshots, logs):
        each.mkdir()
        version(each)
    (snapshots / "version-2" / "snapshot.7").write_bytes(b"")
    assert data.last_zxid(snapshots, logs) == 7
    (logs / "version-2" / "log.8").write_bytes(HEADER + record(8))
    assert data.last_zxid(snapshots, logs) == 8


def test_snapshots_without_any_log_are_told_from_a_tree(tmp_path):
    snapshots, logs = tmp_path / "data", tmp_path / "logs"
    for each in (snapshots, logs):
        each.mkdir()
        version(each)
    assert not data.is_bare(snapshots, logs)
    (snapshots / "version-2" / "snapshot.0").write_bytes(b"")
    assert not data.is_bare(snapshots, logs)  # that is empty
    (snapshots / "version-2" / "snapshot.7").write_bytes(b"")
    assert data.is_bare(snapshots, logs)
    assert data.is_bare(snapshots)
    (logs / "version-2" / "log.8").write_bytes(HEADER)
    assert not data.is_bare(snapshots, logs)


def test_a_configuration_tells_its_members_and_a_process_those_it_was_started_with():
    config = configs.parse_config("# made\ndataDir=/d\nserver.1=a:2888:3888\nserver.12=[::1]:2888:3888\n")
    assert config["dataDir"] == "/d"
    assert configs.server_lines(config) == {1: "a:2888:3888", 12: "[::1]:2888:3888"}
    assert configs.members_in(b"A=1\0LANDLINE_ZOOKEEPER_MEMBERS=1,2,3\0") == [1, 2, 3]
    assert configs.members_in(b"A=1\0") == []


@pytest.mark.parametrize(("config", "members"), [("", []), ("server.1=a\nserver.2=b\n", [1, 2])])
def test_a_unit_that_is_active_without_a_process_that_systemd_knows_runs(
    tmp_path, monkeypatch, config, members
):
    """As one of an init script. It is not to be taken for a stopped server, whose tree is taken up."""
    systemctl = tmp_path / "systemctl"
    systemctl.write_text("#!/bin/sh\nprintf 'ActiveState=active\\nMainPID=0\\nUnitFileState=enabled\\n'\n")
    systemctl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    (tmp_path / "zoo.cfg").write_text(f"{config}clientPort={port}\n" if config else "")
    places = {"data_dir": str(tmp_path), "log_dir": str(tmp_path), "config_file": str(tmp_path / "zoo.cfg")}
    seen = info.look({**places, "unit": "zookeeper.service", "mounts": [], "id": 1, "fingerprint": ""})
    assert (seen["state"], seen["members"]) == ("changed", members)
