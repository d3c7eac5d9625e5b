"""No diff, and no -vvv, shows what an operator may have as a secret: neither what a file is to have nor what it had.

Which variables are an operator's own keys and values, the roles' argument specs say: those of type dict, and lists of
dicts.
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

ROLES = sorted(path.parents[1] for path in (ROOT / "roles").glob("*/meta/argument_specs.yml"))
WRITES = ("ansible.builtin.template", "ansible.builtin.copy")
HARMLESS = {
    ("common", "journald.conf.j2"): "journald has no setting that is a secret",
}


def free_form(role):
    """The role's variables that hold an operator's own keys and values, and the role's that are made of them."""
    specs = yaml.safe_load((role / "meta/argument_specs.yml").read_text())["argument_specs"]
    options = {name: option for spec in specs.values() for name, option in spec.get("options", {}).items()}
    found = {name for name, each in options.items() if "dict" in (each.get("type"), each.get("elements"))}
    made = {}
    for path in (role / "vars/main.yml", role / "defaults/main.yml"):
        made |= (yaml.safe_load(path.read_text()) or {}) if path.exists() else {}
    while more := {name for name, value in made.items() if mentions(json.dumps(value), found)} - found:
        found |= more
    return found


def mentions(text, names):
    return bool(names & set(re.findall(r"\w+", text)))


def tasks_of(node):
    for each in node or []:
        yield each
        for key in ("block", "rescue", "always"):
            yield from tasks_of(each.get(key))


def written(role):
    """What the role writes of free-form variables: each as the file's template or destination, and the task."""
    names = free_form(role)
    for path in sorted((role / "tasks").glob("*.yml")):
        for task in tasks_of(yaml.safe_load(path.read_text())):
            for module in WRITES:
                if module not in task:
                    continue
                templates = re.findall(r"[\w@.-]+\.j2", json.dumps(task))
                texts = {each: (role / "templates" / each).read_text() for each in templates
                         if (role / "templates" / each).exists()}  # fmt: skip
                texts[str(task[module]["dest"])] = str(task[module].get("content", ""))
                yield from ((name, task) for name, text in texts.items() if mentions(text, names))


@pytest.mark.parametrize("role", ROLES, ids=lambda path: path.name)
def test_what_is_written_of_an_operators_own_keys_and_values_is_kept_out_of_diffs(role):
    shown = {name for name, task in written(role) if "diff" not in task}
    assert {name for name in shown if (role.name, name) not in HARMLESS} == set()


def test_the_files_that_may_have_secrets_are_found():
    """Otherwise the test before proves nothing."""
    found = {(role.name, name) for role in ROLES for name, _task in written(role)}
    assert found >= {
        ("broker", "broker.env.j2"),
        ("zookeeper", "zoo.cfg.j2"),
        ("spark", "spark-env.sh.j2"),
        ("spark", "spark-defaults.conf.j2"),
        ("prometheus", "prometheus.yml.j2"),
    }
    assert found >= set(HARMLESS)


@pytest.mark.parametrize(
    ("role", "template", "group"),
    [("zookeeper", "zoo.cfg.j2", "zookeeper"), ("prometheus", "prometheus.yml.j2", "prometheus")],
)
def test_only_the_service_that_uses_it_can_read_a_file_that_may_have_secrets(role, template, group):
    ((_name, task),) = [each for each in written(ROOT / "roles" / role) if each[0] == template]
    places = [each for each in task.get("loop", []) if each["src"] == template] or [task[WRITES[0]]]
    assert [(each["group"], each["mode"]) for each in places] == [(group, "0640")]


def run(directory, play, *options):
    (directory / "play.yml").write_text(yaml.safe_dump([play]))
    program = Path(sys.executable).with_name("ansible-playbook")
    return subprocess.run(
        [program, "-i", "localhost,", *options, directory / "play.yml"],
        cwd=ROOT,
        env={**os.environ, "ANSIBLE_HOME": str(directory / "ansible")},
        capture_output=True,
        text=True,
        check=False,
    )


def properties_tasks():
    """The tasks of the role that write the brokers' properties."""
    tasks = list(tasks_of(yaml.safe_load((ROOT / "roles/broker/tasks/configure.yml").read_text())))
    return [each for each in tasks if each["name"].endswith(("that are to go", "the brokers' properties"))]


