"""Disks: which directories a broker has, and what keeps it from running without one of its file systems."""

import json
import re
import sys

import jinja2
import pytest

from tests.support.deploy_code import ROOT, load
from tests.support.plays import played
from tests.unit.deploy.test_deploy_filters import SETTINGS, fingerprints

brokers = load("plugins/filter/landline.py")
disks = load("plugins/filter/disks.py")
hidden = load("plugins/filter/hidden_files.py")
mounts = load("plugins/module_utils/mounts.py")

MOUNTINFO = """\
21 1 0:20 / / rw,relatime shared:1 - overlay overlay rw
30 21 8:17 / /data/1 rw,relatime - ext4 /dev/sdb1 rw
31 21 8:33 /x /data/with\\040space rw - ext4 /dev/sdc1 rw
"""
FSTAB = """\
# UUID=1 /commented ext4 defaults 0 0
UUID=2  /data/1/  ext4  nofail 0 2
UUID=3  /data/2   xfs   noauto 0 2
UUID=4  none      swap  sw 0 0
"""


def missing(*directories, wanted=(), units=None, mounted=("/", "/data/1")):
    points = mounts.points_in_fstab(FSTAB)
    return list(mounts.missing_mounts(directories, wanted, units or {}, points, set(mounted)).values())


def test_a_disk_of_fstab_that_is_not_mounted_is_missing():
    assert missing("/data/1/broker-1") == []
    assert missing("/data/1/broker-1", "/data/2/broker-1") == [
        "nothing is mounted at /data/2 for /data/2/broker-1 (it is in /etc/fstab)"
    ]


def test_a_disk_that_the_inventory_wants_is_missing_even_if_the_host_knows_none():
    assert missing("/srv/a/broker-1", wanted=["/srv/a/"]) == [
        "nothing is mounted at /srv/a for /srv/a/broker-1 (the inventory wants it)"
    ]
    assert missing("/srv/a/broker-1", wanted=["/srv/a"], mounted=["/srv/a"]) == []


def test_a_disk_that_a_broker_was_deployed_with_is_missing_when_it_is_gone():
    unit = {"/etc/systemd/system/u": "[Unit]\nAssertPathIsMountPoint=/srv/50%%\n"}
    (told,) = missing("/srv/50%/broker-1", units=unit)
    assert told.endswith("(/etc/systemd/system/u asserts it)")


@pytest.mark.parametrize("directory", ["/data/20/broker-1", "/data", "/var/lib/landline/broker-1"])
def test_a_disk_that_the_directory_is_not_on_is_not_missed(directory):
    assert missing(directory, wanted=["/"]) == []


def test_a_directory_is_on_the_nearest_file_system_and_the_root_is_none():
    points = mounts.points_in_mountinfo(MOUNTINFO)
    assert points == {"/", "/data/1", "/data/with space"}
    assert mounts.own_mount("/data/1/broker-1", points) == "/data/1"
    assert mounts.own_mount("/data/1", points) == "/data/1"
    assert mounts.own_mount("/data/10", points) == ""


# As `systemd-escape --path --suffix=mount` has them.
@pytest.mark.parametrize(
    ("point", "unit"),
    [
        ("/data/1", "data-1.mount"),
        ("/var/lib/landline/", "var-lib-landline.mount"),
        ("/.a b/c-d/é", r"\x2ea\x20b-c\x2dd-\xc3\xa9.mount"),
    ],
)
def test_the_unit_of_a_mount_point_has_systemds_name(point, unit):
    assert mounts.mount_unit(point) == unit


def test_the_boot_and_a_disk_that_comes_later_start_the_services_that_are_on_it():
    assert disks.disk_links({"a.service": ["/data/1"], "b.service": []}, "/etc/systemd/system") == [
        {
            "directory": f"/etc/systemd/system/{by}.wants",
            "path": f"/etc/systemd/system/{by}.wants/a.service",
            "src": "/etc/systemd/system/a.service",
        }
        for by in ("multi-user.target", "data-1.mount")
    ]


def test_each_broker_has_a_directory_on_every_disk():
    both = {**SETTINGS, "count": 2, "data_dirs": ["/data/1", "/data/2"]}
    first, second = brokers.broker_instances(both)
    assert first["properties"]["log.dirs"] == "/data/1/broker-4,/data/2/broker-4"
    assert second["data_dirs"] == ["/data/1/broker-5", "/data/2/broker-5"]
    assert fingerprints(data_dirs=["/data/1"]) != fingerprints()


@pytest.mark.parametrize("key", [5, "5"])
def test_one_broker_of_a_host_may_have_other_properties(key):
    own = {key: {"log.dirs": ["/fast/x", "/fast/y"], "num.io.threads": 4}}
    settings = {**SETTINGS, "count": 2, "properties": {"num.io.threads": 8}, "properties_by_id": own}
    first, second = brokers.broker_instances(settings)
    assert (first["properties"]["num.io.threads"], second["properties"]["num.io.threads"]) == ("8", "4")
    assert second["data_dirs"] == ["/fast/x", "/fast/y"]
    assert first["data_dirs"] == ["/var/lib/landline/broker-4"]
    ours, changed = fingerprints(count=2), fingerprints(count=2, properties_by_id=own)
    assert (ours[0] == changed[0], ours[1] == changed[1]) == (True, False)


