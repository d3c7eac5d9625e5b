"""What a host is seen to have, by its files and what its programs say."""

import ast
import os
import socket
import subprocess

import pytest

from tests.support.deploy_code import ROOT, load

info = load("plugins/modules/preflight_info.py")


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ('openjdk version "17.0.19" 2026-04-21\nOpenJDK Runtime', "17"),
        ('java version "1.8.0_412"', "8"),
        ("bash: java: command not found", ""),
    ],
)
def test_javas_version_is_read_from_what_it_says(said, version):
    assert info.java_version(said) == version


def test_a_directory_that_is_missing_is_looked_for_where_it_would_be_made(tmp_path):
    there, missing = info.directory(str(tmp_path)), info.directory(str(tmp_path / "a" / "b"))
    assert there["exists"]
    assert not missing["exists"]
    assert missing["device"] == there["device"]
    assert missing["free_mb"] > 0
    assert not there["is_mount"]
    assert info.directory("/proc")["is_mount"]


def test_what_is_in_the_way_of_a_directory_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    assert not info.directory(str(tmp_path / "file" / "below"))["is_directory"]


def test_whose_data_it_is_stands_in_meta_properties(tmp_path):
    (tmp_path / "meta.properties").write_text("#\nbroker.id=3\nversion=0\ncluster.id=abc\n")
    empty = tmp_path / "empty"
    empty.mkdir()
    assert info.data_in([str(tmp_path), str(empty), "/nonexistent"]) == {
        str(tmp_path): {"broker_id": "3", "cluster_id": "abc"}
    }


def test_a_disk_that_a_unit_asserts_is_missing_if_nothing_is_mounted_there(tmp_path):
    unit, disk = tmp_path / "landline-broker@1.service", tmp_path / "disk"
    unit.write_text(f"[Unit]\nAssertPathIsMountPoint={disk}\n")
    wanted = {"directories": [f"{disk}/broker-1"], "units": [str(unit)], "set_by": "broker_data_dirs"}
    what = f"nothing is mounted at {disk} for {disk}/broker-1 ({unit} asserts it)"
    assert info.missing_mounts([wanted]) == [{"point": str(disk), "what": what, "set_by": "broker_data_dirs"}]
    assert info.missing_mounts([{**wanted, "units": [f"{unit}.none"]}]) == []


def test_names_resolve_to_addresses_and_unknown_ones_to_none():
    assert info.resolve("127.0.0.1") == ["127.0.0.1"]
    assert info.resolve("[::1]") == ["::1"]
    assert info.resolve("no-such-host.invalid") == []
    assert info.resolve("a" * 70) == []


def test_a_port_of_another_process_is_taken_and_a_free_one_is_not():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        wanted = {"host": "127.0.0.1", "port": port, "unit": "landline-broker@"}
        assert [each["port"] for each in info.taken([wanted])] == [port]
    assert info.taken([wanted]) == []


def test_a_zookeeper_of_somebody_elses_is_told_from_the_roles_own(tmp_path, monkeypatch):
    """Its unit has the same name, as Debian's package has it."""
    systemctl = tmp_path / "bin" / "systemctl"
    systemctl.parent.mkdir()
    systemctl.write_text("#!/bin/sh\nprintf 'MainPID=0\\nActiveState=active\\n'\n")
    systemctl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{systemctl.parent}:{os.environ['PATH']}")
    (tmp_path / "version-2").mkdir()
    (tmp_path / "version-2" / "snapshot.1f").write_bytes(b"")
    config = tmp_path / "landline.cfg"
    wanted = {"unit": "zookeeper.service", "config_file": str(config), "data_dir": str(tmp_path)}
    wanted["log_dir"] = str(tmp_path)
    assert info.zookeeper({}) is None
    assert info.zookeeper(wanted) == {"runs": True, "is_ours": False, "members": [], "zxid": 0x1F}
    config.write_text("dataDir=/d\nserver.1=a:2888:3888\nserver.3=b:2888:3888\n")
    assert info.zookeeper(wanted) == {"runs": True, "is_ours": True, "members": [1, 3], "zxid": 0}


def test_a_process_tells_what_it_was_started_with_while_it_lives():
    with subprocess.Popen(["sleep", "60"], env={"LANDLINE_ZOOKEEPER_MEMBERS": "2,4"}) as process:
        members = info.members_in(info.environ_of(str(process.pid)))
        process.kill()
    assert members == [2, 4]
    assert info.environ_of("0") == b""


def test_a_program_that_is_missing_has_no_version():
    assert info.said_by("/nonexistent/program") == ""
    assert info.versions("/nonexistent/python")["python"] == ""


def test_memory_is_read_in_megabytes():
    assert info.memory_mb("MemFree: 3 kB\nMemTotal:       2097152 kB\n") == 2048
    assert info.memory_mb("") == 0


def test_a_zookeeper_that_says_nothing_leaves_the_cluster_unknown():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert info.cluster_id(f"127.0.0.1:{port}/kafka", 1.0) is None


def test_it_runs_on_a_python_that_is_too_old_for_all_else():
    """Else it could not say so: the system's Python of Enterprise Linux 9 is 3.9."""
    mine = ["modules/preflight_info", "module_utils/listening", "module_utils/zookeeper_tree"]
    for name in [
        *mine,
        "module_utils/zookeeper_words",
        "module_utils/mounts",
        "module_utils/zookeeper_config",
        "module_utils/zookeeper_data",
    ]:
        tree = ast.parse((ROOT / f"plugins/{name}.py").read_text(), feature_version=(3, 9))
        imported = {
            each.name
            for node in tree.body
            if isinstance(node, ast.ImportFrom) and node.module in {"typing", "itertools", "datetime"}
            for each in node.names
        }
        assert imported <= {"Any", "NamedTuple", "TYPE_CHECKING"}, name
        keywords = {
            each.arg for node in ast.walk(tree) if isinstance(node, ast.Call) for each in node.keywords
        }
        assert not keywords & {"strict", "slots", "kw_only"}, name
