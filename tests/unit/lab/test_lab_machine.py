"""What the lab reads from the kernel's tables and hands to nspawn and ssh."""

from pathlib import Path

import pytest

from lab import cgroups, identity, machine, mounts, naming
from lab.errors import UsageError
from lab.state import Bind, LabFiles

HYBRID = """\
23 27 0:22 / /sys rw - sysfs sysfs rw
31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu
33 31 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
34 31 0:31 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd
35 31 0:32 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
"""
PURE = """\
23 27 0:22 / /sys rw - sysfs sysfs rw
31 23 0:28 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate
"""


def test_a_hybrid_machine_gives_its_unified_tree_and_the_controllers_but_memory():
    unified, legacy = cgroups.hierarchies(HYBRID)
    assert unified == Path("/sys/fs/cgroup/unified")
    assert legacy == [Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup/systemd")]


def test_a_pure_v2_machine_gives_its_one_tree():
    assert cgroups.hierarchies(PURE) == (Path("/sys/fs/cgroup"), [])


def test_a_machine_without_cgroup_v2_is_told_how_to_get_it():
    with pytest.raises(UsageError, match="unified_cgroup_hierarchy"):
        cgroups.hierarchies("31 23 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n")


def test_mounts_are_read_with_spaces_in_their_names_and_all_flags():
    line = r"36 35 7:0 / /mnt/a\040b rw,noatime shared:1 - ext4 /dev/loop0 ro,errors=remount-ro"
    (found,) = mounts.parse(line + "\n")
    assert found.place == Path("/mnt/a b")
    assert found.source == Path("/dev/loop0")
    assert {"noatime", "ro", "errors=remount-ro"} <= found.flags


def test_nspawn_gets_the_hosts_names_bridge_and_binds():
    host = naming.host("ci", 2)
    binds = [Bind("/a", "/opt/spark"), Bind("/b", "/shared", writable=True)]
    argv = machine.nspawn_argv(host, Path("/l/root"), binds, Path("/l/data"), "/var/lib/landline")
    assert {"--boot", "--register=no", "--keep-unit", "--network-bridge=br0"} <= set(argv)
    assert {"--machine=ci-h2", "--hostname=h2", "--directory=/l/root"} <= set(argv)
    assert {"--bind-ro=/a:/opt/spark", "--bind=/b:/shared", "--bind=/l/data:/var/lib/landline"} <= set(argv)


def test_the_hosts_network_unit_has_its_address_and_asks_nobody():
    unit = identity.network_unit(naming.host("ci", 3))
    assert "Address=10.89.0.13/24" in unit
    assert "DHCP=no" in unit


def test_a_host_finds_itself_and_the_others_by_real_addresses():
    text = identity.hosts_file("h1", naming.hosts("ci", 2))
    lines = [line.split() for line in text.splitlines() if not line.startswith("#")]
    names = {name: fields[0] for fields in lines for name in fields[1:] if fields[0] != "::1"}
    assert names == {
        "localhost": "127.0.0.1",
        "controller": "10.89.0.1",
        "h1": "10.89.0.11",
        "h2": "10.89.0.12",
    }


def test_ssh_trusts_the_labs_own_host_keys_only_and_shares_connections_per_lab():
    config = identity.ssh_config(LabFiles(Path("/state"), "ci"), naming.hosts("ci", 1))
    assert "Host h1 10.89.0.11" in config
    assert "UserKnownHostsFile /state/ci/known_hosts" in config
    assert "StrictHostKeyChecking yes" in config
    assert "ControlPath /state/ci/cm/%h" in config
