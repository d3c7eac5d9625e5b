"""Dry runs of a backup, a restore and a support bundle: they look, come to their end, and leave nothing behind.
Neither does a backup, and what one that was interrupted leaves is removed by a later one.

The playbooks run on this machine, with a systemctl and a landline of the test's own.
"""

import getpass
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
from contextlib import suppress
from pathlib import Path

import pytest

from rig.wait import wait_until
from tests.support.deploy_code import ROOT

PROGRAMS = {
    "current/venv/bin/landline": """#!/bin/sh
echo "$2" >>{here}/told
case "$3" in {here}/kept/run-*/tree) ;; *) exit 4 ;; esac
[ "$(stat --format=%a "$(dirname "$3")")" = 700 ] || exit 5
[ "$2" = backup ] && echo tree >"$3"
[ ! -e {here}/hangs ] || exec sleep 60
[ -f "$3" ] || exit 3
echo "metadata of c: 7 znodes"
exit $(cat {here}/code_of_$2)
""",
    "bin/runuser": """#!/bin/sh
while [ "$1" != -- ]; do shift; done
shift
exec "$@"
""",
    "bin/systemctl": """#!/bin/sh
case " $* " in *" show "*) ;; *) echo "$*" >>{here}/told ;; esac
printf 'LoadState=loaded\\nActiveState=active\\nMainPID={pid}\\nJob=0\\n'
""",
}


@pytest.fixture
def playing(tmp_path, monkeypatch):
    """The command that runs a playbook."""
    for name, text in PROGRAMS.items():
        program = tmp_path / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(text.replace("{here}", str(tmp_path)).replace("{pid}", str(os.getpid())))
        program.chmod(0o755)
    for directory in ("etc", "tmp"):
        (tmp_path / directory).mkdir()
    (tmp_path / "etc/broker-1.properties").write_text("")
    (tmp_path / "release.json").write_text(json.dumps({"release": "0.1.0-abc", "archive": "none.tar"}))
    here = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "ansible_become": False,
        "ansible_host": "127.0.0.1",
        "broker_first_id": 1,
        "broker_zookeeper_connect": "192.0.2.9:2181",
        "broker_dist_dir": str(tmp_path),
        "broker_install_dir": str(tmp_path),
        "broker_config_dir": str(tmp_path / "etc"),
        "broker_system_user": getpass.getuser(),
        "broker_system_group": str(os.getgid()),
        "broker_metadata_file": str(tmp_path / "saved"),
    }
    off = {"ansible_host": "127.0.0.1", "ansible_port": 1, "broker_first_id": 2}
    inventory = {"brokers": {"hosts": {"h1": here, "h2": off}}, "web": {"hosts": {"localhost": here}}}
    (tmp_path / "hosts.json").write_text(json.dumps(inventory))
    for verb in ("backup", "verify"):
        (tmp_path / f"code_of_{verb}").write_text("0")

    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("ANSIBLE_HOME", str(tmp_path / "ansible"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))

    def playing(playbook, *arguments):
        program = str(Path(sys.executable).with_name("ansible-playbook"))
        work = f"broker_work_dir={tmp_path / 'kept'}"
        return [
            program,
            "-i",
            str(tmp_path / "hosts.json"),
            f"playbooks/{playbook}.yml",
            "-e",
            work,
            *arguments,
        ]

    return playing


