"""The Spark launcher: what is sent to the hosts, what is made of the answers, and how an action ends."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import click
import paramiko
import pytest
from fabric.runners import Result
from invoke.exceptions import Exit
from rich.console import Console

import fabfile
from pipeline.options import JournalOptions, journal_options
from sparkctl import commands, submit
from sparkctl.commands import Role
from sparkctl.connection import connect
from sparkctl.errors import Error, NothingToDo, UsageError
from sparkctl.inventory import Host, cluster_from, read_inventory
from sparkctl.launcher import Launcher
from sparkctl.master import MasterView, fetch_view
from sparkctl.table import is_well, status_table
from tests.support.fake_spark import CLUSTER, NAMES, FakeCluster, FakeConnection, Operator, host
from tests.support.one_answer import one_answer


@pytest.fixture
def operator() -> Operator:
    return Operator()


def test_start_launches_the_master_first_and_then_every_worker(operator: Operator) -> None:
    view = operator.launcher.start()
    assert operator.started() == [("MASTER", "h1"), ("WORKER", "h1"), ("WORKER", "h2"), ("WORKER", "h3")]
    assert len(view.alive_hosts()) == 3
    assert [line.split(":")[0] for line in operator.said] == ["h1", "h1", "h2", "h3"]


def test_start_of_a_running_cluster_does_nothing(operator: Operator) -> None:
    operator.launcher.start()
    operator.cluster.actions.clear()
    with pytest.raises(NothingToDo, match="already running"):
        operator.launcher.start()
    assert operator.started() == []


def test_start_brings_back_only_what_is_missing(operator: Operator) -> None:
    operator.launcher.start()
    operator.cluster.running.discard((Role.WORKER, "h2"))
    operator.cluster.actions.clear()
    operator.launcher.start()
    assert operator.started() == [("WORKER", "h2")]


def test_start_touches_nothing_when_a_host_cannot_be_reached(operator: Operator) -> None:
    operator.cluster.unreachable.add("h3")
    with pytest.raises(Error, match=r"did not answer: h3 \(exit 255\)") as failure:
        operator.launcher.start()
    assert "No route to host" in str(failure.value)
    assert operator.started() == []


def test_start_names_the_host_whose_daemon_died_at_once(operator: Operator) -> None:
    operator.cluster.broken.add("h2")
    with pytest.raises(Error, match=r"did not start: h2 \(exit 2\)"):
        operator.launcher.start()


def test_start_fails_when_a_worker_never_registers(operator: Operator) -> None:
    operator.launcher.start()
    operator.cluster.running.discard((Role.WORKER, "h3"))
    deaf = MasterView(CLUSTER.url, "ALIVE", tuple(operator.cluster.view().workers), 0)  # type: ignore[union-attr]
    operator.launcher._fetch_view = lambda: deaf
    with pytest.raises(Error, match="after 90 s not ALIVE in the master's eyes: h3"):
        operator.launcher.start()
    assert operator.now >= 90


def test_stop_ends_the_workers_before_the_master(operator: Operator) -> None:
    operator.launcher.start()
    operator.launcher.stop()
    stops = [(role, name) for action, role, name in operator.cluster.actions if action == "stop"]
    assert stops == [("WORKER", "h1"), ("WORKER", "h2"), ("WORKER", "h3"), ("MASTER", "h1")]
    assert operator.cluster.running == set()


def test_stop_of_a_stopped_cluster_does_nothing(operator: Operator) -> None:
    with pytest.raises(NothingToDo, match="not running"):
        operator.launcher.stop()


def test_stop_stops_what_it_reaches_and_names_what_it_does_not(operator: Operator) -> None:
    operator.launcher.start()
    operator.cluster.unreachable.add("h2")
    with pytest.raises(Error, match=r"did not stop: h2 \(exit 255\)"):
        operator.launcher.stop()
    assert operator.cluster.running == {(Role.WORKER, "h2")}


def test_no_ssh_to_the_master_is_an_error_that_names_it() -> None:
    class Gone(FakeConnection):
        def run(self, command: str, **options: Any) -> Result:
            raise paramiko.ssh_exception.NoValidConnectionsError({("10.0.0.1", 22): OSError("refused")})

    launcher = Launcher(CLUSTER, Gone(FakeCluster()), lambda: None, print)
    with pytest.raises(Error, match=r"h1: no ssh to root@10\.0\.0\.1:22"):
        launcher.state()


def pushed(script: str, directory: Path, body: str) -> str:
    """What the script says in a real shell, with an ``ssh`` of this body."""
    ssh = directory / "ssh"
    ssh.write_text(f"#!/bin/bash\n{body}\n")
    ssh.chmod(0o755)
    done = subprocess.run(
        ["bash", "-c", script],
        env={"PATH": f"{directory}:/usr/bin:/bin"},
        text=True,
        capture_output=True,
        check=True,
    )
    return done.stdout


def test_push_script_brings_every_exit_code_back(tmp_path: Path) -> None:
    """The real script in a real shell, with an ``ssh`` that runs the command here."""
    wanted = ["echo one; exit 0", "echo two; echo 'it''s three' >&2; exit 7", "kill -9 $$"]
    script = commands.push_script((host(number), text) for number, text in enumerate(wanted, 1))
    said = pushed(script, tmp_path, 'while [ "$1" = -o ]; do shift 2; done\nshift\nexec bash -c "$1"')
    results = {result.host: result for result in commands.push_results(NAMES, said)}
    assert [results[name].exit_code for name in NAMES] == [0, 7, 137]
    assert results["h1"].lines == ("h1: one",)
    assert sorted(results["h2"].lines) == ["h2: its three", "h2: two"]


@pytest.mark.parametrize("stamped", [False, True])
def test_the_masters_reach_a_host_at_the_port_of_its_ssh(tmp_path: Path, *, stamped: bool) -> None:
    """The real script, with an ``ssh`` that shows its arguments."""
    away = Host("w", "10.0.0.2", "10.0.0.2", peer_port=2222)
    script = commands.push_script([(away, "true"), (host(3), "true")], stamped=stamped)
    said = pushed(script, tmp_path, 'echo "${@: -6}"')
    told = "echo @open; true" if stamped else "true"
    assert f"w: -p 2222 -o HostKeyAlias=10.0.0.2 10.0.0.2 {told}" in said.splitlines()
    assert "2222" not in "".join(line for line in said.splitlines() if line.startswith("h3: "))


@pytest.mark.parametrize(
    ("variables", "port"),
    [
        ({}, 22),
        ({"ansible_port": 2222}, 2222),
        ({"ansible_ssh_port": "2222"}, 2222),
        ({"ansible_port": 2222, "landline_address": "10.1.0.2"}, 22),
        ({"ansible_port": 2222, "landline_address": "10.1.0.2", "spark_ssh_port": 2200}, 2200),
    ],
)
def test_the_port_of_ssh_is_ansibles_where_the_address_is(variables: dict[str, Any], port: int) -> None:
    groups = {"spark_master": {"hosts": ["m"]}, "spark_workers": {"hosts": ["w"]}}
    hosts = {"w": {"ansible_host": "10.0.0.2", **variables}}
    assert cluster_from({**groups, "_meta": {"hostvars": hosts}}).workers[0].peer_port == port


def test_host_without_an_exit_code_counts_as_failed() -> None:
    (result,) = commands.push_results(["h1"], "h1: half a li")
    assert result.exit_code == 255


def test_start_command_judges_the_daemon_after_starting_it() -> None:
    text = commands.start_command(CLUSTER, Role.WORKER, host(2))
    assert text.startswith("unset SPARK_NO_DAEMONIZE; ")
    start, status = text.split("; ", 1)[1].split(" || exit; ")
    daemon = ["/opt/spark/sbin/spark-daemon.sh", "--config", "/etc/spark"]
    worker = "org.apache.spark.deploy.worker.Worker"
    assert shlex.split(start) == [
        *(
            *daemon,
            "start",
            worker,
            "1",
            "--host",
            "10.0.0.2",
            "--webui-port",
            "8081",
            "spark://10.0.0.1:7077",
        )
    ]
    assert shlex.split(status) == [*daemon, "status", worker, "1"]


@pytest.mark.parametrize(
    ("login", "prefix"),
    [
        ("root", ["runuser", "-u", "spark", "--"]),
        ("spark", []),
        ("admin", ["sudo", "-n", "-u", "spark", "--"]),
    ],
)
def test_commands_run_as_sparks_user_whoever_logs_in(login: str, prefix: list[str]) -> None:
    assert shlex.split(commands.as_spark(CLUSTER, login, "echo 'a b'")) == [
        *prefix,
        "bash",
        "-c",
        "echo 'a b'",
    ]


def inventory(**host_variables: Any) -> dict[str, Any]:
    return {
        "spark_master": {"hosts": ["h1"]},
        "spark_workers": {"hosts": ["h1", "h2"], "children": ["more"]},
        "more": {"hosts": ["h2", "h3"]},
        "_meta": {"hostvars": {"h1": {"ansible_host": "10.0.0.1", **host_variables}}},
    }


def test_inventory_gives_master_and_workers_with_their_connection() -> None:
    cluster = cluster_from(
        inventory(
            ansible_user="admin",
            ansible_port=2222,
            ansible_ssh_common_args="-F /lab/ssh_config -o UserKnownHostsFile=/lab/known -oStrictHostKeyChecking=no",
            spark_address="192.168.0.1",
            spark_master_port=7070,
        )
    )
    assert [worker.name for worker in cluster.workers] == ["h1", "h2", "h3"]
    assert cluster.url == "spark://192.168.0.1:7070"
    assert cluster.ui_urls() == ["http://192.168.0.1:8080"]
    options = "-F /lab/ssh_config -o UserKnownHostsFile=/lab/known -oStrictHostKeyChecking=no"
    login = (*options.split(), "-o", "Port=2222", "-o", "User=admin")
    assert cluster.master == Host("h1", "10.0.0.1", "192.168.0.1", login)
    assert cluster.workers[1].address == "h2"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"spark_master": {"hosts": []}}, "spark_master has no host"),
        (
            {"_meta": {"hostvars": {"h2": {"spark_workers_per_host": "{{ x }}"}}}},
            "spark_workers_per_host is '{{ x }}'",
        ),
        ({"spark_workers": {}}, "spark_workers has no host"),
        ({"_meta": {"hostvars": {"h1": {"spark_master_port": "{{ x }}"}}}}, "spark_master_port is '{{ x }}'"),
    ],
)
def test_inventory_that_makes_no_cluster_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        cluster_from(inventory() | change)


def test_jobs_know_the_inventorys_brokers_and_its_shared_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    listing = inventory(spark_shared_dir="/srv/all", broker_kafka_port=9192)
    listing["brokers"] = {"hosts": ["h1", "h2"]}
    listing["_meta"]["hostvars"]["h2"] = {"ansible_host": "10.0.0.2", "brokers_per_host": 2}
    known = fabfile._known_to_jobs(cluster_from(listing), listing)
    assert known == {
        "LANDLINE_BOOTSTRAP_SERVERS": "10.0.0.1:9192,10.0.0.2:9092",
        "LANDLINE_SHARED_DIR": "/srv/all",
    }
    for name, value in known.items():
        monkeypatch.setenv(name, value)
    seen: list[JournalOptions] = []
    click.command()(journal_options(seen.append)).main([], standalone_mode=False)
    assert seen[0].bootstrap_servers == known["LANDLINE_BOOTSTRAP_SERVERS"]
    assert (seen[0].output, seen[0].checkpoint) == (
        "file:///srv/all/journal_stream/records",
        "file:///srv/all/journal_stream/checkpoint",
    )


def test_what_the_inventory_leaves_to_an_expression_is_not_told_to_jobs() -> None:
    listing = inventory(spark_shared_dir="{{ nfs }}")
    listing["brokers"] = {"hosts": ["h1"]}
    listing["_meta"]["hostvars"]["h1"]["brokers_per_host"] = "{{ cores }}"
    assert fabfile._known_to_jobs(cluster_from(listing), listing) == {}


def test_a_variable_of_ones_own_goes_before_the_inventory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANDLINE_BOOTSTRAP_SERVERS", "mine:9092")
    told = submit.environment(Path("/root"), {"LANDLINE_BOOTSTRAP_SERVERS": "theirs:9092"})
    assert told["LANDLINE_BOOTSTRAP_SERVERS"] == "mine:9092"


def test_inventory_is_read_as_ansible_reads_it(tmp_path: Path) -> None:
    source = tmp_path / "hosts.yml"
    groups = {"spark_master": {"hosts": {"h1": None}}, "spark_workers": {"hosts": {"h1": None, "h2": None}}}
    source.write_text(json.dumps(groups))
    assert [worker.name for worker in read_inventory(str(source)).workers] == ["h1", "h2"]


def test_an_inventory_that_nobody_can_read_is_refused_with_the_reason(tmp_path: Path) -> None:
    """Ansible goes on without any host."""
    source = tmp_path / "hosts.yml"
    source.write_text("x: [")
    with pytest.raises(UsageError, match=r"cannot be read:[\s\S]*hosts\.yml"):
        read_inventory(str(source))


def test_missing_inventory_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANDLINE_INVENTORY", "/nowhere/hosts.yml")
    with pytest.raises(UsageError, match=r"no inventory at /nowhere/hosts\.yml"):
        read_inventory()


def test_connection_refuses_a_host_whose_key_it_does_not_know(tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    known.write_text("")
    only = ("-F", "/dev/null", "-o", f"UserKnownHostsFile={known}")
    strict = connect(Host("h1", "10.0.0.1", "10.0.0.1", only))
    assert isinstance(strict.client._policy, paramiko.RejectPolicy)  # type: ignore[attr-defined]
    lax = connect(Host("h1", "10.0.0.1", "10.0.0.1", (*only, "-o", "StrictHostKeyChecking=no")))
    assert isinstance(lax.client._policy, paramiko.AutoAddPolicy)  # type: ignore[attr-defined]


MASTER_JSON = {
    "url": "spark://10.0.0.1:7077",
    "status": "ALIVE",
    "activeapps": [],
    "workers": [
        {"host": "10.0.0.1", "state": "ALIVE", "cores": 2, "coresused": 1, "memory": 1024, "memoryused": 512},
        {"host": "10.0.0.2", "state": "DEAD", "cores": 2, "coresused": 0, "memory": 1024, "memoryused": 0},
        {"host": "10.0.0.2", "state": "ALIVE", "cores": 2, "coresused": 0, "memory": 1024, "memoryused": 0},
        {"host": "10.0.0.3", "state": "DEAD", "cores": 2, "coresused": 0, "memory": 1024, "memoryused": 0},
    ],
}


@pytest.fixture
def master_url() -> Iterator[str]:
    """A web server that answers as a master does at /json/, and with nonsense elsewhere."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(MASTER_JSON).encode() if self.path == "/json/" else b"<html>"
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_masters_json_tells_the_living_from_their_dead_former_selves(master_url: str) -> None:
    view = fetch_view(master_url)
    assert view is not None
    assert view.alive_hosts() == {"10.0.0.1", "10.0.0.2"}


