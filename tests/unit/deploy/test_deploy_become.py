"""Roles become root in their own tasks, so that they work in anybody's play, and never on the control node."""

import yaml

from tests.support.deploy_code import ROOT, tasks_of
from tools import task_become

TASKS = """\
---
- name: Look
  ansible.builtin.stat:
    path: /etc/landline

- name: >-
    A name of
    two lines
  broker_health:
    brokers: []

- name: Both
  block:
    - name: Write
      ansible.builtin.copy:
        dest: /etc/x
      vars:
        become: no keyword here
  rescue:
    - name: Say why
      ansible.builtin.fail:

- name: Here
  ansible.builtin.tempfile:
  delegate_to: localhost

- name: As somebody else
  ansible.builtin.command: id
  become: false
"""


def test_every_task_of_the_roles_that_acts_on_a_host_becomes_root():
    wrong = {path.name: task_become.lacking(path.read_text()) for path in task_become.files()}
    assert {name: found for name, found in wrong.items() if found} == {}
    assert sum("become: true\n" in path.read_text() for path in task_become.files()) > 40


def test_a_task_that_lacks_it_gets_it_after_its_name_and_nothing_else_changes():
    amended = task_become.amended(TASKS)
    assert [name for name, _, _ in task_become.lacking(TASKS)] == ["Look", "A name of two lines", "Write"]
    assert task_become.lacking(amended) == []
    assert "".join(line for line in amended.splitlines(True) if line.strip() != "become: true") == TASKS
    assert "    two lines\n  become: true\n  broker_health:" in amended
    assert "    - name: Write\n      become: true\n      ansible.builtin.copy:" in amended


def test_a_file_without_tasks_is_left_as_it_is():
    assert task_become.amended("---\n") == "---\n"


def test_nothing_becomes_root_on_the_control_node_though_the_inventory_says_so_of_all():
    """ansible_become of the group all is the control node's as well, and a variable comes before `become: false`."""
    files = [*ROOT.glob("playbooks/*.yml"), *ROOT.glob("roles/*/tasks/*.yml")]
    here = [
        task
        for path in files
        for task in tasks_of(yaml.safe_load(path.read_text()))
        if task.get("delegate_to") == "localhost" or task.get("hosts") == "localhost"
    ]
    assert len(here) > 10
    wrong = [each["name"] for each in here if each.get("vars", {}).get("ansible_become") is not False]
    assert not wrong
