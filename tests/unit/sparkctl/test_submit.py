"""Submitting a job: where it is found, spark-submit's arguments, the driver's address, and how it is ended."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

import fabfile
from sparkctl import commands, submit
from sparkctl.commands import Daemon, HostResult, Role
from sparkctl.errors import Error, UsageError
from sparkctl.inventory import Host, SparkCluster
from sparkctl.launcher import ClusterState
from sparkctl.master import view_from
from sparkctl.table import is_well


def test_submit_puts_the_jobs_arguments_after_the_job_and_the_drivers_address_before() -> None:
    job = submit.Submission(Path("/p/job.py"), ("--topics", "a b"), {"spark.executor.memory": "1g"})
    assert submit.command_line(job, "spark://m:7077", "10.89.0.1") == [
        *("spark-submit", "--master", "spark://m:7077"),
        *("--conf", "spark.driver.host=10.89.0.1", "--conf", "spark.driver.bindAddress=10.89.0.1"),
        *("--conf", "spark.executor.memory=1g"),
        *("/p/job.py", "--topics", "a b"),
    ]


def test_spark_is_given_addresses_of_ipv6_in_brackets_and_hosts_are_known_without_them() -> None:
    hosts = [Host(f"h{number}", f"10.0.0.{number}", f"fd00::{number}") for number in (1, 2)]
    cluster = SparkCluster(hosts[0], (hosts[1],))
    started = commands.start_command(cluster, Role.WORKER, hosts[1])
    assert "--host '[fd00::2]' --webui-port 8081 'spark://[fd00::1]:7077'" in started
    line = submit.command_line(submit.Submission(Path("/p/job.py")), cluster.url, "fd00::9")
    assert {"spark.driver.host=[fd00::9]", "spark.driver.bindAddress=[fd00::9]"} <= set(line)
    hosts[1] = Host("h2", "10.0.0.2", "fd00:0:0::0002")  # Spark may report it in another form
    cluster = SparkCluster(hosts[0], (hosts[1],))
    worker = {"host": "[fd00::2]", "state": "ALIVE", "webuiaddress": "http://[fd00::2]:8081"}
    worker |= dict.fromkeys(("cores", "coresused", "memory", "memoryused"), 1)
    view = view_from({"url": cluster.url, "status": "ALIVE", "workers": [worker], "activeapps": []})
    state = ClusterState(True, {Daemon(Role.WORKER, hosts[1]): HostResult("h2", 0, ())}, view)
    assert is_well(cluster, state)


def test_job_is_found_by_path_and_by_name() -> None:
    by_name = submit.find_job("journal_stream", fabfile.ROOT)
    assert by_name == submit.find_job("pipeline/journal_stream.py", fabfile.ROOT)
    with pytest.raises(UsageError, match="no job nothing"):
        submit.find_job("nothing", fabfile.ROOT)


def test_setting_that_is_not_sparks_is_refused() -> None:
    assert submit.parse_settings("spark.a=1 'spark.b=x y'") == {"spark.a": "1", "spark.b": "x y"}
    with pytest.raises(UsageError, match=r"'executor\.cores=1' is not a Spark setting"):
        submit.parse_settings("executor.cores=1")
    with pytest.raises(UsageError, match=r"^--conf: no closing quotation$"):
        submit.parse_settings("spark.authenticate.secret='x")


def test_address_towards_loopback_is_loopback() -> None:
    assert submit.address_towards("127.0.0.1", 7077) == "127.0.0.1"


def test_of_a_names_addresses_the_drivers_is_that_of_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    both = [(socket.AF_INET6, 2, 17, "", ("::1", 7077)), (socket.AF_INET, 2, 17, "", ("127.0.0.1", 7077))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: both)
    assert submit.address_towards("master.example.org", 7077) == "127.0.0.1"


def test_a_master_without_a_route_is_an_error_that_names_it() -> None:
    with pytest.raises(Error, match=r"route to 255\.255\.255\.255"):
        submit.address_towards("255.255.255.255", 7077)


def test_an_interrupted_driver_ends_its_job_itself(tmp_path: Path) -> None:
    """It finishes its event log, which takes longer than the quarter of a second that subprocess.run gives it."""
    ended = tmp_path / "ended"
    child = tmp_path / "driver.sh"
    child.write_text(
        f"trap 'sleep 1; touch {ended}; exit 130' INT\nkill -INT $PPID\nkill -INT $$\nsleep 30\n"
    )
    begin = (
        "import sys; sys.path.insert(0, '.'); from pathlib import Path; from sparkctl.submit import submit; "
    )
    call = f"sys.exit(submit(['bash', {str(child)!r}], Path('.')))"
    done = subprocess.run(
        [sys.executable, "-c", begin + call],
        cwd=fabfile.ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert "KeyboardInterrupt" in done.stderr
    assert ended.exists()
