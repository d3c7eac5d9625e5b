"""What playbooks/migrate.yml takes over from a server.properties, and what it refuses by its name."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.deploy_code import ROOT, load, tasks_of

migrate = load("plugins/filter/migrate.py")
reader = load("plugins/module_utils/kafka_properties.py")
info = load("plugins/modules/kafka_server_info.py")

AT = "/opt/kafka/config/server.properties"
ZOOKEEPER = "192.0.2.1:2181/kafka"


def kafka(properties=None, metas=None, **more):
    """A broker as kafka_server_info sees it; a property that is None is not in its file."""
    found = {"broker.id": "7", "zookeeper.connect": ZOOKEEPER, "log.dirs": "/data/a", **(properties or {})}
    kept = {key: value for key, value in found.items() if value is not None}
    dirs = info.log_dirs_in(kept)
    meta = {"version": "0", "broker.id": "7", "cluster.id": "c1"}
    told = dict.fromkeys(dirs, meta) if metas is None else metas
    state = {"active": True, "enabled": True, "serving": False, "switched": False, "wrong": "", "config": AT}
    return {**state, "properties": kept, "log_dirs": dirs, "metas": told, **more}


def variables(properties=None, registered=None, **more):
    return migrate.migrated_variables(kafka(properties, **more), registered)


def test_a_properties_file_is_read_as_java_reads_it():
    text = "# a = b\n! c\n\n a=1\nb : two words \n c\\:d 3\ne = f\\\n   g\\\\\nh\na= 2\ni=\\u0041\\tB\n"
    assert reader.parse_properties(text) == {
        "a": "2",
        "b": "two words ",
        "c:d": "3",
        "e": "fg\\",
        "h": "",
        "i": "A\tB",
    }


def test_every_key_is_carried_and_what_the_role_would_add_keeps_kafkas_default():
    found = variables({"num.io.threads": "4", "min.insync.replicas": "2", "broker.rack": "r1"})
    assert (found["broker_first_id"], found["broker_zookeeper_connect"]) == (7, ZOOKEEPER)
    properties = found["broker_properties"]
    assert properties["num.io.threads"] == "4"
    assert (properties["min.insync.replicas"], properties["broker.rack"]) == ("2", "r1")
    assert properties["default.replication.factor"] is None
    assert properties["landline.eligible.leader.replicas.enable"] is None
    assert "broker.id" not in properties


def test_the_keys_that_the_role_adds_are_all_known():
    """One that is new in roles/broker/vars must be here, or migrated brokers get it unasked."""
    role = yaml.safe_load((ROOT / "roles/broker/vars/main.yml").read_text())["broker_base_properties"]
    assert set(role) <= {*migrate.ROLES_OWN, "zookeeper.connect"}


def test_clients_are_told_to_come_where_they_were_told_before():
    assert variables({"listeners": "PLAINTEXT://:9092"}, {"7": {"endpoints": ["PLAINTEXT://k7:9092"]}})[
        "broker_properties"
    ]["advertised.listeners"] == ("PLAINTEXT://k7:9092")
    by_file = {"listeners": "PLAINTEXT://:9092", "advertised.listeners": "PLAINTEXT://k7.example:9092"}
    assert (
        variables(by_file, {})["broker_properties"]["advertised.listeners"] == "PLAINTEXT://k7.example:9092"
    )


def test_the_clients_of_the_hosts_get_the_port_of_the_plaintext_listener():
    ports = [
        variables({"listeners": each})["broker_kafka_port"]
        for each in ("SSL://:9093,PLAINTEXT://:19092", "PLAINTEXT://h:9192", "SSL://:9093")
    ]
    assert ports == [19092, 9192, 9092]


def test_an_id_that_only_the_data_says_is_taken_from_there():
    assert variables({"broker.id": None})["broker_first_id"] == 7


def test_a_broker_of_zookeeper_mode_with_its_data_in_place_has_no_doubts():
    assert migrate.migration_doubts(kafka({"inter.broker.protocol.version": "3.9-IV0"})) == []


@pytest.mark.parametrize(
    ("properties", "metas", "named"),
    [
        ({"process.roles": "broker"}, None, "process.roles"),
        ({"zookeeper.connect": None}, None, "zookeeper.connect is missing"),
        ({"inter.broker.protocol.version": "3.4"}, None, "inter.broker.protocol.version=3.4"),
        ({"authorizer.class.name": "com.example.Mine"}, None, "authorizer.class.name=com.example.Mine"),
        ({"log.dirs": None}, None, "log.dirs: /tmp/kafka-logs is below /tmp"),
        ({"log.dirs": "data"}, None, "log.dirs: data is not absolute"),
        (
            {"ssl.keystore.location": "/home/k/a.p12"},
            None,
            f"{AT}: ssl.keystore.location=/home/k/a.p12 is a file of which",
        ),
        ({}, {}, "/data/a has no meta.properties"),
        ({}, {"/data/a": {"version": "1", "node.id": "7"}}, "version=1, which is KRaft's"),
        ({}, {"/data/a": {"version": "0", "broker.id": "8"}}, "broker.id=8"),
    ],
)
def test_what_does_not_fit_is_named(properties, metas, named):
    assert any(named in doubt for doubt in migrate.migration_doubts(kafka(properties, metas)))


def test_hosts_of_several_clusters_and_an_id_that_two_have_are_refused():
    other = {"/data/a": {"version": "0", "broker.id": "7", "cluster.id": "c2"}}
    hosts = [
        {"inventory_hostname": name, "broker_kafka_seen": found}
        for name, found in (("a", kafka()), ("b", kafka(metas=other)))
    ]
    assert migrate.migration_clashes(hosts[:1]) == []
    assert migrate.migration_clashes(hosts) == [
        "broker 7 is on a and b",
        "the brokers are of several clusters: c1: a; c2: b",
    ]


def test_a_host_that_runs_what_it_is_to_run_does_nothing_and_the_controller_comes_last():
    looked = {"registered": {"7": {}, "8": {}}, "controller": 7}
    was, now = kafka(), kafka(active=False, enabled=False, serving=True, switched=True)

    def does(found, to):
        return migrate.migrate_does({"broker_kafka_seen": found, "broker_quorum_looked": looked}, to)

    assert (does(was, "kafka"), does(now, "landline")) == ("nothing", "nothing")
    assert (does(was, "landline"), does(now, "kafka")) == ("controller", "controller")
    interrupted = kafka(active=False, enabled=False, serving=True)
    assert does(interrupted, "landline") == "controller"
    assert does(kafka({"broker.id": "8"}), "landline") == "others"
    assert does(kafka({"broker.id": "9"}, active=False), "landline") == "broken"


def test_the_link_by_which_a_host_counts_as_done_is_made_last():
    tasks = yaml.safe_load((ROOT / "roles/broker/tasks/migrate_one.yml").read_text())
    files = [task.get("ansible.builtin.include_tasks") for task in tasks_of(tasks)]
    assert files[-1] == "switch.yml"
    assert {"configure.yml", "clients.yml"} < set(files[:-1])


def test_the_file_is_the_last_of_the_units_command():
    shown = (
        "{ path=/opt/kafka/bin/start.sh ; argv[]=/opt/kafka/bin/start.sh -daemon /etc/k/server.properties ; }"
    )
    assert info.config_in(shown) == "/etc/k/server.properties"
    assert info.config_in("{ path=/bin/true ; argv[]=/bin/true }") == ""


@pytest.mark.parametrize("file", ["h1.yml", "h1.yaml", "h1.json", "h1"])
def test_a_file_of_the_hosts_own_variables_that_would_be_hidden_is_named(tmp_path, file):
    assert migrate.migration_hides(str(tmp_path), "h1") == []
    (tmp_path / file).write_text("{}")
    (tmp_path / "h10.yml").write_text("{}")
    (doubt,) = migrate.migration_hides(str(tmp_path), "h1")
    assert doubt.startswith(f"{tmp_path}/{file}: Ansible does not read it beside {tmp_path}/h1/, which gets ")
    if file != "h1":
        (tmp_path / "h1").mkdir()
        assert len(migrate.migration_hides(str(tmp_path), "h1")) == 1, "it is hidden already"


NO_KAFKA = """#!/bin/sh
[ "$1" = show ] || exit 0
printf '%s\\n' LoadState=not-found ActiveState=inactive UnitFileState= User= Group=root ExecStart=
"""


def ansible(directory, program, *arguments):
    (directory / "bin").mkdir(exist_ok=True)
    (directory / "bin/systemctl").write_text(NO_KAFKA)
    (directory / "bin/systemctl").chmod(0o755)
    here = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "ansible_become": False,
    }
    groups = {each: {"hosts": {"h1": here}} for each in ("brokers", "zookeeper")}
    (directory / "hosts.json").write_text(json.dumps(groups))
    done = subprocess.run(
        [Path(sys.executable).with_name(program), "-i", directory / "hosts.json", *arguments],
        cwd=ROOT,
        env={
            **os.environ,
            "PATH": f"{directory / 'bin'}:{os.environ['PATH']}",
            "ANSIBLE_HOME": str(directory / "ansible"),
            "ANSIBLE_NOCOLOR": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    print(done.stdout, done.stderr)
    return done


def test_the_playbook_names_it_before_anything_is_written(tmp_path):
    (tmp_path / "host_vars").mkdir()
    (tmp_path / "host_vars/h1.yml").write_text("mine: 1")
    chosen = ("-e", f"broker_dist_dir={ROOT}/none", "-e", "landline_version=0.4.0")
    done = ansible(tmp_path, "ansible-playbook", "playbooks/migrate.yml", "--check", *chosen)
    assert done.returncode != 0
    assert f"{tmp_path}/host_vars/h1.yml: Ansible does not read it" in re.sub(r"\s+", " ", done.stdout)
    assert not (tmp_path / "host_vars/h1").exists()


def test_a_password_that_looks_like_a_template_is_read_as_it_was_written(tmp_path):
    passwords = {
        "a": "x{#y",
        "b": "{{ lookup('pipe', 'id') }}",
        "c": "{% raw %}'\"\\",
        "d": "#jinja2: no",
        "e": "it's: {plain} ü",
    }
    found = variables({f"{key}.password": value for key, value in passwords.items()})
    text = migrate.migrated_yaml(found)
    assert "num.io.threads: '4'" in migrate.migrated_yaml(variables({"num.io.threads": "4"}))
    assert "e.password: 'it''s: {plain} ü'" in text
    (tmp_path / "host_vars/h1").mkdir(parents=True)
    (tmp_path / "host_vars/h1/migrated.yml").write_text(text)
    done = ansible(tmp_path, "ansible", "h1", "-m", "ansible.builtin.debug", "-a", "var=broker_properties")
    assert done.returncode == 0
    told = yaml.safe_load(done.stdout.partition("=>")[2])["broker_properties"]
    assert {key: told[f"{key}.password"] for key in passwords} == passwords
    assert (told["broker.rack"], told["log.dirs"]) == (None, "/data/a")
