"""What an operator does with Spark after its first start: several masters, workers that come and go, logs, options."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from fabric import Config, Connection
from fabric.runners import Result
from invoke.context import Context
from invoke.exceptions import CommandTimedOut, ResponseNotAccepted

import fabfile
from sparkctl import commands, submit
from sparkctl.commands import Role
from sparkctl.connection import connect
from sparkctl.errors import Error, NothingToDo, UsageError
from sparkctl.inventory import Host, SparkCluster
from sparkctl.launcher import Launcher
from tests.support.fake_spark import CLUSTER, FakeCluster, FakeConnection, Operator, host


@pytest.fixture
def operator() -> Operator:
    return Operator()


TWO_MASTERS = SparkCluster(
    host(1), CLUSTER.workers, standbys=(host(2),), workers_per_host={"h3": 2}, history=host(1)
)


def test_start_also_starts_standbys_the_history_server_and_every_worker_of_a_host() -> None:
    operator = Operator(TWO_MASTERS)
    operator.launcher.start()
    assert operator.started() == [
        *[("MASTER", "h1"), ("MASTER", "h2#master"), ("HISTORY", "h1#history")],
        *[("WORKER", "h1"), ("WORKER", "h2"), ("WORKER", "h3"), ("WORKER", "h3#2")],
    ]
    second = next(text for text in operator.connection.commands if "--webui-port 8082" in text)
    assert "--work-dir /var/lib/spark/work-2 spark://10.0.0.1:7077,10.0.0.2:7077" in second


def test_a_removed_worker_is_stopped_when_its_executors_have_gone(operator: Operator) -> None:
    operator.launcher.start()
    operator.cluster.busy_polls = 3
    operator.launcher.remove(["h2"], 60)
    assert operator.now == 3
    assert [action for action, _, _ in operator.cluster.actions[-2:]] == ["decommission", "stop"]
    assert (Role.WORKER, "h2") not in operator.cluster.running
    with pytest.raises(NothingToDo, match="No worker runs on h2"):
        operator.launcher.remove(["h2"], 60)
    assert operator.launcher.add(["h2"]).alive_on("10.0.0.2") == 1


def test_a_worker_whose_executors_stay_is_not_stopped(operator: Operator) -> None:
    operator.launcher.start()
    operator.cluster.busy_polls = 1000
    with pytest.raises(Error, match="after 5 s still with executors, and not stopped: h3"):
        operator.launcher.remove(["h3"], 5)
    assert (Role.WORKER, "h3") in operator.cluster.running


def test_only_workers_of_the_inventory_are_added_and_removed(operator: Operator) -> None:
    with pytest.raises(UsageError, match="no worker in the inventory: h9"):
        operator.launcher.remove(["h9"], 5)


def test_a_log_is_shown_as_it_is_from_the_master_and_from_afar() -> None:
    operator = Operator(TWO_MASTERS)
    for daemon in (("h1", Role.MASTER, 1), ("h3", Role.WORKER, 2), ("h1", Role.HISTORY, 1)):
        assert operator.launcher.log(*daemon, lines=20) == "first line\nsecond: line"
    with pytest.raises(UsageError, match="no master 1 on h3: there is one on h1, h2"):
        operator.launcher.log("h3", Role.MASTER, 1, 20)


def test_another_master_is_the_base_by_its_name_or_address() -> None:
    for name in ("h2", "10.0.0.2"):
        based = TWO_MASTERS.based_at(name)
        assert (based.master.name, [m.name for m in based.standbys]) == ("h2", ["h1"])
    with pytest.raises(UsageError, match="-H h3 is not a host of the group spark_master"):
        TWO_MASTERS.based_at("h3")


NO_FILES = ("-F", "/dev/null")


@pytest.mark.parametrize(
    ("named", "user", "port"),
    [
        ("admin@10.0.0.2:2222", "admin", 2222),
        ("admin@h2", "admin", 22),
        ("h2:2222", "debian", 2222),
        ("h2", "debian", 22),
    ],
)
def test_the_user_and_port_beside_another_master_come_before_the_inventorys(
    named: str, user: str, port: int
) -> None:
    standby = Host("h2", "10.0.0.2", "10.0.0.2", (*NO_FILES, "-o", "User=debian"))
    cluster = SparkCluster(CLUSTER.master, (), standbys=(standby,))
    based = fabfile._based(cluster, Connection(named, config=Config(overrides={"load_ssh_configs": False})))
    made = connect(based.master)
    assert (made.host, made.user, made.port) == ("10.0.0.2", user, port)


def test_fabrics_own_options_come_before_the_inventorys(tmp_path: Path) -> None:
    mine, inventorys, config = (tmp_path / name for name in ("mine", "inventorys", "config"))
    for key in (mine, inventorys):
        key.touch()
    config.write_text("Host 10.0.0.1\n Port 2222\n User debian\n ProxyJump 192.0.2.9\n")
    options = Config(
        overrides={
            "connect_kwargs": {"key_filename": [str(mine)], "password": "p", "timeout": 3},
            "sudo": {"password": "s"},
            "user": "of fabric's file",
        },
        runtime_ssh_path=str(config),
    )
    login = (
        *NO_FILES,
        "-o",
        "User=admin",
        "-o",
        f"IdentityFile={inventorys}",
        "-o",
        "StrictHostKeyChecking=no",
    )
    host = Host("h1", "10.0.0.1", "10.0.0.1", login)
    made = connect(host, options)
    assert made.connect_kwargs == {"key_filename": [str(mine), str(inventorys)], "password": "p"}
    assert (made.connect_timeout, made.config.sudo.password) == (3, "s")
    assert (made.user, made.port) == ("admin", 2222)
    # By the same bastion, with the same file, as the tunnel to the master's page.
    assert made.gateway == f"ssh -F {config} -W '[10.0.0.1]:2222' -- 'ssh://[192.0.2.9]'"
    assert fabfile.tunnel_to_master(SparkCluster(host, ()), options) is not None
    assert fabfile.tunnel_to_master(SparkCluster(host, ()), Config(lazy=True)) is None


def test_fabrics_user_and_port_count_where_neither_the_inventory_has_one() -> None:
    options = Config(overrides={"user": "debian", "port": 2222})
    made = connect(Host("h1", "10.0.0.1", "10.0.0.1", NO_FILES), options)
    assert (made.user, made.port) == ("debian", 2222)


def test_sudos_password_is_an_answer_and_no_part_of_the_command() -> None:
    operator = Operator()
    operator.connection.user = "admin"
    operator.connection.config.sudo.password = "of the admin"
    seen: list[tuple[str, Any]] = []

    def run(command: str, **options: Any) -> Result:
        seen.append((command, options["watchers"]))
        return Result(stdout="spark.a b\n", exited=0, connection=operator.connection)

    operator.connection.run = run  # type: ignore[method-assign]
    assert operator.launcher.defaults() == "spark.a b\n"
    ((command, (answer,)),) = seen
    assert shlex.split(command)[:6] == ["sudo", "-S", "-p", commands.SUDO_PROMPT, "-u", "spark"]
    assert "of the admin" not in command
    assert list(answer.submit(commands.SUDO_PROMPT)) == ["of the admin\n"]


def test_who_gives_no_password_to_a_sudo_that_wants_one_is_told_how() -> None:
    operator = Operator()
    operator.connection.user = "admin"
    operator.connection.config.sudo.password = None
    refused = Result(stderr="sudo: a password is required\n", exited=1, connection=operator.connection)
    operator.connection.run = lambda *_, **__: refused  # type: ignore[method-assign]
    with pytest.raises(Error, match=r"sudo on admin@.* wants a password: give --prompt-for-sudo-password"):
        operator.launcher.defaults()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (CommandTimedOut(Result(connection=Connection("h1")), 180), "h1: no answer from .* within 180 s"),
        (ResponseNotAccepted(), "sudo on .* does not accept the password"),
    ],
)
def test_a_command_that_hangs_or_is_refused_is_an_error(error: Exception, words: str) -> None:
    class Refusing(FakeConnection):
        def run(self, command: str, **options: Any) -> Result:
            raise error

    with pytest.raises(Error, match=words):
        Launcher(CLUSTER, Refusing(FakeCluster()), lambda: None, print).state()


def test_pushes_one_after_another_may_take_as_long_as_all_of_them(operator: Operator) -> None:
    operator.launcher.start(parallel=False)
    assert operator.connection.limits[-1] == 180 + 3 * 90


def test_defaults_go_to_the_job_by_a_file_because_arguments_are_seen_by_all() -> None:
    job = submit.Submission(Path("/p/job.py"), defaults=Path("/tmp/x.conf"))
    line = submit.command_line(job, "spark://m:7077", "10.89.0.1")
    assert line[3:6] == ["--properties-file", "/tmp/x.conf", "--load-spark-defaults"]


def test_dry_runs_are_refused_before_anything_is_done() -> None:
    context = Context(Config(overrides={"run": {"dry": True}}))
    with pytest.raises(UsageError, match="--dry is not known"), fabfile.launcher(context, CLUSTER):
        pass
