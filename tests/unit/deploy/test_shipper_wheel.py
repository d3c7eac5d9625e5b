"""Where the journal shipper's client comes from, and that a preflight names it where it comes from nowhere.

The roles' tasks for it run on this machine, in a dry run.
"""

import json
import re
import sys

import pytest
import yaml

from tests.support.deploy_code import ROOT
from tests.support.plays import played
from tools.wheelhouse import SHIPPER, SHIPPER_KEY

WHEEL = "kafka_python-2-py2.py3-none-any.whl"
NEEDS = """
- hosts: brokers
  gather_facts: false
  vars: {preflight_mistyped: {h1: [], h2: [], h3: [], h4: []}, preflight_unsettled: []}
  tasks:
    - ansible.builtin.include_role: {name: landline.cluster.preflight, tasks_from: needs}
      vars: {preflight_role: broker}
    - ansible.builtin.debug:
        msg: "{{ inventory_hostname }} is told {{ preflight_unsettled }} {{ broker_needs.files | to_json }}!"
"""
SHIPS = """
- hosts: brokers
  gather_facts: false
  tasks:
    - ansible.builtin.include_role: {name: landline.cluster.journal_shipper, tasks_from: preflight, public: true}
    - ansible.builtin.debug:
        msg: "{{ inventory_hostname }} takes {{ journal_shipper_wheel }}
          {{ 'of its own' if journal_shipper_host_wheels }}!"
"""


def test_the_shipper_runs_on_the_python_that_brokers_run_on():
    """The system's own may be too old, as that of Enterprise Linux 9."""
    of_role = {
        name: yaml.safe_load((ROOT / "roles" / name / "defaults/main.yml").read_text())
        for name in ("broker", "journal_shipper")
    }
    assert of_role["journal_shipper"]["journal_shipper_python"] == of_role["broker"]["broker_python"]


@pytest.fixture
def play(tmp_path):
    """What is said of each host with these variables."""

    def run(text, *arguments, **hosts):
        here = {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            "ansible_become": False,
            "broker_journal_shipper_enabled": True,
            "broker_archive_dir": str(tmp_path),
            "broker_install_dir": str(tmp_path / "opt"),
            "journal_shipper_wheelhouse": str(tmp_path / "none"),
        }
        found = {
            name: {**here, "ansible_host": f"192.0.2.{number}", **more}
            for number, (name, more) in enumerate(hosts.items(), 1)
        }
        inventory = {"brokers": {"hosts": found}, "zookeeper": {"hosts": {"h1": {}}}}
        (tmp_path / "hosts.json").write_text(json.dumps(inventory))
        (tmp_path / "play.yml").write_text(text)
        done = played(tmp_path, "-i", tmp_path / "hosts.json", tmp_path / "play.yml", *arguments)
        words = re.sub(r"\s+", " ", done.stdout)
        return dict(re.findall(r"(h\d) (?:is told|takes) (.*?)!", words)), words

    return run


def test_a_release_without_it_is_a_fault_before_anything_changes_unless_it_is_here_or_not_wanted(
    play, tmp_path
):
    for version, more in (("1.0", {}), ("1.1", {SHIPPER_KEY: [WHEEL]})):
        (tmp_path / f"landline-{version}.json").write_text(json.dumps({"archives": {"x": {}}, **more}))
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / WHEEL).write_text("")
    told, _ = play(
        NEEDS,
        "--check",
        h1={"landline_version": "1.0"},
        h2={"landline_version": "1.1"},
        h3={"landline_version": "1.0", "journal_shipper_wheelhouse": str(tmp_path / "here")},
        h4={"landline_version": "1.0", "broker_journal_shipper_enabled": False},
    )
    assert (told["h2"], told["h3"], told["h4"]) == ("[] []",) * 3
    # The host itself is looked at: it may have the release with it.
    assert f'"path": "{tmp_path}/opt/releases/1.0/wheelhouse/{SHIPPER}"' in told["h1"]
    assert "and release 1.0 has no journal shipper" in told["h1"]


def test_it_is_taken_from_the_release_on_the_host_and_else_from_here(play, tmp_path):
    for directory in ("own", "here"):
        (tmp_path / directory).mkdir()
        (tmp_path / directory / WHEEL).write_text("")
    own, here = str(tmp_path / "own"), str(tmp_path / "here")
    takes, words = play(
        SHIPS,
        h1={"journal_shipper_host_wheelhouse": own, "journal_shipper_wheelhouse": here},
        h2={"journal_shipper_host_wheelhouse": str(tmp_path / "none"), "journal_shipper_wheelhouse": here},
        h3={"journal_shipper_host_wheelhouse": str(tmp_path / "none")},
    )
    assert (takes["h1"], takes["h2"]) == (f"{own}/{WHEEL} of its own", f"{here}/{WHEEL} ")
    assert "There must be one kafka_python-*.whl, the journal shipper's client" in words


def test_the_brokers_role_names_the_directory_that_archives_have():
    assert yaml.safe_load((ROOT / "roles/broker/vars/main.yml").read_text())["broker_shipper_dir"] == SHIPPER
