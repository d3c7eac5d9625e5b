"""The role spark's settings: what becomes of its variables, and which are refused before anything is touched."""

import pytest
import yaml
from jinja2 import Environment, FileSystemLoader

from tests.support.deploy_code import ROOT, load
from tests.support.unit_exposure import asks_systemd, judged

ROLE = ROOT / "roles/spark"
filters = load("plugins/filter/spark.py")
SECRET = "sesame-open-the-door"
MOST_EXPOSED = 40  # in tenths


def settings(**changes):
    known = {"defaults": {}, "event_log_dir": "", "event_log_max_age": "7d", "history_port": 18080}
    masters = {"masters": ["h1"], "recovery_mode": "NONE", "zookeeper": "", "zookeeper_dir": "/spark"}
    return {**known, **masters, "secret": "", "workers_per_host": 1, **changes}


def test_a_secret_is_asked_for_and_everything_is_encrypted():
    found = filters.spark_properties(settings(secret=SECRET))
    assert found["spark.authenticate"] == found["spark.network.crypto.enabled"] == "true"
    assert found["spark.authenticate.secret"] == SECRET
    assert "spark.authenticate" not in filters.spark_properties(settings())


def test_a_port_without_authentication_is_closed_with_and_without_a_secret():
    for secret in ("", SECRET):
        assert filters.spark_properties(settings(secret=secret))["spark.master.rest.enabled"] == "false"


def test_event_logs_go_where_the_history_server_reads_them():
    found = filters.spark_properties(settings(event_log_dir="/srv/all/spark-events"))
    assert (
        found["spark.eventLog.dir"]
        == found["spark.history.fs.logDirectory"]
        == "file:///srv/all/spark-events"
    )
    assert (
        filters.spark_properties(settings(event_log_dir="hdfs://n/e"))["spark.eventLog.dir"] == "hdfs://n/e"
    )
    assert not any("eventLog" in key for key in filters.spark_properties(settings()))


def test_masters_keep_their_state_in_zookeeper():
    found = filters.spark_properties(settings(recovery_mode="ZOOKEEPER", zookeeper="a:2181,b:2181"))
    assert found["spark.deploy.recoveryMode"] == "ZOOKEEPER"
    assert found["spark.deploy.zookeeper.url"] == "a:2181,b:2181"


def test_lines_of_ones_own_take_precedence_and_are_spelled_as_spark_reads_them():
    own = {"spark.decommission.enabled": False, "spark.executor.cores": 2}
    found = filters.spark_properties(settings(defaults=own))
    assert (found["spark.decommission.enabled"], found["spark.executor.cores"]) == ("false", "2")
    assert filters.spark_property("a\\b\nc") == "a\\\\b\\nc"


def test_a_version_is_what_pyspark_says_of_itself():
    assert filters.spark_version("# Licensed\n__version__: str = '4.0.0'\n") == "4.0.0"
    assert filters.spark_version('__version__ = "3.5.1"') == "3.5.1"
    assert filters.spark_version("tar: No such file") == ""


def test_masters_are_found_by_the_address_that_the_other_hosts_use():
    hosts = [
        {"inventory_hostname": "h1", "ansible_host": "192.0.2.1", "spark_address": "fd00::1"},
        {"inventory_hostname": "h2"},
    ]
    assert filters.spark_url(filters.spark_addresses(hosts), 7077) == "spark://[fd00::1]:7077,h2:7077"


@pytest.mark.parametrize(
    ("address", "given"), [("192.0.2.1", "192.0.2.1"), ("fd00::1", "[fd00::1]"), ("[fd00::1]", "[fd00::1]")]
)
def test_a_daemon_is_given_its_address_of_ipv6_in_brackets(address, given):
    assert filters.FilterModule().filters()["spark_host"](address) == given


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"masters": []}, "The group spark_master has no host"),
        ({"secret": "short"}, "at least 16 printable characters"),
        ({"secret": f"{SECRET}\n"}, "at least 16 printable characters"),
        ({"defaults": {"spark.authenticate.secret": SECRET}}, "set spark_auth_secret"),
        ({"defaults": {"executor.memory": "1g"}}, "'executor.memory', which is no key of Spark's"),
        ({"masters": ["h1", "h2"]}, "NONE with 2 masters"),
        ({"recovery_mode": "ZOOKEEPER"}, "the group zookeeper has no host"),
        ({"workers_per_host": 0}, "spark_workers_per_host is 0"),
        ({"event_log_dir": "events"}, "give a path from /"),
    ],
)
def test_settings_that_cannot_work_are_refused_without_telling_the_secret(changes, words):
    (problem,) = filters.spark_problems(settings(**changes))
    assert words in problem
    assert SECRET not in problem
    assert filters.spark_problems(settings()) == []


def unit(name, directory):
    """A unit of the role, with the role's own directories."""
    variables = yaml.safe_load((ROLE / "defaults/main.yml").read_text())
    variables |= {
        "item": {"name": name},
        "spark_unit_environment": "A=b",
        "spark_master_url": "spark://h1:7077",
    }
    templates = Environment(loader=FileSystemLoader(ROLE / "templates"), autoescape=False, trim_blocks=True)
    # /bin/bash is on every machine, Spark is not: systemd looks at the program's path alone
    path = directory / name.replace("@", "@1")
    path.write_text(templates.get_template(f"{name.replace('@', '')}.j2").render(variables))
    return path


@asks_systemd
@pytest.mark.parametrize("name", ["master", "worker", "worker@", "history"])
def test_a_unit_is_exposed_less_than_4(name, tmp_path):
    path = unit(f"landline-spark-{name}.service", tmp_path)
    done = judged(path, MOST_EXPOSED)
    assert done.returncode == 0, done.stdout[-300:] + done.stderr
    assert "Overall exposure level" in done.stdout
    text = path.read_text()
    path.write_text(text.replace("ProtectSystem=strict\n", "").partition("NoNewPrivileges")[0])
    assert judged(path, MOST_EXPOSED).returncode != 0


def test_each_worker_of_a_host_has_a_port_and_a_directory_of_its_own(tmp_path):
    text = unit("landline-spark-worker@.service", tmp_path).read_text()
    assert "--webui-port $((8081 + %i - 1))" in text
    assert "--work-dir /var/lib/spark/work-%i" in text
