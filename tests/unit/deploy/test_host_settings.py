"""What a host is set to, besides its services: the kernel with the way back, the pace of restarts, limits of units."""

import json
import re
import subprocess
import sys
from pathlib import Path

import jinja2
import pytest
import yaml

from tests.support.deploy_code import ROOT, load
from tests.support.plays import played
from tests.support.unit_exposure import asks_systemd, judged

kernel = load("plugins/modules/kernel_settings.py")
# In tenths, of ten.
MOST_EXPOSED = 20
PACE = ROOT / "roles/broker/files/respawn-pace"


def test_the_values_from_before_stand_in_the_file_and_come_back_when_a_key_is_taken_out():
    first = kernel.plan(
        {"vm.swappiness": "1", "vm.dirty_ratio": "60"}, "", {"vm.swappiness": "60", "vm.dirty_ratio": "20"}
    )
    assert first.to_set == {"vm.swappiness": "1", "vm.dirty_ratio": "60"}
    assert "# vm.swappiness was 60\n" in first.text
    assert first.text.endswith("vm.dirty_ratio = 60\nvm.swappiness = 1\n")
    now = {"vm.swappiness": "1", "vm.dirty_ratio": "60"}
    second = kernel.plan({"vm.dirty_ratio": "60"}, first.text, now)
    assert second.to_put_back == {"vm.swappiness": "60"}
    assert second.to_set == {}
    assert "swappiness" not in second.text
    assert "# vm.dirty_ratio was 20\n" in second.text


def test_what_is_as_wanted_is_left_alone():
    wanted, current = {"vm.swappiness": "1"}, {"vm.swappiness": "60"}
    text = kernel.plan(wanted, "", current).text
    assert kernel.plan(wanted, text, wanted) == (text, {}, {})


def test_a_value_that_somebody_changed_is_set_again():
    text = kernel.plan({"vm.swappiness": "1"}, "", {"vm.swappiness": "60"}).text
    again = kernel.plan({"vm.swappiness": "1"}, text, {"vm.swappiness": "30"})
    assert again.to_set == {"vm.swappiness": "1"}
    assert "# vm.swappiness was 60\n" in again.text


def test_a_file_of_an_earlier_release_does_not_tell_what_was_before():
    """The value that it set itself is none to come back to."""
    old = "# Ansible managed\nnet.core.somaxconn = 4096\n"
    found = kernel.plan({"net.core.somaxconn": "4096"}, old, {"net.core.somaxconn": "4096"})
    assert "# net.core.somaxconn was\n" in found.text
    assert kernel.plan({}, found.text, {"net.core.somaxconn": "4096"}).to_put_back == {}


def test_keys_that_the_kernel_does_not_have_or_does_not_let_be_set_are_passed_over(tmp_path):
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "a").write_text("1\n")
    assert kernel.value_of(kernel.place_of(tmp_path, "net.a")) == "1"
    assert kernel.value_of(kernel.place_of(tmp_path, "net.b")) is None
    assert kernel.put({"net.a": "2"}, tmp_path) == (["net.a"], [])
    assert kernel.place_of(tmp_path, "net.eth0/7.x").name == "x"


def test_what_was_before_is_kept_when_the_disk_is_full(tmp_path, monkeypatch):
    path = tmp_path / "60-landline.conf"
    kernel.write(path, "# vm.swappiness was 60\nvm.swappiness = 1\n")
    before = path.read_text()

    def full(self, text):
        self.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(kernel.Path, "write_text", full)
    with pytest.raises(OSError, match=f"No space left on device: '{path}'"):
        kernel.write(path, "")
    assert path.read_text() == before
    assert [*tmp_path.iterdir()] == [path]


