"""The lab on this machine: hosts that boot, break, mend and go, and two labs that do not touch each other."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lab import Direction, HostState, Lab, LabError, UsageError, mounts, netns
from lab.cgroups import HostCgroup
from lab.errors import CommandFailedError
from rig.wait import wait_until
from tests.support.labs import assert_no_trace, lab_session, traces_of

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.slow,
    pytest.mark.timeout(300),
]

ROOT = Path(__file__).parents[2]
DATA = "/var/lib/landline"


@pytest.fixture(scope="module")
def lab():
    with lab_session("lab", hosts=2, data_disk_mb=64) as lab:
        yield lab


@pytest.fixture(autouse=True)
def healthy_afterwards(request):
    """Each test finds every host running and nothing broken, whatever the one before did."""
    yield
    if "lab" in request.fixturenames:
        lab = request.getfixturevalue("lab")
        lab.faults.heal()
        for status in lab.status():
            if status.state is HostState.FROZEN:
                lab.faults.thaw(status.host.name)
            lab.faults.boot(status.host.name)
            lab.faults.free_disk(status.host.name)


def command(*arguments, check=True, **environment):
    """Runs `python -m lab` as a user does."""
    return subprocess.run(
        [sys.executable, "-m", "lab", *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=240,
        check=check,
    )


def state_of(lab, host):
    return next(status.state for status in lab.status() if status.host.name == host)


def leaders(lab):
    return {status.host.name: status.leader for status in lab.status()}


def pings(lab, host, target, count=1):
    """How many of the pings from one host to another were answered."""
    line = f"ping -c {count} -i 0.01 -W 1 -q {target}"
    text = lab.run_on_console(host, line, check=False).stdout
    return int(text.split(" received")[0].rsplit(" ", 1)[1])


# What a lab is


def test_hosts_run_systemd_with_nothing_failed(lab):
    for host in lab.hosts:
        assert lab.run(host.name, "systemctl is-system-running --wait", check=False).stdout == "running\n"
        assert lab.run(host.name, "hostname").stdout == f"{host.name}\n"


def test_hosts_count_for_more_than_one_process_beside_others(lab):
    places = [
        Path("/sys/fs/cgroup/cpu/landline-lab/cpu.shares"),
        Path("/sys/fs/cgroup/landline-lab/cpu.weight"),
    ]
    found = [int(place.read_text()) for place in places if place.exists()]
    assert found in ([16 * 1024], [16 * 100])


def test_no_two_hosts_share_a_machine_id_or_an_ssh_key(lab):
    for file in ("/etc/machine-id", "/etc/ssh/ssh_host_ed25519_key.pub"):
        contents = {lab.run(host.name, ["cat", file]).stdout for host in lab.hosts}
        assert len(contents) == len(lab.hosts)


def test_hosts_and_controller_know_each_other_by_name(lab):
    assert pings(lab, "h1", "h2") == 1
    assert pings(lab, "h2", "h1") == 1
    assert pings(lab, "h2", "controller") == 1


def test_hosts_have_what_the_cluster_needs(lab):
    lab.run("h1", "java -version && sudo -n true && test -d /usr/share/zookeeper")
    lab.run("h1", "python3 -m venv /tmp/venv && /tmp/venv/bin/pip --version")


def test_no_host_reaches_anything_but_its_lab(lab):
    assert lab.run("h1", "ip route show default").stdout == ""


def test_a_second_up_changes_nothing(lab):
    before = leaders(lab)
    assert lab.up(2) == []
    assert lab.up() == []
    assert leaders(lab) == before


def test_up_refuses_to_become_another_lab(lab):
    with pytest.raises(UsageError, match="2 hosts, more than 1"):
        lab.up(1)
    with pytest.raises(UsageError, match="data disks of 64 MB"):
        lab.up(2, data_disk_mb=128)
    with pytest.raises(UsageError, match="made of bookworm, not trixie"):
        lab.up(2, suite="trixie")


def test_threads_and_processes_started_inside_are_in_the_labs_network(lab):
    with lab.inside():
        inside = subprocess.run(["ip", "-json", "addr"], capture_output=True, text=True, check=True).stdout
    outside = subprocess.run(["ip", "-json", "addr"], capture_output=True, text=True, check=True).stdout
    assert "br0" in {link["ifname"] for link in json.loads(inside)}
    assert "10.89.0.1" not in outside


def test_ansible_reaches_every_host_through_the_inventory(lab):
    ansible = [str(Path(sys.executable).with_name("ansible")), "-i", "inventory/lab.py", "all"]
    argv = [*ansible, "-m", "ansible.builtin.command", "-a", "hostname"]
    environment = {**os.environ, "LANDLINE_LAB": lab.name}
    done = subprocess.run(
        lab.enter_argv(argv),
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for host in lab.hosts:
        assert f"{host.name} | CHANGED" in done.stdout


# Faults


def test_a_host_that_lost_power_boots_with_its_files_and_its_journal_is_read_meanwhile(lab):
    lab.run("h1", "echo kept > /root/note && logger -t landline-test before-the-loss && journalctl --sync")
    lab.faults.power_loss("h1")
    assert state_of(lab, "h1") is HostState.OFF
    assert state_of(lab, "h2") is HostState.RUNNING
    journal = subprocess.run(
        lab.journal_argv("h1", ["-t", "landline-test"]), capture_output=True, text=True, check=True
    )
    assert "before-the-loss" in journal.stdout
    with pytest.raises(LabError, match="boot it first"):
        lab.faults.freeze("h1")
    lab.faults.boot("h1")
    assert lab.run("h1", "cat /root/note").stdout == "kept\n"


def test_a_power_loss_can_take_what_was_not_synced_from_the_data_disk(lab):
    lab.run("h1", f"echo kept > {DATA}/synced && sync {DATA}/synced {DATA} && echo lost > {DATA}/unsynced")
    lab.faults.power_loss("h1", lose_unsynced=True)
    lab.faults.boot("h1")
    assert lab.run("h1", f"cat {DATA}/synced").stdout == "kept\n"
    assert lab.run("h1", f"cat {DATA}/unsynced", check=False).stdout == ""


def test_faults_asked_for_twice_are_as_if_asked_for_once(lab):
    lab.faults.power_loss("h1")
    lab.faults.power_loss("h1")
    lab.faults.boot("h1")
    before = leaders(lab)
    lab.faults.boot("h1")
    assert leaders(lab) == before
    lab.faults.cut("h1")
    lab.faults.cut("h1")
    assert len(lab.state.link_faults) == 1


def test_a_host_reboots_when_told_and_when_it_decides_itself(lab):
    first = leaders(lab)["h2"]
    lab.faults.reboot("h2")
    second = leaders(lab)["h2"]
    assert second != first
    lab.run("h2", "systemd-run --on-active=0.1 --timer-property=AccuracySec=10ms systemctl reboot")
    wait_until(lambda: leaders(lab)["h2"] not in (None, second), 60)
    wait_until(lambda: lab.run("h2", "true", check=False, timeout_s=10).returncode == 0, 60)


def test_a_host_shut_down_in_order_stays_off_until_booted(lab):
    lab.faults.power_off("h2")
    assert state_of(lab, "h2") is HostState.OFF
    lab.faults.boot("h2")
    assert lab.run("h2", "journalctl -b -1 -u ssh | grep -c 'Stopped ssh'").stdout == "1\n"


def test_a_frozen_host_answers_ping_and_no_ssh_and_goes_on_when_thawed(lab):
    before = leaders(lab)
    lab.faults.freeze("h2")
    assert state_of(lab, "h2") is HostState.FROZEN
    assert pings(lab, "h1", "h2") == 1
    with pytest.raises(CommandFailedError, match="did not end in time"):
        lab.run("h2", "true", timeout_s=2)
    lab.faults.thaw("h2")
    assert lab.run("h2", "hostname").stdout == "h2\n"
    assert leaders(lab) == before


def test_a_frozen_host_can_lose_power(lab):
    lab.faults.freeze("h2")
    lab.faults.power_loss("h2")
    assert state_of(lab, "h2") is HostState.OFF
    lab.faults.boot("h2")
    assert state_of(lab, "h2") is HostState.RUNNING


def test_a_cut_host_hears_nobody_even_after_a_boot_until_healed(lab):
    lab.faults.cut("h2")
    assert pings(lab, "h1", "h2") == 0
    lab.faults.power_loss("h2")
    lab.faults.boot("h2")
    assert pings(lab, "h1", "h2") == 0
    assert lab.run_on_console("h2", "hostname").stdout == "h2\n"
    lab.faults.heal("h2")
    wait_until(lambda: pings(lab, "h1", "h2") == 1, 20)


def test_a_cut_between_two_hosts_leaves_both_with_the_controller(lab):
    lab.faults.cut("h1", peer="h2", direction=Direction.OUT)
    assert pings(lab, "h1", "h2") == 0
    assert pings(lab, "h1", "controller") == 1
    assert pings(lab, "h2", "controller") == 1
    lab.faults.heal("h1", peer="h2")
    wait_until(lambda: pings(lab, "h1", "h2") == 1, 20)


def test_a_cut_of_one_direction_still_carries_the_other(lab):
    received = "cat /sys/class/net/host0/statistics/rx_packets"
    lab.faults.cut("h2", direction=Direction.OUT)
    before = int(lab.run_on_console("h2", received).stdout)
    assert pings(lab, "h1", "h2", 5) == 0
    assert int(lab.run_on_console("h2", received).stdout) > before


def test_a_lossy_cable_loses_about_its_share(lab):
    assert pings(lab, "h1", "h2", 300) == 300
    lab.faults.lose("h2", 30)
    # There and back: 0.7 x 0.7 of 300 are 147; five standard deviations are 43.
    assert 100 < pings(lab, "h1", "h2", 300) < 194
    lab.faults.lose("h2", 0)
    assert pings(lab, "h1", "h2", 300) == 300


@pytest.mark.parametrize("direction", ["to the host", "from the host"])
def test_a_slow_cable_slows_both_directions(lab, direction):
    lab.faults.slow("h1", 4000)
    begin = time.monotonic()
    if direction == "to the host":
        lab.run("h1", "wc -c", stdin="x" * 1_000_000)
    else:
        lab.run("h1", "head -c 1000000 /dev/zero | tr '\\0' x")
    # 8 Mbit at 4 Mbit/s, less what the bucket and the socket buffers swallow.
    assert time.monotonic() - begin > 1.2


def test_a_throttled_host_gets_its_share_of_a_processor_and_no_more(lab):
    def share_of_a_busy_host():
        begin, before_us = time.monotonic(), lab.cpu_us("h2")
        lab.run("h2", "timeout 1 sh -c 'while :; do :; done'", check=False)
        return (lab.cpu_us("h2") - before_us) / 1e6 / (time.monotonic() - begin)

    lab.faults.throttle("h2", 10)
    try:
        assert 0.01 < share_of_a_busy_host() < 0.2
    finally:
        lab.faults.throttle("h2", 0)
    # A loaded machine may have no more than that for it at once.
    wait_until(lambda: share_of_a_busy_host() > 0.25, timeout=60, what="the host gets more again")


def test_a_full_disk_refuses_data_and_spares_the_rest_of_the_host(lab):
    assert lab.faults.fill_disk("h1") > 30_000_000
    full = lab.run("h1", f"echo data > {DATA}/x", check=False)
    assert full.returncode != 0
    lab.run("h1", "echo data > /root/x")
    assert "disk full" in lab.status()[0].faults
    lab.faults.free_disk("h1")
    lab.run("h1", f"echo data > {DATA}/x")


def test_a_disk_nobody_writes_to_turns_read_only_and_back(lab):
    lab.faults.read_only_disk("h1")
    refused = lab.run("h1", f"echo data > {DATA}/y", check=False)
    assert "Read-only file system" in refused.stderr
    lab.faults.writable_disk("h1")
    lab.run("h1", f"echo data > {DATA}/y")


def test_a_disk_that_fails_under_a_writer_is_repaired_by_a_boot(lab):
    writer = f"exec 3>>{DATA}/log; while sleep 0.1; do date >&3; done"
    lab.run("h1", ["systemd-run", "--unit=writer", "sh", "-c", writer])
    wait_until(lambda: lab.run("h1", f"test -s {DATA}/log", check=False).returncode == 0, 20)
    lab.run("h1", f"sync {DATA}/log")
    lab.faults.read_only_disk("h1")
    assert "disk read-only" in lab.status()[0].faults
    wait_until(lambda: "Read-only file system" in lab.run("h1", "journalctl -u writer").stdout, 20)
    with pytest.raises(LabError, match="power-loss"):
        lab.faults.writable_disk("h1")
    lab.faults.power_loss("h1")
    lab.faults.boot("h1")
    lab.run("h1", f"echo data > {DATA}/z && test -s {DATA}/log")


def test_a_lab_without_data_disks_says_how_to_have_them():
    with lab_session("nodisk", hosts=1) as lab, pytest.raises(LabError, match="--data-disk-mb"):
        lab.faults.fill_disk("h1")


# Several labs, and the end of them


def test_two_labs_with_the_same_addresses_do_not_touch_each_other(lab):
    with lab_session("twin", hosts=1) as twin:
        assert twin.host("h1").address == lab.host("h1").address
        lab.run("h1", "echo lab > /root/whose")
        twin.run("h1", "echo twin > /root/whose")
        assert (lab.run("h1", "cat /root/whose").stdout, twin.run("h1", "cat /root/whose").stdout) == (
            "lab\n",
            "twin\n",
        )
        before = leaders(lab)
        twin.faults.cut("h1")
        assert pings(lab, "h2", "h1") == 1
        twin.faults.heal()
        twin.faults.freeze("h1")
        assert lab.run("h1", "cat /root/whose").stdout == "lab\n"
        twin.faults.power_loss("h1")
        assert leaders(lab) == before
        name = twin.name
    assert leaders(lab) == before
    assert lab.run("h1", "cat /root/whose").stdout == "lab\n"
    assert_no_trace(name)


def test_down_leaves_no_process_mount_cgroup_or_namespace(lab):
    with lab_session("gone", hosts=2, data_disk_mb=32) as gone:
        traces = traces_of(gone.name)
        assert all(
            traces[kind] for kind in ("processes", "mounts", "disks", "cgroups", "namespaces", "files")
        )
        # What people leave behind: a frozen host, a slow cable, a process in the lab's network.
        gone.faults.freeze("h2")
        gone.faults.slow("h1", 1000)
        stray = subprocess.Popen(gone.enter_argv(["sleep", "300"]))
        wait_until(lambda: stray.pid in netns.processes(gone.name), 10)
        assert gone.down()
        assert stray.wait(timeout=10) != 0
        assert_no_trace(gone.name)
        assert not gone.down()


def test_down_clears_a_lab_that_lost_its_state_and_its_supervisors():
    with lab_session("broken", hosts=1) as broken:
        host = broken.host("h1")
        leader = HostCgroup(broken.name, host).leader()
        for pid in HostCgroup(broken.name, host).all_processes():
            if Path(f"/proc/{pid}/comm").read_text().strip() in {"sh", "systemd-nspawn"}:
                os.kill(pid, 9)
        broken.files.json.unlink()
        assert Path(f"/proc/{leader}").exists()
        with pytest.raises(LabError, match="lab down"):
            broken.up(1)
        assert broken.down()
        assert_no_trace(broken.name)


def test_up_after_a_crash_of_the_machine_boots_the_same_hosts_with_their_files():
    with lab_session("crash", hosts=1, data_disk_mb=32) as lab:
        lab.run("h1", f"echo root > /root/note; echo data > {DATA}/note; sync -f {DATA}/note")
        identity = lab.run("h1", "cat /etc/machine-id").stdout
        # All that a crash takes: processes, cgroups, mounts and the namespace; the state's directory stays.
        HostCgroup(lab.name, lab.host("h1")).kill()
        HostCgroup(lab.name, lab.host("h1")).remove()
        mounts.unmount_all_below(lab.files.home)
        netns.remove(lab.name)
        assert state_of(lab, "h1") is HostState.OFF
        assert lab.up() == ["h1"]
        assert lab.run("h1", f"cat /root/note {DATA}/note").stdout == "root\ndata\n"
        assert lab.run("h1", "cat /etc/machine-id").stdout == identity


def test_the_command_makes_grows_uses_and_destroys_a_lab_that_outlives_it(tmp_path):
    name = f"t-cli-{os.getpid()}"
    shown = tmp_path / "shown"
    shown.mkdir()
    (shown / "file").write_text("from the controller")
    try:
        command("up", "--name", name, "--hosts", "1", "--bind-ro", f"{shown}:/opt/shown")
        lab = Lab(name)
        first = leaders(lab)["h1"]
        again = command("up", "--name", name, "--hosts", "2")
        assert "booting h2" in again.stderr
        assert leaders(lab)["h1"] == first
        assert "nothing changed" in command("up", "--name", name).stderr
        assert command("exec", name, "h1", "--", "cat", "/opt/shown/file").stdout == "from the controller"
        assert (
            command("exec", name, "h1", "--", "sh", "-c", "getent hosts h2; exit 7", check=False).returncode
            == 7
        )
        assert pings(lab, "h1", "h2") == 1
        assert command("exec", name, "h2", "touch", "/opt/shown/x", check=False).returncode != 0
        assert "Started" in command("journal", name, "h2", "-u", "ssh").stdout
        assert "br0" in command("enter", name, "--", "ip", "link").stdout
        assert "h9" in command("freeze", "--name", name, "h9", check=False).stderr
        command("cut", "--name", name, "h2", "--peer", "h1")
        table = command("status", "--name", name).stdout
        assert "cut h1" in table
        assert table.count("running") == 2
    finally:
        command("down", "--name", name)
    assert_no_trace(name)


def test_two_who_make_the_same_lab_at_once_make_it_once():
    name = f"t-race-{os.getpid()}"
    argv = [sys.executable, "-m", "lab", "up", "--name", name, "--hosts", "1"]
    try:
        both = [subprocess.Popen(argv, cwd=ROOT, stderr=subprocess.PIPE, text=True) for _ in range(2)]
        said = [process.communicate(timeout=200)[1] for process in both]
        assert [process.returncode for process in both] == [0, 0]
        assert sum("booting" in text for text in said) == 1
        assert len(leaders(Lab(name))) == 1
    finally:
        command("down", "--name", name)
