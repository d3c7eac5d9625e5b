"""A deploy of the working tree (landline_version: dev): it is said where nobody overlooks it."""

import json
import re
import sys

import pytest

from tests.support.plays import played

CHOOSE = """
- hosts: brokers
  gather_facts: false
  tasks:
    - ansible.builtin.import_role: {name: landline.cluster.broker, tasks_from: release}
"""


@pytest.fixture
def choose(tmp_path):
    """What is said after the recap when the release of two hosts is chosen, twice as in playbooks/apply.yml."""
    (tmp_path / "release.json").write_text(json.dumps({"release": "1.0-abc", "version": "1.0"}))
    (tmp_path / "play.yml").write_text(CHOOSE * 2)

    def run(version):
        here = {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            "broker_dist_dir": str(tmp_path),
            "landline_version": version,
        }
        (tmp_path / "hosts.json").write_text(json.dumps({"brokers": {"hosts": {"h1": here, "h2": here}}}))
        done = played(tmp_path, "--check", "-i", tmp_path / "hosts.json", tmp_path / "play.yml")
        assert done.returncode == 0
        return re.sub(r"\s+", " ", done.stdout.partition("PLAY RECAP")[2])

    return run


def test_the_end_of_a_run_warns_of_it_once(choose):
    said = choose("dev")
    assert said.count("[WARNING]: ") == 1
    assert (
        "[WARNING]: landline_version is dev: what is deployed is this working tree, 1.0-abc, and no" in said
    )


def test_the_end_of_a_run_with_a_release_warns_of_nothing(choose):
    assert "WARNING" not in choose("1.0")