class Failing:
    """A broker that fails again and again; `sleep` is recorded and not done."""

    def __init__(self, directory):
        self.directory = directory
        self.sleep = directory / "sleep"
        self.sleep.write_text(f'#!/bin/sh\necho "$1" >>{directory}/slept\n')
        self.sleep.chmod(0o755)

    def ends(self, result="exit-code", status="1"):
        environment = {
            "RUNTIME_DIRECTORY": str(self.directory),
            "SLEEP": str(self.sleep),
            "PATH": "/usr/bin:/bin",
        }
        told = {"SERVICE_RESULT": result, "EXIT_STATUS": status}
        subprocess.run([PACE], env=environment | told, check=True)

    def slept(self):
        path = self.directory / "slept"
        return [int(each) for each in path.read_text().split()] if path.exists() else []


def test_a_broker_that_keeps_failing_is_started_ever_more_slowly(tmp_path):
    broker = Failing(tmp_path)
    for _ in range(10):
        broker.ends()
    assert broker.slept() == [1, 2, 4, 8, 16, 30, 30]


def test_one_that_ran_for_long_is_started_at_once_again(tmp_path):
    broker = Failing(tmp_path)
    for _ in range(5):
        broker.ends()
    (tmp_path / "respawns").write_text("1000 5\n")  # its last failure was long ago
    broker.ends()
    assert broker.slept() == [1, 2]


@pytest.mark.parametrize(("result", "status"), [("success", "0"), ("exit-code", "78")])
def test_one_that_stops_as_told_or_is_not_started_again_waits_for_nothing(tmp_path, result, status):
    broker = Failing(tmp_path)
    for _ in range(5):
        broker.ends()
    broker.ends(result, status)
    broker.ends()
    assert broker.slept() == [1, 2]


def rendered(path, **variables):
    templates = jinja2.FileSystemLoader((ROOT / path).parent)
    environment = jinja2.Environment(trim_blocks=True, undefined=jinja2.ChainableUndefined, loader=templates)
    environment.filters |= {"regex_search": lambda text, pattern: "254" if "254" in text else "252"}
    return environment.from_string((ROOT / path).read_text()).render(**variables).splitlines()


@pytest.mark.parametrize(
    ("said", "has", "lacks"),
    [
        ("systemd 254 (254.1-1)", "RestartSteps=8", "ExecStopPost=-/opt/landline/respawn-pace"),
        ("systemd 252 (252.39-1)", "ExecStopPost=-/opt/landline/respawn-pace", "RestartSteps=8"),
    ],
)
def test_systemd_paces_restarts_itself_where_it_can(said, has, lacks):
    lines = rendered(
        "roles/broker/templates/respawn.conf.j2",
        broker_systemd={"stdout": said},
        broker_install_dir="/opt/landline",
    )
    assert has in lines
    assert lacks not in lines


@pytest.mark.parametrize(
    ("path", "prefix", "score"),
    [
        ("roles/broker/templates/landline-broker@.service.j2", "broker", -500),
        ("roles/zookeeper/templates/zookeeper.service.j2", "zookeeper", -900),
        # What shares a host with them is killed before them.
        ("roles/spark/templates/landline-spark-master.service.j2", "spark_unit", 300),
        ("roles/spark/templates/landline-spark-worker.service.j2", "spark_unit", 300),
        ("roles/spark/templates/landline-spark-history.service.j2", "spark_unit", 300),
        ("roles/journal_shipper/templates/landline-journal-shipper.service.j2", "journal_shipper", 100),
    ],
)
def test_a_units_limits_are_those_of_the_inventory_and_memory_has_none_without(path, prefix, score):
    known = yaml.safe_load((ROOT / path).parents[1].joinpath("defaults/main.yml").read_text())
    known |= {"zookeeper_wanted": {}}
    without = rendered(path, **known)
    assert {f"OOMScoreAdjust={score}", "LimitCORE=0", "LogRateLimitIntervalSec=30"} <= set(without)
    assert [line for line in without if re.match("Memory(High|Max)", line)] == []
    given = {"memory_high": "3G", "memory_max": "4G", "tasks_max": 99, "log_burst": 7}
    lines = set(rendered(path, **known | {f"{prefix}_{name}": value for name, value in given.items()}))
    assert {"MemoryHigh=3G", "MemoryMax=4G"} <= lines
    limits = {"TasksMax=99", "LogRateLimitBurst=7"}
    assert limits <= lines or (
        prefix == "journal_shipper" and {"TasksMax=64", "LogRateLimitBurst=1000"} <= lines
    )


