"""What the master sends, and what is made of what it says."""

from __future__ import annotations

import os
import shlex
import subprocess

import pytest

from compare.members import Program, landline_members, program, spark_members
from compare.push import counted, read, script
from compare.scenarios import Model
from sparkctl.inventory import Host

HOSTS = [Host(f"h{number}", f"10.0.0.{number}", f"10.0.0.{number}") for number in (1, 2)]
# As systemd 252 shows a broker's unit.
SHOWN = """\
ExecStart={ path=/opt/landline/current/venv/bin/landline ; argv[]=/opt/landline/current/venv/bin/landline start \
/etc/landline/broker-2.properties ; ignore_errors=no ; start_time=[n/a] ; stop_time=[n/a] ; pid=0 ; code=(null) ; \
status=0/0 }
Environment=PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 MALLOC_ARENA_MAX=2
EnvironmentFiles=/etc/landline/broker-2.env (ignore_errors=no)
EnvironmentFiles=/etc/landline/lifecycle.env (ignore_errors=yes)
"""
# An ssh that goes nowhere: it knows of one host that refuses, and runs the command here. Its words are OpenSSH 9.2's.
FAKE_SSH = """#!/bin/bash
while [ "$1" = -o ]; do shift 2; done
[ "$1" = refused ] && echo "ssh: connect to host refused port 22: Connection refused" && exit 255
printf 'Authenticated to %s ([%s]:22) using "publickey".\\r\\n' "$1" "$1" >&2
shift; bash -c "$1"; code=$?
printf 'Transferred: sent 2604, received 2552 bytes, in 0.0 seconds\\r\\n' >&2
printf 'Bytes per second: sent 65100.0, received 63800.0\\r\\n' >&2
exit $code
"""


def landline(model=Model.PUSH_PARALLEL):
    programs = {f"{kind}-{host.name}": program(SHOWN) for kind in ("broker", "zookeeper") for host in HOSTS}
    return landline_members(HOSTS, HOSTS[:1], programs, "run-1", model)


def made(name, target, command, serves=True):
    """A broker of the fixture with another command."""
    member = next(member for member in landline() if member.serves)
    return type(member)(
        *(name, member.role, member.instance, member.host, member.unit, member.marks),
        *(target, command, serves, member.address),
    )


@pytest.fixture
def pushed(tmp_path):
    """Runs a push of these members in a real shell."""
    ssh = tmp_path / "ssh"
    ssh.write_text(FAKE_SSH)
    ssh.chmod(0o755)

    def run(members, *, parallel):
        done = subprocess.run(
            ["bash", "-c", script(members, parallel=parallel)],
            env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
            text=True,
            capture_output=True,
            check=True,
            timeout=30,
        )
        return read(members, done.stdout.splitlines())

    return run


def test_a_units_program_and_environment_are_read_as_systemd_shows_them():
    assert program(SHOWN) == Program(
        "/opt/landline/current/venv/bin/landline start /etc/landline/broker-2.properties",
        "PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 MALLOC_ARENA_MAX=2",
        ("/etc/landline/broker-2.env", "/etc/landline/lifecycle.env"),
    )
    with pytest.raises(ValueError, match="no program line"):
        program("ExecStart=\nEnvironment=\n")


def test_a_broker_is_pushed_with_its_units_program_and_its_run():
    command = next(member for member in landline() if member.name == "broker-2").command
    assert ". /etc/landline/broker-2.env;" in command
    # Its run is told in the command: the file is what a start by its own host reads.
    assert "lifecycle.env" not in command
    assert "LANDLINE_RUN_ID=run-1 LANDLINE_STARTED_BY=push-parallel" in command
    assert "nohup setsid /opt/landline/current/venv/bin/landline start /etc/landline/broker-2" in command


def test_what_others_need_is_pushed_first():
    text = script(landline(), parallel=True)
    assert text.index("push zookeeper-1") < text.index("push broker-1") < text.index("push broker-2")
    spark = script(spark_members(HOSTS), parallel=True)
    assert spark.index("here spark-master") < spark.index("push spark-worker-h1")


def test_sparks_master_is_started_without_ssh():
    master, *workers = spark_members(HOSTS)
    assert master.target is None
    assert [worker.target for worker in workers] == ["10.0.0.1", "10.0.0.2"]


@pytest.mark.parametrize("parallel", [True, False])
def test_every_step_of_a_push_has_its_time(pushed, parallel):
    members = [made("one", "there", "echo hello; exit 3"), made("two", "there", "true")]
    one, two = pushed(members, parallel=parallel)
    assert one.began_us <= one.opened_us <= one.ended_us
    assert (one.exit_code, one.lines) == (3, ("one: hello",))
    assert one.bytes == two.bytes == 2604 + 2552
    assert two.exit_code == 0
    assert counted([one, two]) == (2, 2)


def test_one_after_another_means_that_the_next_waits(pushed, tmp_path):
    one, two = pushed([made("one", "there", "true"), made("two", "there", "true")], parallel=False)
    assert two.began_us >= one.ended_us
    os.mkfifo(tmp_path / "meet")
    # The first ends when the second has come: pushed in turn, neither ever would.
    waits, comes = f"read -r _ <{tmp_path}/meet", f"echo come >{tmp_path}/meet"
    one, two = pushed([made("one", "there", waits), made("two", "there", comes)], parallel=True)
    assert (one.exit_code, two.exit_code) == (0, 0)
    assert two.began_us < one.ended_us


def test_a_refused_connection_is_counted_and_its_command_is_not(pushed):
    members = [made("one", "refused", "true"), made("two", "there", "true")]
    one, two = pushed(members, parallel=False)
    assert one.opened_us is None
    assert one.exit_code == 255
    assert "Connection refused" in one.lines[-1]
    assert one.bytes == -1
    assert counted([one, two]) == (1, 2)


def test_the_masters_own_daemon_is_a_command_without_a_connection(pushed):
    (own,) = pushed([made("own", None, "echo here", serves=False)], parallel=True)
    assert (own.exit_code, own.bytes) == (0, 0)
    assert counted([own]) == (1, 0)


def test_a_master_that_died_leaves_what_it_said():
    one = made("one", "there", "true")
    (launch,) = read([one], ["@begin one 1700000000.000001", "@open one 1700000000.200000"])
    assert (launch.began_us, launch.opened_us) == (1_700_000_000_000_001, 1_700_000_000_200_000)
    assert (launch.ended_us, launch.bytes) == (None, -1)
    assert read([one], []) == []


def test_the_pushed_command_is_one_word_for_ssh():
    line = next(x for x in script(landline(), parallel=False).splitlines() if x.startswith("push broker-2"))
    words = shlex.split(line.split("; echo @exit")[0])
    assert words[:3] == ["push", "broker-2", "landline-push@10.0.0.2"]
    assert len(words) == 4
