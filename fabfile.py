"""Launches Spark standalone from its master over ssh: ``fab spark.start``, ``stop``, ``restart``, ``status``,
``logs HOST``, ``workers``, ``jobs``, ``submit JOB``, ``kill JOB``.

The hosts come from the Ansible inventory (``LANDLINE_INVENTORY``, or the lab's by default). Of Fabric's own options
``-H`` names another master to do it from, and ``-i``, ``-S``, ``-t``, ``--prompt-for-sudo-password`` and its like
apply to the connection to that master, as ``~/.fabric.yml`` does. ``sparkctl`` does
the work. This file has the tasks, their output, and their exit codes: 0 done or nothing to do, 1 failed, 2
usage error.
"""

from __future__ import annotations

import functools
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from fabric import Config, Connection, task
from invoke.collection import Collection
from invoke.exceptions import Exit
from rich.console import Console

from pipeline.jars import JarError, connector_jars
from sparkctl import submit as submission
from sparkctl.commands import Role
from sparkctl.connection import as_in_shorthand, connect, with_fabrics
from sparkctl.errors import Error, NothingToDo, UsageError
from sparkctl.inventory import SparkCluster, cluster_from, host_port, read_inventory, read_listing
from sparkctl.launcher import Launcher
from sparkctl.master import MasterView, end, leader_view
from sparkctl.ssh import words_of
from sparkctl.table import is_well, jobs_table, status_table
from sparkctl.tunnel import Tunnel, tunnel_to
from tools.client_file import CLIENT_ENV, ClientFile, fetch
from tools.inventory import BOOTSTRAP_ENV, Inventory

ROOT = Path(__file__).parent
console = Console(highlight=False)


def _say(line: str) -> None:
    """Prints one line about a host, without wrapping it."""
    console.print(line, markup=False, soft_wrap=True)


def _connector() -> str:
    """The jars of the Kafka connector. Every job gets them, because the driver's JVM must start with them."""
    try:
        return ",".join(map(str, connector_jars()))
    except JarError as error:
        raise Error(str(error)) from error


def _known_to_jobs(cluster: SparkCluster, listing: Mapping[str, Any]) -> dict[str, str]:
    """The addresses and paths that the inventory gives to a job.

    They are environment variables and not options, because a job of the user's own has other options.
    """
    known = {"LANDLINE_SHARED_DIR": cluster.shared_dir} if cluster.shared_dir else {}
    with suppress(ValueError):  # an address or port that is a template: the job then requires its option
        if brokers := Inventory(listing).bootstrap():
            known[BOOTSTRAP_ENV] = brokers
    return known


