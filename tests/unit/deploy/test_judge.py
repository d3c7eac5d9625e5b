"""A release checks brokers' properties as the brokers' user: what only root reads, the brokers do not.

The role's own tasks run on this machine, with a command of the test's own in place of the release's.
"""

import getpass
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

from tests.support.plays import played

PLAY = """
- hosts: brokers
  gather_facts: false
  tasks:
    - ansible.builtin.import_role: {name: landline.cluster.broker, tasks_from: judge}
"""
# Reads the properties from where it is told, and the key store that they name.
LANDLINE = r"""#!/bin/sh
file=$(sed -n 's/^ssl\.keystore\.location=//p' "$2") && [ -n "$file" ] || exit 3
id -un
[ "$1" = check-config ] && cat "$file"
"""


@pytest.fixture
def judged():
    """Runs the tasks as a run of this user does; returns how it ended. Other users see the files."""
    directory = Path(tempfile.mkdtemp())
    directory.chmod(0o755)
    command = directory / "release/venv/bin/landline"
    command.parent.mkdir(parents=True)
    command.write_text(LANDLINE)
    command.chmod(0o755)
    store = directory / "store.p12"
    store.touch(0o600)
    broker = {"config": "/c", "properties": {"ssl.keystore.location": str(store)}}
    here = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "ansible_become": False,
    }
    (directory / "hosts.json").write_text(json.dumps({"brokers": {"hosts": {"h1": here}}}))
    (directory / "play.yml").write_text(PLAY)

    def run(user, *more):
        variables = {
            "broker_all": [broker],
            "broker_seen": {"installed": True},
            "broker_release_dir": str(directory / "release"),
            "broker_system_user": user,
        }
        files = (directory / "hosts.json", directory / "play.yml")
        return played(directory, "-v", "-i", *files, "-e", json.dumps(variables), *more)

    yield run, store
    shutil.rmtree(directory)


@pytest.mark.skipif(os.geteuid() != 0, reason="root becomes another user")
def test_a_key_store_that_only_root_reads_is_refused(judged):
    run, store = judged
    done = run("nobody")
    assert done.returncode != 0
    assert f"{store}: Permission denied" in done.stdout
    store.chmod(0o644)
    done = run("nobody")
    assert done.returncode == 0
    assert "stdout: nobody\n" in done.stdout


def test_a_dry_run_before_there_is_the_user_checks_as_who_it_is(judged):
    run, _ = judged
    done = run("nobody-of-this-name", "--check")
    assert done.returncode == 0
    assert f"stdout: {getpass.getuser()}\n" in done.stdout
