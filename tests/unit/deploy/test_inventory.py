"""A run for which the inventory has no hosts is refused, and what is lacking is said: a group, or the file itself.
Ansible would do nothing and end with success.

Nothing is run on a host: a refusal comes before all else, and otherwise the plays are only listed.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.deploy_code import ROOT, load

lacking = load("plugins/filter/preflight.py").preflight_lacking

IMPORT = "ansible.builtin.import_playbook"
# Parts of others, and what is for labs alone.
PARTS = {"inventory", "security", "quorum", "refused", "compare"}
PLAYBOOKS = sorted({path.stem for path in (ROOT / "playbooks").glob("*.yml")} - PARTS)
REFUSAL = "Refuse an inventory without the hosts that this is for"
MISSPELT = {"broker": {"hosts": {"h1": {}}}, "zookeeper": {"hosts": {"h1": {}}}}
SOUND = {"brokers": {"hosts": {"h1": {}}}, "zookeeper": {"hosts": {"h1": {}}}}


@pytest.fixture
def run(tmp_path):
    """Runs a playbook, or lists plays; returns the exit status and what was said."""

    def run_it(inventory, *arguments):
        path = tmp_path / "hosts.json"
        if inventory is not None:
            path.write_text(json.dumps(inventory))
        done = subprocess.run(
            [
                Path(sys.executable).with_name("ansible-playbook"),
                "--check",
                f"--inventory={path}",
                *arguments,
            ],
            cwd=ROOT,
            env={**os.environ, "ANSIBLE_HOME": str(tmp_path / "ansible")},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        print(done.stdout)
        return done.returncode, re.sub(r"\s+", " ", done.stdout)

    return run_it


def listed(run, inventory, *names):
    """By playbook, the hosts and the name of each of its plays."""
    status, said = run(inventory, "--list-tasks", *(f"playbooks/{name}.yml" for name in names))
    assert status == 0
    parts = re.split(r"playbook: playbooks/(\w+)\.yml", said)[1:]
    return {
        name: re.findall(r"play #\d+ \(([^)]*)\): (.*?) TAGS: ", text)
        for name, text in zip(parts[::2], parts[1::2], strict=True)
    }


def test_what_is_missing_is_said_and_where_the_inventory_was_read_from(tmp_path):
    path = str(tmp_path / "hosts.yml")
    groups = {"all": ["h1"], "ungrouped": [], "broker": ["h1"], "zookeeper": []}
    there = "It was read from h1,h2. Nothing was done."
    assert lacking(groups, ["all"], [path]) == ""
    assert lacking({**groups, "brokers": ["h1"]}, ["all", "brokers"], [path]) == ""
    assert (
        lacking(groups, ["brokers"], ["h1,h2"])
        == f"The inventory has no host in the group brokers: is it broker? {there}"
    )
    assert (
        lacking(groups, ["zookeeper"], ["h1,h2"])
        == f"The inventory has no host in the group zookeeper. {there}"
    )
    assert (
        lacking({"all": [], "ungrouped": []}, ["brokers"], [path])
        == f"The inventory has no hosts. It was read from {path}, which is not there. Nothing was done."
    )


def first_play(name):
    """The first play of a playbook, or of what it imports, and the variables that it gets."""
    first = yaml.safe_load((ROOT / f"playbooks/{name}.yml").read_text())[0]
    imported = first.get(IMPORT, "").removeprefix("landline.cluster.")
    if imported and imported != "inventory":
        return first_play(imported)
    return imported or name, first.get("vars")


def test_each_playbook_looks_at_the_inventory_before_all_else():
    groups = {"spark": "spark_master", "prometheus": "prometheus", "zookeeper": "zookeeper"}
    found = {name: first_play(name) for name in PLAYBOOKS}
    assert {first for first, _ in found.values()} == {"inventory"}
    needed = {name: given.get("needed_groups") for name, (_, given) in found.items()}
    wanted = {name: [groups.get(name, "brokers")] for name in PLAYBOOKS}
    assert needed == {**wanted, "preflight": None, "deploy": None}


def test_each_playbook_that_changes_hosts_looks_at_the_types_or_has_the_table_do_it():
    elsewhere = {name for name in PLAYBOOKS if first_play(name)[1].get("needed_types") is False}
    assert elsewhere == {"preflight", "deploy", "plan", "apply", "backup", "support_bundle"}


def test_a_group_that_is_misspelt_stops_a_playbook_and_a_deploy_tells_of_it_in_its_table(run):
    names = ["restart", "topics", "spark"]
    found = listed(run, MISSPELT, *names)
    assert {name: plays[0] for name, plays in found.items()} == dict.fromkeys(
        names, ("all:localhost", REFUSAL)
    )
    (plays,) = listed(run, MISSPELT, "deploy").values()
    assert {hosts for hosts, name in plays if name == REFUSAL} == {"all:!all"}


def test_a_deploy_and_a_restore_need_no_groups_of_parts_that_there_are_not(run):
    found = listed(run, {"brokers": {"hosts": {"h1": {}}}}, "deploy", "restore", "apply", "plan")
    refused = [
        name
        for name, plays in found.items()
        for hosts, play in plays
        if play == REFUSAL and hosts != "all:!all"
    ]
    assert refused == []
    assert all(REFUSAL in {play for _, play in plays} for plays in found.values())


@pytest.mark.parametrize(("playbook", "limit"), [("restart", ["--limit=h1"]), ("decommission", [])])
def test_a_run_for_a_group_that_is_misspelt_fails_and_names_it(run, tmp_path, playbook, limit):
    status, said = run(MISSPELT, f"playbooks/{playbook}.yml", *limit)
    assert status != 0
    words = "The inventory has no host in the group brokers: is it broker?"
    assert f"{words} It was read from {tmp_path}/hosts.json. Nothing was done." in said


WRONG = {"h1": {"broker_kafka_port": "abc"}, "h2": {"brokers_per_host": None, "zookeeper_heap_mb": [1]}}
MISTYPED = {
    "all": {"vars": {"ansible_connection": "local", "ansible_become": False}},
    "brokers": {"hosts": WRONG},
    "zookeeper": {"hosts": {"h1": {}}},
    "spark_master": {"hosts": {"h1": {}}},
    "prometheus": {"hosts": {"h1": {}}},
}


@pytest.mark.parametrize("playbook", ["restart", "replace"])
def test_variables_of_the_wrong_type_end_a_run_before_any_host_is_asked(run, playbook):
    status, said = run(MISTYPED, f"playbooks/{playbook}.yml")
    assert status != 0
    table = (
        "2 faults; nothing was changed on any host: check hosts what is wrong "
        "settings h1 broker_kafka_port is 'abc': it has to be a whole number "
        "settings h2 brokers_per_host is empty: it has to be a whole number. Give it a value, or take the line out "
        "Mend them and run this again."
    )
    assert table in said
    assert re.findall(r"TASK \[(.*?)\]", said) == [
        "landline.cluster.preflight : Refuse to change anything with variables of the wrong type"
    ]


def test_variables_of_the_wrong_type_that_a_host_may_have_end_no_run(run):
    may = {name: {**told, "preflight_allow": ["settings"]} for name, told in WRONG.items()}
    _status, said = run({**MISTYPED, "brokers": {"hosts": may}}, "playbooks/rebalance.yml", "--tags=none")
    assert "of the wrong type" in said
    assert "nothing was changed on any host" not in said


def test_a_run_of_hosts_whose_types_are_right_says_nothing_of_them(run):
    status, said = run({"brokers": {"hosts": {"h1": {}}}}, "playbooks/inventory.yml")
    assert status == 0
    assert "TASK [" not in said


@pytest.mark.parametrize(("playbook", "limit"), [("rebalance", []), ("deploy", ["--limit=h1"])])
def test_a_run_with_an_inventory_that_is_not_there_fails_and_names_it(run, tmp_path, playbook, limit):
    status, said = run(None, f"playbooks/{playbook}.yml", *limit)
    assert status != 0
    assert (
        f"The inventory has no hosts. It was read from {tmp_path}/hosts.json, which is not there. Nothing was done."
        in said
    )


def test_make_refuses_an_inventory_that_is_not_there(tmp_path):
    def topics(inventory):
        argv = ["make", "--dry-run", "topics", f"INVENTORY={inventory}"]
        return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)

    missing = topics(tmp_path / "hosts.yml")
    assert missing.returncode != 0
    assert f"INVENTORY is {tmp_path}/hosts.yml, which is not there" in missing.stderr
    (tmp_path / "hosts.yml").write_text("")
    for each in (tmp_path / "hosts.yml", tmp_path, "kafka-a,kafka-b"):
        assert topics(each).returncode == 0