@contextmanager
def _login(listing: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """The addresses, and a file with the settings of clients, where the brokers' hosts have such settings.

    The file is this user's alone, and goes when the job has ended. A file of the user's own comes first.
    """
    text = "" if os.environ.get(CLIENT_ENV) else fetch(Inventory(listing))
    settings = ClientFile.parse(text)
    if settings.protocol == "PLAINTEXT":
        yield {}
        return
    with _file_of(text, ".properties") as name:
        yield {CLIENT_ENV: name, BOOTSTRAP_ENV: settings.bootstrap}


def _based(cluster: SparkCluster, context: Any) -> SparkCluster:
    """The cluster as reached from the host of ``-H``, if there is one: a master."""
    if context.config.run.dry:
        raise UsageError("--dry is not known here: fab spark.status shows what start and stop would act on")
    if not isinstance(context, Connection):
        return cluster
    based = cluster.based_at(context.host)
    return replace(based, master=as_in_shorthand(based.master, context))


def tunnel_to_master(cluster: SparkCluster, options: Config) -> Tunnel | None:
    """The way to the master's page, with Fabric's own options; None if it is reached directly."""
    master = with_fabrics(cluster.master, options)
    return tunnel_to(master.ssh_arguments, master.address, master.peer_address)


@contextmanager
def launcher(context: Any, cluster: SparkCluster | None = None) -> Iterator[tuple[SparkCluster, Launcher]]:
    """The inventory's cluster, and a launcher that is connected to its master."""
    cluster = _based(cluster or read_inventory(), context)
    connection = connect(cluster.master, context.config)
    try:
        view = functools.partial(
            leader_view, cluster.ui_urls(), tunnel=tunnel_to_master(cluster, context.config)
        )
        yield cluster, Launcher(cluster, connection, view, say=_say)
    finally:
        connection.close()


@contextmanager
def _file_of(text: str, suffix: str) -> Iterator[str]:
    """A file with a text that may have secrets: this user's alone, and gone afterwards."""
    with tempfile.NamedTemporaryFile("w", suffix=suffix) as file:
        file.write(text)
        file.flush()
        yield file.name


def _leader(cluster: SparkCluster, tunnel: Tunnel | None = None) -> MasterView:
    if (view := leader_view(cluster.ui_urls(), tunnel=tunnel)) is None:
        raise Error(f"no master answers at {', '.join(cluster.ui_urls())}; run fab spark.start")
    return view


def judged(action: Callable[..., None]) -> Callable[..., None]:
    """Prints how an action ended, and turns that into an exit code."""

    @functools.wraps(action)
    def run(*arguments: Any, **options: Any) -> None:
        try:
            action(*arguments, **options)
        except NothingToDo as nothing:
            console.print(str(nothing), style="green", markup=False)
        except UsageError as error:
            raise Exit(f"error: {error}", 2) from error
        except Error as error:
            raise Exit(f"error: {error}", 1) from error

    return run


def _whole(option: str, text: str) -> int:
    """The number that an option has. Fabric's own conversion ends in a traceback."""
    if not (text.isascii() and text.isdecimal()):
        raise UsageError(f"{option} is {text!r}: give a whole number")
    return int(text)


_SEQUENTIAL = "the workers one after another, as with SPARK_SSH_FOREGROUND, not all at once"


def _tell_start(cluster: SparkCluster, view: MasterView) -> None:
    alive = sum(worker.state == "ALIVE" for worker in view.workers)
    console.print(f"Spark runs: {cluster.url}, {alive} workers ALIVE", style="green", markup=False)


@task(help={"sequential": _SEQUENTIAL})  # type: ignore[untyped-decorator]
@judged
def start(context: Any, sequential: bool = False) -> None:
    """Start the masters, the history server and every worker; returns when all workers are ALIVE."""
    with launcher(context) as (cluster, control):
        _tell_start(cluster, control.start(parallel=not sequential))


@task  # type: ignore[untyped-decorator]
@judged
def stop(context: Any) -> None:
    """Stop every worker, then the masters; returns when their processes are gone."""
    with launcher(context) as (_, control):
        control.stop()
    console.print("Spark is stopped", style="green", markup=False)


@task(help={"sequential": _SEQUENTIAL})  # type: ignore[untyped-decorator]
@judged
def restart(context: Any, sequential: bool = False) -> None:
    """Stop all daemons and start them, for new settings or another version; jobs that run end."""
    with launcher(context) as (cluster, control):
        with suppress(NothingToDo):
            control.stop()
        _tell_start(cluster, control.start(parallel=not sequential))


@task  # type: ignore[untyped-decorator]
@judged
def status(context: Any) -> None:
    """Show the masters, the history server and the workers; exit code 1 unless all are well."""
    with launcher(context) as (cluster, control):
        state = control.state()
    console.print(status_table(cluster, state))
    if state.view and cluster.history:
        address = host_port(cluster.history.peer_address, cluster.history_port)
        console.print(f"pages: {state.view.ui_url}, history http://{address}", markup=False)
    if not is_well(cluster, state):
        raise Exit(code=1)


@task(  # type: ignore[untyped-decorator]
    positional=["host"],
    help={
        "host": "its name in the inventory",
        "daemon": "worker, master or history",
        "number": "which worker of the host, from 1",
        "lines": "how many",
    },
)
@judged
def logs(context: Any, host: str, daemon: str = "worker", number: str = "1", lines: str = "50") -> None:
    """Show the last lines of a daemon's log."""
    if daemon.upper() not in Role.__members__:
        raise UsageError(f"no daemon {daemon}: give worker, master or history")
    wanted, count = _whole("--number", number), _whole("--lines", lines)
    with launcher(context) as (_, control):
        _say(control.log(host, Role[daemon.upper()], wanted, count))


@task(  # type: ignore[untyped-decorator]
    iterable=["add", "remove"],
    help={
        "add": "start the workers on this host of the inventory (repeat it for more)",
        "remove": "decommission the workers on this host, then stop them (repeat it for more)",
        "timeout": "seconds that executors may take to finish their tasks and give their blocks away",
    },
)
@judged
def workers(context: Any, add: list[str], remove: list[str], timeout: str = "600") -> None:
    """Show the workers; or add some, or take some away without harm to running jobs."""
    if add and remove:
        raise UsageError("give --add or --remove, one at a time")
    within_s = _whole("--timeout", timeout)
    with launcher(context) as (cluster, control):
        if add:
            _tell_start(cluster, control.add(add))
        elif remove:
            control.remove(remove, within_s)
            console.print(f"removed: {', '.join(remove)}", style="green", markup=False)
        else:
            state = control.state()
            only = {daemon: result for daemon, result in state.daemons.items() if daemon.role is Role.WORKER}
            console.print(status_table(cluster, replace(state, daemons=only)))


@task  # type: ignore[untyped-decorator]
@judged
def jobs(context: Any) -> None:
    """Show the jobs that run or wait, and the last ones that ended."""
    cluster = _based(read_inventory(), context)
    console.print(jobs_table(_leader(cluster, tunnel_to_master(cluster, context.config))))


@task(positional=["job"], help={"job": "its id or its name, as fab spark.jobs shows them"})  # type: ignore[untyped-decorator]
@judged
def kill(context: Any, job: str) -> None:
    """End a job that runs or waits."""
    cluster = _based(read_inventory(), context)
    tunnel = tunnel_to_master(cluster, context.config)
    view = _leader(cluster, tunnel)
    found = [app.id for app in view.apps if job in {app.id, app.name}]
    if len(found) != 1:
        raise UsageError(f"{len(found)} jobs that run or wait are called {job}; see fab spark.jobs")
    end(view, found[0], functools.partial(_leader, cluster, tunnel), tunnel)
    console.print(f"killed: {found[0]}", style="green", markup=False)


@task(  # type: ignore[untyped-decorator]
    positional=["job"],
    help={
        "job": "a .py file, or the name of a job in pipeline/",
        "args": "the job's own arguments, in one string",
        "conf": "Spark settings in one string: 'spark.a=1 spark.b=2'",
    },
)
@judged
def submit(context: Any, job: str, args: str = "", conf: str = "") -> None:
    """Run a PySpark job on the cluster, with the driver here; exits with its code."""
    listing = read_listing()
    own, arguments = submission.parse_settings(conf), words_of(args, "--args")
    found = submission.find_job(job, ROOT)
    settings = {"spark.jars": _connector()} | own
    wanted_cluster = _based(cluster_from(listing), context)
    if tunnel_to_master(wanted_cluster, context.config) is not None:
        raise UsageError(
            f"the executors must reach the driver, and {wanted_cluster.master.name}'s network is reached by ssh only: "
            "run spark-submit on a host of it"
        )
    _leader(wanted_cluster)
    with launcher(context, wanted_cluster) as (cluster, control):
        defaults = control.defaults()
    driver_host = submission.address_towards(cluster.master.address, cluster.master_port)
    with _login(listing) as login, _file_of(defaults, ".conf") as file:
        known = {**_known_to_jobs(cluster, listing), **login}
        wanted = submission.Submission(found, tuple(arguments), settings, Path(file), known)
        _say(f"{found.name} runs on {cluster.url} with its driver here, until it ends or ^C ends it")
        sys.stdout.flush()
        command = submission.command_line(wanted, cluster.url, driver_host)
        code = submission.submit(command, ROOT, wanted.variables)
    if code != 0:
        raise Exit(code=code)


namespace = Collection()
namespace.add_collection(Collection("spark", start, stop, restart, status, logs, workers, jobs, submit, kill))