@pytest.fixture
def dry_run(playing, tmp_path):
    """Runs a playbook as a dry run; returns the exit status and what was said."""

    def run(playbook, *arguments):
        done = subprocess.run(
            playing(playbook, "--check", "--diff", *arguments),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        print(done.stdout)
        assert places(tmp_path) == []
        return done.returncode, re.sub(r"\s+", " ", done.stdout)

    return run


def places(directory):
    """Whatever has the tree, beside the backup."""
    homes = ("kept", "tmp", "ansible")
    return [path for home in homes for path in (directory / home).rglob("tree") if path.is_file()]


def told(directory):
    return (directory / "told").read_text().splitlines() if (directory / "told").exists() else []


def test_of_a_backup_it_takes_the_tree_and_keeps_none(dry_run, tmp_path):
    status, said = dry_run("backup", "--limit=h1")
    assert status == 0
    assert told(tmp_path) == ["backup"]
    assert f"{tmp_path}/saved would be written: 7 znodes" in said
    assert not (tmp_path / "saved").exists()


def test_a_backup_that_was_interrupted_leaves_the_tree_to_its_user_until_a_later_one(playing, tmp_path):
    (tmp_path / "hangs").touch()
    # A group of its own, as a terminal gives it: ^C reaches what runs on the host too.
    with subprocess.Popen(playing("backup", "--limit=h1"), cwd=ROOT, process_group=0) as running:
        wait_until(lambda: places(tmp_path), 60, what="the tree is on the host")
        while running.poll() is None:
            os.killpg(running.pid, signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                running.wait(5)
    assert running.returncode != 0
    (tree,) = places(tmp_path)
    assert tree.parent.stat().st_mode & 0o777 == 0o700
    assert tree.parent.parent == tmp_path / "kept"
    os.utime(tree.parent, (0, 0))
    local = tmp_path / "ansible/landline-work/run-left"
    local.mkdir(parents=True)
    (local / "tree").write_text("tree")
    os.utime(local, (0, 0))
    (tmp_path / "hangs").unlink()
    done = subprocess.run(playing("backup", "--limit=h1"), cwd=ROOT, check=False)
    assert done.returncode == 0
    assert (tmp_path / "saved").read_text() == "tree\n"
    assert (tmp_path / "saved").stat().st_mode & 0o777 == 0o600
    assert places(tmp_path) == []
    assert not (tmp_path / "kept").exists()
    assert not local.parent.exists()


@pytest.mark.parametrize(
    ("code", "what_is"), [(66, "The tree is gone"), (69, "ZooKeeper does not answer")], ids=["gone", "away"]
)
def test_of_a_restore_it_verifies_the_file_says_what_would_be_done_and_stops_nothing(
    dry_run, tmp_path, code, what_is
):
    (tmp_path / "saved").write_text("hidden-tree")
    (tmp_path / "code_of_backup").write_text(str(code))
    status, said = dry_run("restore", "--limit=h1")
    assert status == 0
    assert set(told(tmp_path)) == {"verify", "backup"}
    assert (
        f"{what_is}: the brokers would be stopped, {tmp_path}/saved restored, and all brokers started" in said
    )
    assert "hidden-tree" not in said


def test_of_a_restore_it_refuses_a_cluster_that_has_its_metadata(dry_run, tmp_path):
    (tmp_path / "saved").write_text("hidden-tree")
    status, said = dry_run("restore", "--limit=h1")
    assert status != 0
    assert told(tmp_path) == ["verify", "backup"]
    assert "This cluster has its metadata, and nothing is touched" in said


def test_of_a_restore_it_refuses_a_file_that_is_damaged(dry_run, tmp_path):
    (tmp_path / "saved").write_text("")
    (tmp_path / "code_of_verify").write_text("1")
    status, _said = dry_run("restore", "--limit=h1")
    assert status != 0
    assert told(tmp_path) == ["verify"]


def test_of_a_support_bundle_it_looks_which_hosts_are_reached(dry_run, tmp_path):
    status, said = dry_run("support_bundle")
    assert status == 0
    assert re.search(r"support-\d{8}T\d{6}Z\.tar\.gz would be made of h1\. Not reached: h2", said)
    assert told(tmp_path) == []


def test_of_a_support_bundle_nothing_is_left_but_the_bundle(playing, tmp_path):
    work = f"support_work_dir={tmp_path / 'kept'}"
    done = subprocess.run(
        playing("support_bundle", "--limit=h1,localhost", "-e", work),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    print(done.stdout)
    (bundle,) = map(Path, re.findall(r"(/\S+\.tar\.gz): \d+ KiB", done.stdout))
    try:
        with tarfile.open(bundle) as tar:
            names = [member.name.partition("/")[2] for member in tar]
    finally:
        bundle.unlink()
    assert done.returncode == 0
    assert "h1/errors.json" in names
    assert not (tmp_path / "kept").exists()
    assert not (tmp_path / "ansible/landline-work").exists()
