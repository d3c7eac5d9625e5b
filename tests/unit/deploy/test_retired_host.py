"""What `make decommission` removes from a host, in a play on this machine: what the journal shipper needs stays, and
data are not removed under a broker that runs.
"""

import errno
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from broker.log.dirs.dir_lock import take_lock
from tests.support.deploy_code import load
from tests.support.plays import played

data = load("plugins/modules/data_remove.py")

PLAY = """
- hosts: h1
  gather_facts: false
  tasks:
    - ansible.builtin.import_role: {name: landline.cluster.broker, tasks_from: retire_remove}
"""
# Says that units are in the state that a file has.
SYSTEMCTL = """#!/bin/sh
[ "$1" = show ] && echo "ActiveState=$(cat {state})"
exit 0
"""
# As a broker does, until it is killed.
USES = """
import sys
from pathlib import Path
from broker.log.dirs.dir_lock import take_lock
take_lock(Path(sys.argv[1]))
print("locked", flush=True)
sys.stdin.read()
"""
BROKERS_OWN = ("broker-1.properties", "broker-1.env", "broker.pem", "http-tokens")
CLIENTS = ("client.properties", "ca.pem")
SHIPPERS = ("journal-shipper.properties",)


@pytest.fixture
def host(tmp_path):
    for name in (*BROKERS_OWN, *CLIENTS, *SHIPPERS):
        (tmp_path / "etc").mkdir(exist_ok=True)
        (tmp_path / "etc" / name).write_text("")
    for name in ("units", "opt/releases", "data/broker-1"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "units/landline-broker@1.service").write_text("")
    (tmp_path / "data/broker-1/orders-0").mkdir()
    (tmp_path / "data/broker-1/orders-0/0.log").write_text("")
    (tmp_path / "data/broker-1/.lock").write_text("")
    is_in(tmp_path, "inactive")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/systemctl").write_text(SYSTEMCTL.format(state=tmp_path / "state"))
    (tmp_path / "bin/systemctl").chmod(0o755)
    variables = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "ansible_become": False,
        "broker_first_id": 1,
        "broker_install_dir": str(tmp_path / "opt"),
        "broker_config_dir": str(tmp_path / "etc"),
        "broker_data_dir": str(tmp_path / "data"),
    }
    inventory = {group: {"hosts": {"h1": variables}} for group in ("brokers", "zookeeper")}
    (tmp_path / "hosts.json").write_text(json.dumps(inventory))
    (tmp_path / "play.yml").write_text(PLAY)
    return tmp_path


def is_in(host, state):
    (host / "state").write_text(state)


def play(host, *arguments):
    return played(
        host,
        *arguments,
        *("-i", host / "hosts.json", host / "play.yml", "-e", f"broker_unit_dir={host / 'units'}"),
        env={"PATH": f"{host / 'bin'}:{os.environ['PATH']}"},
    )


def removed(host):
    """The files of the configuration that the dry run would remove. It has stopped no broker."""
    is_in(host, "active")
    done = play(host, "--check", "-v")
    assert done.returncode == 0
    items = re.findall(r"^changed: \[h1\] => \(item=(.*?)\)", done.stdout, re.MULTILINE)
    assert str(host / "units/landline-broker@1.service") in items
    assert re.search(rf"removed:\s+- {host}/data/broker-1\n", done.stdout)
    assert (host / "data/broker-1/orders-0/0.log").exists()
    return {Path(each).name for each in items if Path(each).parent == host / "etc"}


def test_all_of_the_brokers_and_the_settings_for_clients_go(host):
    assert removed(host) == {*BROKERS_OWN, *CLIENTS}


def test_a_journal_shipper_keeps_what_it_starts_with(host):
    (host / "units/landline-journal-shipper.service").write_text("")
    assert removed(host) == set(BROKERS_OWN)


def test_the_data_and_the_files_are_gone_in_the_end_and_another_run_finds_nothing(host):
    assert play(host).returncode == 0
    assert [each.name for each in host.glob("data/*")] == []
    assert [each.name for each in host.glob("units/*")] == []
    again = play(host)
    assert again.returncode == 0
    assert re.search(r"h1 +: ok=\d+ +changed=0 ", again.stdout)


@pytest.mark.parametrize("state", ["active", "activating", "deactivating"])
def test_nothing_is_removed_under_a_unit_that_somebody_has_started_again(host, state):
    is_in(host, state)
    done = play(host)
    assert done.returncode != 0
    said = re.sub(r"\s+", " ", done.stdout)
    assert (
        f"landline-broker@1.service is {state}, and no data were removed: somebody has started it since"
        in said
    )
    assert (host / "data/broker-1/orders-0/0.log").exists()
    assert (host / "etc/broker-1.properties").exists()


def test_nothing_is_removed_under_a_process_that_uses_one_of_the_directories(host):
    """Whoever has started it: by hand, it has no unit."""
    (host / "data-2/broker-1").mkdir(parents=True)
    with subprocess.Popen(
        [sys.executable, "-c", USES, host / "data-2/broker-1"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as broker:
        assert broker.stdout.readline() == "locked\n"
        dirs = [host / "data/broker-1", host / "data-2/broker-1"]
        with pytest.raises(data.InUseError) as error:
            data.remove(dirs, [], only_look=False)
        assert str(error.value).startswith(
            f"{dirs[1]} is in use: process {broker.pid} has locked {dirs[1]}/.lock, and no data were removed"
        )
        assert data.remove(dirs, [], only_look=True) == list(map(str, dirs))
        broker.kill()
    assert (host / "data/broker-1/orders-0/0.log").exists()
    assert data.remove(dirs, [], only_look=False) == list(map(str, dirs))


def test_a_broker_that_is_started_while_its_data_are_removed_does_not_get_them(host, monkeypatch):
    begun, directory = [], host / "data/broker-1"
    rmtree = data.shutil.rmtree

    def meanwhile(path):
        """Another process: this one's own record lock does not keep itself away."""
        done = subprocess.run(
            [sys.executable, "-c", USES, directory], input="", capture_output=True, text=True, check=False
        )
        begun.append(done.stdout)
        assert "BlockingIOError" in done.stderr
        rmtree(path)

    monkeypatch.setattr(data.shutil, "rmtree", meanwhile)
    assert data.remove([directory], [], only_look=False) == [str(directory)]
    assert begun == [""]
    assert not directory.exists()


def test_what_a_broker_writes_that_starts_after_the_last_file_has_gone_stays(host, monkeypatch):
    directory, unlink = host / "data/broker-1", Path.unlink

    def meanwhile(path, **more):
        unlink(path, **more)
        os.close(take_lock(directory))

    monkeypatch.setattr(Path, "unlink", meanwhile)
    with pytest.raises(OSError, match="not empty"):
        data.remove([directory], [], only_look=False)
    assert (directory / ".lock").exists()


def test_a_mounted_disk_stays_and_is_empty(host, monkeypatch):
    directory, rmdir = host / "data/broker-1", Path.rmdir

    def busy(path):
        if path == directory:
            raise OSError(errno.EBUSY, "Device or resource busy", str(path))
        rmdir(path)

    monkeypatch.setattr(Path, "rmdir", busy)
    monkeypatch.setattr(Path, "is_mount", lambda path: path == directory)
    assert data.remove([directory], [], only_look=False) == [str(directory)]
    assert list(directory.iterdir()) == []
    assert data.remove([directory], [], only_look=False) == []