def rendered(path, **variables):
    environment = jinja2.Environment(undefined=jinja2.ChainableUndefined, trim_blocks=True, autoescape=False)
    environment.tests["match"] = lambda text, pattern: re.match(pattern, text) is not None
    return environment.from_string((ROOT / path).read_text()).render(**variables)


def unit_of(dirs, points):
    """A broker's unit as the role writes it."""
    return rendered(
        "roles/broker/templates/landline-broker@.service.j2",
        broker_unit_dirs=dirs,
        broker_unit_mounts=points,
        broker_unit_id=1,
    )


def zookeepers_unit(directory, points):
    """The unit of a ZooKeeper server as the role writes it."""
    return rendered(
        "roles/zookeeper/templates/zookeeper.service.j2",
        zookeeper_data_dir=directory,
        zookeeper_data_log_dir="",
        zookeeper_looked={"mounts": points},
        zookeeper_wanted={},
    )


def test_the_unit_needs_the_disks_and_may_write_there_only():
    lines = unit_of(["/data/1/broker-1", "/data/2/broker-1"], ["/data/1", "/data/2"]).splitlines()
    assert "RequiresMountsFor=/data/1/broker-1 /data/2/broker-1" in lines
    assert [each for each in lines if each.startswith("Assert")] == [
        "AssertPathIsMountPoint=/data/1",
        "AssertPathIsMountPoint=/data/2",
    ]
    assert [each for each in lines if each.startswith("ReadWrite")] == [
        "ReadWritePaths=-/data/1/broker-1",
        "ReadWritePaths=-/data/2/broker-1",
    ]
    assert not [each for each in lines if each.startswith("StateDirectory")]


def test_the_unit_of_a_broker_below_var_lib_has_its_directory_made_by_systemd():
    lines = unit_of(["/var/lib/landline/broker-1"], []).splitlines()
    assert "StateDirectory=landline/broker-%i" in lines
    assert not [each for each in lines if each.startswith(("ReadWrite", "Assert"))]


def test_a_percent_sign_in_a_path_is_written_as_systemd_reads_it():
    path, point = "/data/50%u/1", "/data/50%u"
    for text, optional in ((unit_of([path], [point]), "-"), (zookeepers_unit(path, [point]), "")):
        assert {
            "RequiresMountsFor=/data/50%%u/1",
            "AssertPathIsMountPoint=/data/50%%u",
            f"ReadWritePaths={optional}/data/50%%u/1",
        } <= set(text.splitlines())


NEEDS = """
- hosts: brokers
  gather_facts: false
  vars: {preflight_mistyped: {h1: []}, preflight_unsettled: []}
  tasks:
    - ansible.builtin.include_role: {name: landline.cluster.preflight, tasks_from: needs}
      vars: {preflight_role: broker}
    - ansible.builtin.debug: {msg: "{{ preflight_unsettled }}"}
"""


@pytest.mark.parametrize(
    ("variables", "refused"),
    [
        ({"broker_data_dirs": ["/home/kafka"]}, "/home/kafka/broker-1"),
        ({"broker_data_dir": "/tmp/kafka"}, "/tmp/kafka/broker-1"),
        ({"broker_properties_by_id": {"1": {"log.dirs": ["/data/1", "/root/2"]}}}, "/root/2"),
        ({"broker_data_dirs": ["/homes/kafka", "/data/home", "/running"]}, ""),
    ],
)
def test_data_where_the_unit_does_not_see_it_is_refused(tmp_path, variables, refused):
    words = needs(tmp_path, variables)
    assert (f"{refused}: below /home and /root a service sees nothing" in words) is bool(refused)


def needs(tmp_path, variables):
    """What the check before a deploy says of a host with these variables."""
    here = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "ansible_become": False,
    }
    host = {**here, "ansible_host": "192.0.2.1", "broker_archive_dir": str(tmp_path), **variables}
    inventory = {"brokers": {"hosts": {"h1": host}}, "zookeeper": {"hosts": {"h1": {}}}}
    (tmp_path / "hosts.json").write_text(json.dumps(inventory))
    (tmp_path / "play.yml").write_text(NEEDS)
    done = played(tmp_path, "-i", tmp_path / "hosts.json", tmp_path / "play.yml")
    return " ".join(done.stdout.split())


STORE, TOKENS = "listener.name.ssl.ssl.keystore.location", "landline.http.token.file"
LOGIN = 'com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab="/root/k.tab" principal="k@E";'


def test_files_that_the_unit_does_not_see_are_named_and_no_password():
    properties = {
        STORE: "/home/kafka/a.p12",
        TOKENS: "/run/user/0/tokens",
        "sasl.jaas.config": LOGIN,
        "ssl.keystore.password": "/tmp/x",
        "ssl.truststore.location": "/etc/landline/home/ca.pem",
        "ssl.key.location": None,
    }
    named = [f"{TOKENS}=/run/user/0/tokens", f"{STORE}=/home/kafka/a.p12", "sasl.jaas.config=/root/k.tab"]
    assert hidden.broker_hidden_files([{"properties": properties}] * 2) == named


def test_a_file_that_the_unit_does_not_see_is_refused(tmp_path):
    variables = {"broker_properties_by_id": {"1": {STORE: "/tmp/a.p12"}}}
    assert f"{STORE}=/tmp/a.p12: below /home, /root and /run/user a service sees nothing" in needs(
        tmp_path, variables
    )