def test_no_master_or_another_program_there_is_no_view(master_url: str) -> None:
    assert fetch_view(f"{master_url}/elsewhere") is None
    assert fetch_view("http://127.0.0.1:9") is None


OTHERS = [b"HTTP/1.1 200 OK\r\n\r\n" + json for json in (b"{}", b"[]", b"null", b'{"workers": [{}]}')]


@pytest.mark.parametrize(
    "answer", [*OTHERS, b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"]
)
def test_any_other_program_on_the_masters_port_is_no_master(answer: bytes) -> None:
    with one_answer(answer) as url:
        assert fetch_view(url) is None


def test_status_table_shows_process_and_registration_of_each_worker(
    operator: Operator, master_url: str
) -> None:
    operator.launcher.start()
    operator.cluster.unreachable.add("h3")
    operator.launcher._fetch_view = lambda: fetch_view(master_url)
    state = operator.launcher.state()
    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    console.print(status_table(CLUSTER, state))
    console.file.close()
    lines = [re.findall(r"[\w./]+", line) for line in console.export_text().splitlines() if "worker" in line]
    assert lines == [
        ["h1", "worker", "running", "ALIVE", "1/2", "512/1024"],
        ["h2", "worker", "running", "ALIVE", "0/2", "0/1024"],
        ["h3", "worker", "unreachable", "DEAD", "0/2", "0/1024"],
    ]
    assert not is_well(CLUSTER, state)


@pytest.mark.parametrize(
    ("task", "options"),
    [
        (fabfile.logs, {"host": "h1", "lines": "many"}),
        (fabfile.logs, {"host": "h1", "number": "-1"}),
        (fabfile.workers, {"add": [], "remove": ["h1"], "timeout": "1m"}),
    ],
)
def test_an_option_that_is_no_number_is_wrong_usage(task: Any, options: dict[str, Any]) -> None:
    with pytest.raises(Exit, match="give a whole number") as ended:
        task.body(None, **options)
    assert ended.value.code == 2


@pytest.mark.parametrize(("error", "code"), [(UsageError("asked wrongly"), 2), (Error("h2 failed"), 1)])
def test_failures_end_with_their_exit_code_and_text(error: Exception, code: int) -> None:
    @fabfile.judged
    def action() -> None:
        raise error

    with pytest.raises(Exit, match=re.escape(str(error))) as ended:
        action()
    assert ended.value.code == code


def test_nothing_to_do_is_no_failure(capsys: pytest.CaptureFixture[str]) -> None:
    @fabfile.judged
    def action() -> None:
        raise NothingToDo("Spark is already running.")

    action()


def test_tasks_are_in_the_namespace_spark() -> None:
    names = "start stop restart status logs workers jobs submit kill"
    assert set(fabfile.namespace.task_names) == {f"spark.{name}" for name in names.split()}