@pytest.mark.parametrize(
    ("before", "after", "is_shown"),
    [
        ({"num.partitions": "1"}, {"num.partitions": "2"}, True),
        ({"num.partitions": "1"}, {"ssl.key.password": "hidden-1"}, False),
        ({"ssl.key.password": "hidden-2"}, {"num.partitions": "2"}, False),
    ],
)
def test_a_brokers_properties_are_shown_unless_they_have_or_had_a_password(tmp_path, before, after, is_shown):
    config = tmp_path / "broker-1.properties"
    config.write_text("".join(f"{key}={value}\n" for key, value in before.items()))
    instance = load("plugins/filter/landline.py")
    secret = any(instance._SECRET.search(key) for key in after)
    tasks = properties_tasks()
    assert len(tasks) == 2
    tasks[1]["ansible.builtin.template"] |= {
        "src": str(ROOT / "roles/broker/templates/broker.properties.j2"),
        "owner": os.getuid(),
        "group": os.getgid(),
    }
    brokers = [{"config": str(config), "properties": after, "has_secrets": secret}]
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars": {"broker_to_configure": brokers, "ansible_become": False, "ansible_managed": "ours"},
        "tasks": tasks,
    }
    done = run(tmp_path, play, "--diff")
    assert done.returncode == 0, done.stdout + done.stderr
    assert next(iter(after)) in config.read_text()
    assert ("+num.partitions=2" in done.stdout) is is_shown
    assert "hidden-" not in done.stdout + done.stderr


def test_both_looks_for_passwords_go_by_the_same_words():
    (look, _write) = properties_tasks()
    words = load("plugins/filter/landline.py")._SECRET.pattern
    assert look["vars"]["broker_secret_lines"] == f"^[^#=]*({words})"


def test_no_module_that_gets_a_files_content_writes_it_to_the_journal():
    """AnsibleModule logs its arguments on the host; the journal may be shipped to a topic."""
    for role in ROLES:
        tasks = "".join(path.read_text() for path in (role / "tasks").glob("*.yml"))
        if "lookup('ansible.builtin.template'" in tasks:
            told = yaml.safe_load((role / "vars/main.yml").read_text())
            assert told.get("ansible_no_target_syslog") is True, role.name


# Their arguments that get properties are no_log, which hides no more than the whole text.
TOLD_IN_CONFIDENCE = {
    "landline.cluster.attended_command": "stdin",
    "landline.cluster.planned_files_info": "files",
    "landline.cluster.broker_instances_info": "properties",
}


@pytest.mark.parametrize("module", TOLD_IN_CONFIDENCE)
def test_verbose_output_shows_no_properties_that_a_module_gets(tmp_path, module):
    text = "ssl.key.password=hidden-3\nnum.partitions=1\n"
    properties = {"landline-broker@1.service": {"ssl.key.password": "hidden-3", "num.partitions": "1"}}
    arguments = {
        "stdin": {"argv": ["wc", "-l"], "stdin": text},
        "files": {"unit": "u", "fingerprint": "f", "salt": "s", "files": [{"path": "/x", "content": text}]},
        "properties": {
            "properties": json.dumps(properties),
            "brokers": [],
            "config_dir": "/x",
            "release_done": "/x",
        },
    }[TOLD_IN_CONFIDENCE[module]]
    # Whether it fails, as without systemd, or not: what it got is shown.
    task = {"name": "Tell", module: arguments, "register": "told", "failed_when": False}
    play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": [task]}
    done = run(tmp_path, play, "-vvv")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "VALUE_SPECIFIED_IN_NO_LOG_PARAMETER" in done.stdout
    assert "hidden-3" not in done.stdout + done.stderr


def broker_tasks():
    for path in sorted((ROOT / "roles/broker/tasks").glob("*.yml")):
        yield from ((path.name, task) for task in tasks_of(yaml.safe_load(path.read_text())))


def test_only_modules_that_keep_them_to_themselves_get_properties():
    getting = [(name, task) for name, task in broker_tasks() if "broker.properties.j2')" in json.dumps(task)]
    assert len(getting) > 4
    for name, task in getting:
        assert "block" in task or set(TOLD_IN_CONFIDENCE) & set(task), (name, task["name"])
    modules = [
        (name, task, key, task[key]["brokers"])
        for name, task in broker_tasks()
        for key in task
        if isinstance(task[key], dict) and "brokers" in task[key] and key.startswith("landline.")
    ]
    assert len(modules) > 4
    for name, task, _, brokers in modules:
        assert "broker_without_properties" in brokers, (name, task["name"])


def test_no_fact_that_has_properties_is_shown():
    facts = [
        (name, task)
        for name, task in broker_tasks()
        if "broker_all" in task.get("ansible.builtin.set_fact", {})
    ]
    assert [(name, task["no_log"]) for name, task in facts] == [("inspect.yml", True)]
