"""Which looks a run of a part makes: no tag leaves out what refuses, where it leaves in what that is for."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.deploy_code import ROOT, tasks_of

PLAY = re.compile(r"^  play #\d+ \((?P<hosts>.*)\): (?P<name>.*?)\tTAGS: \[(?P<tags>.*)\]$")
TASK = re.compile(r"^      (?:landline\.cluster\.(?P<role>\w+) : )?(?P<name>.*?)\tTAGS: \[(?P<tags>.*)\]$")
REFUSES = {"ansible.builtin.assert", "ansible.builtin.fail"}
# What changes hosts, by the tags that take it alone. The journal shipper touches no broker.
PARTS = {
    "broker": {"broker_install", "broker_configure", "broker_service"},
    "common": {"common_install", "common_configure"},
    "prometheus": {"prometheus_install", "prometheus_configure", "prometheus_service"},
    "spark": {"spark_install", "spark_configure", "spark_ssh"},
    "zookeeper": {"zookeeper_install"},
}
# Those that refuse nothing before it is changed, or what one part alone changes.
ELSEWHERE = {
    "Fail with the journal's tail": "a broker did not start",
    "Read the journal": "a server did not start",
    "Stop where a host has failed": "before a roll, which no part has",
    "Refuse what would part a server from its data": "before the ensemble's steps, which no part has",
    "Refuse to end the whole ensemble": "before the ensemble's steps, which no part has",
    "Refuse to run a server without its disk": "before the ensemble's steps, which no part has",
    "Tell which brokers were refused, and why": "after a roll",
}


def listed(playbook):
    """The tasks of a run, each as role or "", name, tags; without what is included as it runs, and rescues."""
    done = subprocess.run(
        [
            Path(sys.executable).with_name("ansible-playbook"),
            f"--inventory={ROOT}/inventory/sample/hosts.yml",
            "--list-tasks",
            ROOT / playbook,
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    found = filter(None, map(TASK.match, done.stdout.splitlines()))
    return [(each["role"] or "", each["name"], set(each["tags"].split(", "))) for each in found]


def those_that_refuse():
    files = [*ROOT.glob("playbooks/*.yml"), *ROOT.glob("roles/*/tasks/*.yml")]
    return {
        task["name"]
        for path in files
        for task in tasks_of(yaml.safe_load(path.read_text()))
        if REFUSES & task.keys()
    }


@pytest.fixture(scope="module")
def tasks():
    return listed("deploy.yml")


def test_whatever_refuses_has_the_tags_of_all_that_it_is_for(tasks):
    refusing = those_that_refuse() - ELSEWHERE.keys()
    lacking = {
        (role, name): missing
        for role, name, tags in tasks
        if role in PARTS and name in refusing and (missing := PARTS[role] - tags)
    }
    assert lacking == {}
    assert len({name for _, name, _ in tasks} & refusing) > 10


@pytest.mark.parametrize(
    "name",
    [
        "Ask ZooKeeper's servers",
        "Look at ZooKeeper's servers",
        "See that no listener goes by which brokers speak",
        "Look at the brokers' listeners",
        "Settle by which they speak to each other",
    ],
)
def test_a_part_of_a_deployment_of_brokers_looks_as_the_whole_does(tasks, name):
    found = [tags for _, each, tags in tasks if each == name]
    assert found[0] >= PARTS["broker"]


def test_whoever_starts_brokers_sees_whether_the_others_reach_them(tasks):
    (tags,) = (
        tags
        for _, name, tags in tasks
        if name == "See that brokers that were started are reached by the others"
    )
    assert "broker_service" in tags


def test_the_playbook_of_brokers_alone_looks_before_it_changes_anything():
    names = [name for _, name, tags in listed("playbooks/broker.yml") if tags & PARTS["broker"]]
    assert names.index("Look at ZooKeeper's servers") < names.index(
        "Settle by which they speak to each other"
    )
    assert names.index("Settle by which they speak to each other") < names.index("Write the brokers' units")


def test_a_deployment_of_something_else_does_not_look_at_brokers(tasks):
    assert [name for role, name, tags in tasks if role == "broker" and {"zookeeper", "spark"} & tags] == []
