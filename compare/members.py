"""The members to start: each daemon of a system with its unit, its push command and its process's
marks. Pure.

The push commands do what Kafka's and Spark's own scripts do: they start a daemon in the background with a log
file, and do not watch it. A broker and a ZooKeeper server are pushed with the program line and environment of
their unit, so that only the model differs and not the program.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from compare.scenarios import Model
from compare.settings import BROKER_HTTP_PORT
from sparkctl import commands
from sparkctl.commands import Role
from sparkctl.inventory import Host, SparkCluster

ZOOKEEPER_UNIT = "zookeeper.service"
SPARK_MASTER_UNIT, SPARK_WORKER_UNIT = "landline-spark-master.service", "landline-spark-worker.service"
PUSHED_ZOOKEEPER = "landline-pushed-zookeeper"
PUSH_LOGINS = {"broker": "landline-push", "zookeeper": "zookeeper-push"}
LIFECYCLE_ENV = "/etc/landline/lifecycle.env"

_ARGV = re.compile(r"argv\[\]=(.*?) ; ignore_errors=")


@dataclass(frozen=True, slots=True)
class Member:
    """One daemon. ``marks`` are arguments that only its process has among those of its host.

    ``target`` is the destination of the master's ssh; None: the master's own host, without ssh. ``serves``:
    the run waits for it. ZooKeeper and Spark's master, which others need first, do not serve in this sense.
    """

    name: str
    role: str
    instance: str
    host: str
    unit: str
    marks: tuple[str, ...]
    target: str | None
    command: str
    serves: bool
    address: str


@dataclass(frozen=True, slots=True)
class Program:
    """A unit's program: its program line, its environment, and the files with more environment variables."""

    argv: str
    environment: str
    files: tuple[str, ...]


def broker_unit(number: int) -> str:
    """The unit of a host's only broker."""
    return f"landline-broker@{number}.service"


def program(shown: str) -> Program:
    """Parses ``systemctl show --property=ExecStart,Environment,EnvironmentFiles``. Raises ValueError."""
    properties: dict[str, list[str]] = {}
    for line in shown.splitlines():
        key, _, value = line.partition("=")
        properties.setdefault(key, []).append(value)
    found = _ARGV.search(properties.get("ExecStart", [""])[0])
    if found is None:
        raise ValueError(f"no program line in {shown!r}")
    files = [text.split(" (ignore_errors=")[0] for text in properties.get("EnvironmentFiles", []) if text]
    return Program(found[1], " ".join(properties.get("Environment", [])), tuple(files))


def landline_members(
    hosts: Sequence[Host],
    zookeepers: Sequence[Host],
    programs: Mapping[str, Program],
    run_id: str,
    model: Model,
) -> list[Member]:
    """ZooKeeper's servers, then a broker on each host; keys of ``programs`` are ``zookeeper-h1``,
    ``broker-h1`` and so on.
    """
    members = []
    for number, host in enumerate(zookeepers, 1):
        command = _zookeeper_push(programs[f"zookeeper-{host.name}"])
        marks: tuple[str, ...] = ("org.apache.zookeeper.server.quorum.QuorumPeerMain",)
        name = f"zookeeper-{number}"
        members.append(
            Member(
                *(name, "zookeeper", str(number), host.name, ZOOKEEPER_UNIT, marks),
                *(_login("zookeeper", host), command, False, host.address),
            )
        )
    for number, host in enumerate(hosts, 1):
        command = _broker_push(programs[f"broker-{host.name}"], number, run_id, model)
        marks = ("start", f"/etc/landline/broker-{number}.properties")
        name = f"broker-{number}"
        members.append(
            Member(
                *(name, "broker", str(number), host.name, broker_unit(number), marks),
                *(_login("broker", host), command, True, host.address),
            )
        )
    return members


def spark_members(hosts: Sequence[Host]) -> list[Member]:
    """The master, then a worker on each host, including the master's."""
    cluster = spark_cluster(hosts)
    command = commands.start_command(cluster, Role.MASTER, cluster.master)
    master = Member(
        *("spark-master", "spark-master", cluster.master.name, cluster.master.name, SPARK_MASTER_UNIT),
        *((Role.MASTER.value,), None, command, False, cluster.master.address),
    )
    return [master, *(_spark_worker(cluster, host) for host in cluster.workers)]


def spark_cluster(hosts: Sequence[Host]) -> SparkCluster:
    """The hosts as a Spark cluster with the first as its master, and the role's default ports
    and directories.
    """
    return SparkCluster(hosts[0], tuple(hosts))


def told_to_brokers(run_id: str, model: str) -> list[str]:
    """The environment of a broker's start: the run that it belongs to, and who starts it."""
    return [f"LANDLINE_RUN_ID={run_id}", f"LANDLINE_STARTED_BY={model}"]


def ready_url(member: Member) -> str:
    """The URL that reports whether a broker serves."""
    return f"http://{member.address}:{BROKER_HTTP_PORT}/readyz"


def _spark_worker(cluster: SparkCluster, host: Host) -> Member:
    command = commands.start_command(cluster, Role.WORKER, host)
    return Member(
        *(f"spark-worker-{host.name}", "spark-worker", host.name, host.name, SPARK_WORKER_UNIT),
        *((Role.WORKER.value,), host.peer_address, command, True, host.address),
    )


def _login(role: str, host: Host) -> str:
    return f"{PUSH_LOGINS[role]}@{host.peer_address}"


def _broker_push(unit: Program, number: int, run_id: str, model: Model) -> str:
    """Like ``kafka-server-start.sh -daemon``: in the background, detached from the terminal, with a
    log file.
    """
    files = " ".join(f". {shlex.quote(file)};" for file in unit.files if file != LIFECYCLE_ENV)
    told = shlex.join(told_to_brokers(run_id, model))
    log = f"/var/log/landline/broker-{number}/push.log"
    # The log directory is the unit's, created by its first start.
    return (
        f"umask 0027; set -a; {files} set +a; "
        f"export {unit.environment} {told}; nohup setsid {unit.argv} >{log} 2>&1 </dev/null &"
    )


def _zookeeper_push(unit: Program) -> str:
    """Like ``zkServer.sh start``; its output goes to the journal, because only there it gets timestamps."""
    return (
        f"umask 0027; nohup setsid systemd-cat --identifier={PUSHED_ZOOKEEPER} {unit.argv} "
        ">/dev/null 2>&1 </dev/null &"
    )
