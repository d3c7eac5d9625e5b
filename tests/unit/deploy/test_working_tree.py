"""A deploy of the working tree (landline_version: dev): it is said where nobody overlooks it, and the tree is built for
no other.
"""

import json
import os
import re
import subprocess
import sys

import pytest
from click.testing import CliRunner

from broker import __version__
from tests.support.deploy_code import ROOT
from tests.support.plays import played
from tools import dev_build

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
            "broker_archive_dir": str(tmp_path),
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


def test_the_end_of_a_run_with_the_release_of_the_playbooks_warns_of_nothing(choose):
    assert "WARNING" not in choose(__version__)


def test_the_end_of_a_run_with_another_release_warns_of_the_playbooks(choose):
    said = choose("1.0")
    assert said.count("[WARNING]: ") == 1
    assert (
        f"landline_version is 1.0, and units and settings are those of this collection, {__version__}."
        in said
    )


@pytest.fixture
def builds(tmp_path, monkeypatch):
    """Whether the working tree is built for a deploy to hosts with these variables, and what is said."""
    built = []
    monkeypatch.setattr(dev_build, "build_for_hosts", built.append)
    monkeypatch.setenv("ANSIBLE_HOME", str(tmp_path / "ansible"))
    monkeypatch.setenv("ANSIBLE_INVENTORY", str(tmp_path / "hosts.json"))

    def run(*hosts, options=(), arguments=()):
        found = {f"h{number}": variables for number, variables in enumerate(hosts, 1)}
        other = {"hosts": {"h9": {}}}  # one without brokers gets no release
        (tmp_path / "hosts.json").write_text(json.dumps({"brokers": {"hosts": found}, "zookeeper": other}))
        done = CliRunner().invoke(dev_build.main, [*options, "--", *arguments], catch_exceptions=False)
        assert done.exit_code == 0
        return built, done.stderr

    return run


RELEASE = {"landline_version": "1.0"}


def test_for_a_release_nothing_is_built_and_that_is_said(builds):
    assert builds(RELEASE, RELEASE) == ([], "wheelhouse: nothing is built: release 1.0 is deployed\n")


@pytest.mark.parametrize(
    ("variables", "arguments", "is_built"),
    [
        ({"landline_version": "dev"}, [], True),
        ({}, [], True),
        ({"broker_version": "1.0"}, [], False),
        ({"broker_version": "dev", **RELEASE}, [], True),
        ({"landline_version": "{{ landline_wanted }}", "landline_wanted": "1.0"}, [], False),
        ({"landline_version": "{{ known_to_a_role }}"}, [], True),
        (RELEASE, ["--check", "-e", "landline_version=dev", "--tags", "broker"], True),
        ({}, ["-Ce", '{"landline_version": "1.0"}'], False),
        ({}, ["-e", "landline_version=dev", "-e", "landline_version=1.0", "--limit=h1"], False),
    ],
)
def test_the_working_tree_is_built_where_a_broker_gets_it(builds, variables, arguments, is_built):
    built, _said = builds(RELEASE, variables, arguments=arguments)
    assert bool(built) is is_built


def test_it_is_built_as_the_command_says(builds):
    assert builds({}, options=["--pure"])[0] == [False]


def test_an_inventory_and_variables_of_the_deploys_own_count(builds, tmp_path):
    (tmp_path / "vars.yml").write_text("landline_version: '1.0'\n")
    (tmp_path / "other.json").write_text(json.dumps({"brokers": {"hosts": {"h1": RELEASE}}}))
    assert builds({}, arguments=["-e", f"@{tmp_path}/vars.yml"])[0] == []
    assert builds({}, arguments=["-i", f"{tmp_path}/other.json"])[0] == []


@pytest.mark.parametrize("verb", ["deploy", "plan", "migrate", "replace"])
def test_make_builds_for_the_lab_always_and_for_an_inventory_by_what_it_says(tmp_path, verb):
    (tmp_path / "hosts.yml").write_text("")

    def commands(*more):
        argv = ["make", "--dry-run", verb, "HOST=h1", *more]
        env = {key: value for key, value in os.environ.items() if key != "MAKEFLAGS"}
        return subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, check=True).stdout

    lab, inventory = commands(), commands(f"INVENTORY={tmp_path}/hosts.yml", "ANSIBLE_ARGS=--tags a,b")
    assert "-m tools.wheelhouse" in lab
    assert "tools.dev_build" not in lab
    assert "-m tools.wheelhouse" not in inventory
    assert "-m tools.dev_build  -- --tags a,b\n" in inventory
