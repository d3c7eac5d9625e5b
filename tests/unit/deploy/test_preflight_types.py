"""A variable of the wrong type is told by its name, of the host that has it, and hides nothing else.

The preflight runs on this machine as a dry run; its hosts are all this machine.
"""

import json
import re
import sys

import pytest

from tests.support.deploy_code import load
from tests.support.plays import played

types = load("plugins/module_utils/preflight_types.py")

KEPT = "1 releases are kept (at least 2)"


@pytest.fixture
def table(tmp_path):
    """Runs a preflight of four hosts with these variables; returns the faults as check, hosts and words."""

    def run(**wrong):
        (tmp_path / "release.json").write_text(json.dumps({"release": "0.1.0-abc", "archive": "none.tar"}))
        here = {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            "ansible_become": False,
            "common_python": sys.executable,
            "common_config_dir": str(tmp_path / "etc"),
            "broker_dist_dir": str(tmp_path),
        }
        hosts = {
            f"h{k}": {
                **here,
                "ansible_host": f"127.0.0.{k}",
                "broker_first_id": 10 * k,
                **wrong.get(f"h{k}", {}),
            }
            for k in (1, 2, 3, 4)
        }
        members = {name: {} for name in ("h1", "h3", "h4")}
        inventory = {"brokers": {"hosts": hosts}, "zookeeper": {"hosts": members}}
        (tmp_path / "hosts.json").write_text(json.dumps(inventory))
        done = played(tmp_path, "--check", f"--inventory={tmp_path}/hosts.json", "playbooks/preflight.yml")
        assert done.returncode != 0
        told = re.search(
            r"^\[ERROR\]: .*?nothing was changed on any host:$(.*?)^Mend them",
            done.stdout,
            re.MULTILINE | re.DOTALL,
        )
        lines = re.findall(r"^(settings|ids|clock) +(h[\dh, ]*?) {2,}(.*)$", told[1], re.MULTILINE)
        return sorted(lines, key=lambda line: line[1:])

    return run


def test_a_value_of_the_wrong_type_is_told_of_the_host_that_has_it_and_no_other(table):
    found = table(
        h1={"broker_rack": "{{ landline_nobody_set_this }}"},
        h2={"broker_first_id": "abc"},
        h3={"brokers_per_host": "two", "zookeeper_id": "x"},
        h4={"broker_properties": None, "preflight_clock_s": "soon"},
    )
    assert [each for each in found if each[0] != "clock"] == [
        ("settings", "h2", "broker_first_id is 'abc': it has to be a whole number"),
        ("settings", "h3", "brokers_per_host is 'two': it has to be a whole number"),
        ("settings", "h3", "zookeeper_id is 'x': it has to be a whole number"),
        (
            "settings",
            "h4",
            "broker_properties is empty: it has to be keys with values. Give it a value, or take the line out",
        ),
        ("settings", "h4", "preflight_clock_s is 'soon': it has to be a number"),
    ]


def test_what_a_role_refuses_on_another_host_is_told_with_it(table):
    first, second = table(h2={"broker_properties": None}, h3={"broker_keep_releases": 1})
    assert first[1] == "h2"
    assert second[1] == "h3"
    assert KEPT in second[2]


def test_a_variable_that_nobody_set_is_told_as_before(table):
    ((check, hosts, what),) = table(h1={"broker_rack": "{{ landline_nobody_set_this }}"})
    assert (check, hosts) == ("settings", "h1")
    assert "'landline_nobody_set_this' is undefined" in what


def words(value, **option):
    return list(types.mistyped("it", value, option))


@pytest.mark.parametrize(
    ("value", "option"),
    [
        (3, {"type": "int"}),
        ("3", {"type": "int"}),
        ("yes", {"type": "bool"}),
        (2, {"type": "str"}),
        (None, {"type": "str"}),
        ("0.5", {"type": "float"}),
        ([], {"type": "list", "elements": "dict"}),
        ({}, {"type": "dict"}),
        ([1], {"type": "raw"}),
        (None, {"type": "raw"}),
        ("a", {"type": "str", "choices": ["a", "b"]}),
        ([{"name": "t"}], {"type": "list", "elements": "dict", "options": {"name": {"type": "str"}}}),
    ],
)
def test_a_value_of_the_right_type_has_nothing_wrong(value, option):
    assert words(value, **option) == []


@pytest.mark.parametrize(
    ("value", "option", "wrong"),
    [
        ("a", {"type": "int"}, "it is 'a': it has to be a whole number"),
        (1.5, {"type": "int"}, "it is 1.5: it has to be a whole number"),
        ("perhaps", {"type": "bool"}, "it is 'perhaps': it has to be true or false"),
        ("a,b", {"type": "list"}, "it is 'a,b': it has to be a list"),
        ("a=b", {"type": "dict"}, "it is 'a=b': it has to be keys with values"),
        (["a"], {"type": "path"}, "it is a list: it has to be a path"),
        ({"a": "hidden"}, {"type": "str"}, "it is keys with values: it has to be a text"),
        ("hidden", {"type": "list", "no_log": True}, "it is something else: it has to be a list"),
        ("c", {"type": "str", "choices": ["a", "b"]}, "value of it must be one of: a, b, got: c"),
    ],
)
def test_what_is_wrong_with_a_value_is_said_without_what_may_be_secret(value, option, wrong):
    assert words(value, **option) == [wrong]


def test_of_a_list_what_is_wrong_with_an_element_is_said():
    option = {"type": "list", "elements": "dict", "options": {"name": {"type": "str", "required": True}}}
    assert words([{}], **option) == ["missing required arguments: name found in it"]


def test_a_variable_of_the_inventory_has_the_type_of_the_roles_that_it_stands_for():
    options = {"broker_count": {"type": "int"}, "broker_rack": {"type": "str"}}
    defaults = {
        "broker_count": "{{ brokers_per_host | default(1) }}",
        "broker_rack": "{{ inventory_hostname }}",
    }
    assert types.options_with_aliases(options, defaults) == {"brokers_per_host": {"type": "int"}, **options}
