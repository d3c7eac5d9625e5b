"""Launches Spark standalone from its master over ssh: ``fab spark.start``, ``stop``, ``status``,
``submit JOB``.

The hosts come from the Ansible inventory (``LANDLINE_INVENTORY``, or the lab's by default). ``sparkctl`` does
the work. This file has the tasks, their output, and their exit codes: 0 done or nothing to do, 1 failed, 2
usage error.
"""

from __future__ import annotations

import functools
import os
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fabric import task
from invoke.collection import Collection
from invoke.exceptions import Exit
from rich.console import Console

from pipeline.jars import JarError, connector_jars
from sparkctl import submit as submission
from sparkctl.connection import connect
from sparkctl.errors import Error, NothingToDo, UsageError
from sparkctl.inventory import SparkCluster, cluster_from, read_inventory, read_listing
from sparkctl.launcher import Launcher
from sparkctl.master import fetch_view
from sparkctl.table import is_well, status_table
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
    with tempfile.NamedTemporaryFile("w", suffix=".properties") as file:
        file.write(text)
        file.flush()
        yield {CLIENT_ENV: file.name, BOOTSTRAP_ENV: settings.bootstrap}


def tunnel_to_master(cluster: SparkCluster) -> Tunnel | None:
    """The way to the master's page; None if it is reached directly."""
    master = cluster.master
    return tunnel_to(master.ssh_arguments, master.address, master.peer_address)


@contextmanager
def launcher() -> Iterator[tuple[SparkCluster, Launcher]]:
    """The inventory's cluster, and a launcher that is connected to its master."""
    cluster = read_inventory()
    connection = connect(cluster.master)
    try:
        view = functools.partial(fetch_view, cluster.ui_json, tunnel=tunnel_to_master(cluster))
        yield cluster, Launcher(cluster, connection, view, say=_say)
    finally:
        connection.close()


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


@task(  # type: ignore[untyped-decorator]
    help={"sequential": "the workers one after another, as with SPARK_SSH_FOREGROUND, not all at once"}
)
@judged
def start(_context: Any, sequential: bool = False) -> None:
    """Start the master, then from it every worker; returns when all are ALIVE."""
    with launcher() as (cluster, control):
        view = control.start(parallel=not sequential)
    console.print(
        f"Spark runs: {cluster.url}, {len(view.alive_hosts())} workers ALIVE", style="green", markup=False
    )


@task  # type: ignore[untyped-decorator]
@judged
def stop(_context: Any) -> None:
    """Stop every worker, then the master; returns when their processes are gone."""
    with launcher() as (_, control):
        control.stop()
    console.print("Spark is stopped", style="green", markup=False)


@task  # type: ignore[untyped-decorator]
@judged
def status(_context: Any) -> None:
    """Show the master and the workers; exit code 1 unless all are ALIVE."""
    with launcher() as (cluster, control):
        state = control.state()
    console.print(status_table(cluster, state))
    if not is_well(cluster, state):
        raise Exit(code=1)


@task(  # type: ignore[untyped-decorator]
    positional=["job"],
    help={
        "job": "a .py file, or the name of a job in pipeline/",
        "args": "the job's own arguments, in one string",
        "conf": "Spark settings in one string: 'spark.a=1 spark.b=2'",
    },
)
@judged
def submit(_context: Any, job: str, args: str = "", conf: str = "") -> None:
    """Run a PySpark job on the cluster, with the driver here; exits with its code."""
    listing = read_listing()
    cluster = cluster_from(listing)
    settings = {"spark.jars": _connector()} | submission.parse_settings(conf)
    found = submission.find_job(job, ROOT)
    if tunnel_to_master(cluster) is not None:
        raise UsageError(
            f"the executors must reach the driver, and {cluster.master.name}'s network is reached by ssh only: run "
            "spark-submit on a host of it"
        )
    if fetch_view(cluster.ui_json) is None:
        raise Error(f"no master answers at {cluster.ui_json}; run fab spark.start")
    driver_host = submission.address_towards(cluster.master.address, cluster.master_port)
    with _login(listing) as login:
        known = {**_known_to_jobs(cluster, listing), **login}
        wanted = submission.Submission(found, tuple(shlex.split(args)), settings, known)
        _say(f"{found.name} runs on {cluster.url} with its driver here, until it ends or ^C ends it")
        sys.stdout.flush()
        command = submission.command_line(wanted, cluster.url, driver_host)
        code = submission.submit(command, ROOT, wanted.variables)
    if code != 0:
        raise Exit(code=code)


namespace = Collection()
namespace.add_collection(Collection("spark", start, stop, status, submit))