@asks_systemd
@pytest.mark.parametrize(
    "path",
    [
        "roles/broker/templates/landline-broker@.service.j2",
        "roles/zookeeper/templates/zookeeper.service.j2",
        "roles/journal_shipper/templates/landline-journal-shipper.service.j2",
    ],
)
def test_a_unit_is_exposed_less_than_2(path, tmp_path):
    known = yaml.safe_load((ROOT / path).parents[1].joinpath("defaults/main.yml").read_text())
    lines = rendered(path, **known | {"zookeeper_wanted": {}})
    unit = tmp_path / Path(path).stem.replace("@", "@1")
    # systemd looks at the program's path alone.
    unit.write_text("\n".join(re.sub(r"^(Exec\w+)=.*[^\\]$", r"\1=/bin/true", line) for line in lines))
    done = judged(unit, MOST_EXPOSED)
    assert done.returncode == 0, done.stdout[-300:] + done.stderr
    assert "Overall exposure level" in done.stdout
    unit.write_text(
        unit.read_text().replace("ProtectSystem=strict\n", "").replace("CapabilityBoundingSet=\n", "")
    )
    assert judged(unit, MOST_EXPOSED).returncode != 0


@pytest.mark.parametrize(
    "path", ["roles/common/templates/needrestart.conf.j2", "roles/zookeeper/templates/needrestart.conf.j2"]
)
def test_needrestart_takes_the_file_and_leaves_the_services_alone(path, tmp_path):
    """As needrestart itself does: each file is evaluated, then every service is matched."""
    (tmp_path / "x.conf").write_text("\n".join(rendered(path, ansible_managed="Ansible managed")))
    service = "zookeeper.service" if "zookeeper/" in path else "landline-broker@1.service"
    program = (
        "our %nrconf = (override_rc => {qr(^dbus) => 0}); do $ARGV[0] or die $@;"
        " foreach my $re (keys %{$nrconf{override_rc}}) { print $nrconf{override_rc}->{$re} if $ARGV[1] =~ /$re/ }"
    )
    done = subprocess.run(
        ["perl", "-e", program, tmp_path / "x.conf", service], capture_output=True, text=True, check=True
    )
    assert done.stdout == "0"


def test_a_zookeeper_server_does_not_tell_everybody_its_paths_and_versions():
    words = yaml.safe_load((ROOT / "roles/zookeeper/defaults/main.yml").read_text())[
        "zookeeper_4lw_whitelist"
    ]
    assert "envi" not in words
    assert {"ruok", "srvr"} <= set(words)


@pytest.mark.parametrize(("user", "made"), [("daemon", False), ("nobody-has-this", True)])
def test_an_account_that_there_is_stays_as_it_is(tmp_path, user, made):
    """It may be one of LDAP, which usermod does not know, and every system has a daemon of its own."""
    host = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "ansible_become": False,
        "common_user": user,
        "common_group": "daemon",
        "common_install_dir": str(tmp_path / "opt"),
        "common_config_dir": str(tmp_path / "etc"),
    }
    (tmp_path / "hosts.json").write_text(json.dumps({"brokers": {"hosts": {"h1": host}}}))
    (tmp_path / "play.yml").write_text(
        "- hosts: brokers\n  gather_facts: false\n  tasks:\n"
        "    - ansible.builtin.include_role: {name: landline.cluster.common, tasks_from: install}\n"
    )
    done = played(tmp_path, "--check", "-i", tmp_path / "hosts.json", tmp_path / "play.yml")
    assert done.returncode == 0
    assert ("Make the user]" in done.stdout) is made
