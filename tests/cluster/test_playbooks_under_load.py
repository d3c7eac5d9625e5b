"""What an operator runs in a day, on the three-host cluster that LANDLINE_LAB names, one after another under one load,
with the history checker beside it.

Those that move partitions, reboot hosts, secure a cluster, renew its certificates or migrate one have tests of their
own, as test_secured_under_load. The figures go to the file that FIGURES names, if it does; docs/figures/playbooks.json
is such a file.
"""

import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path
from urllib.parse import quote
from urllib.request import urlopen

import pytest

from chaos.load import LoadPlan
from lab import image
from rig.wait import wait_until
from tests.support.checked_load import assert_no_anomaly, checked_load
from tests.support.deploying import ROOT, changed, make
from tests.support.figures import keep_figures
from tests.support.lab_cluster import LAB_ENV
from tests.support.package_repository import SOURCE, download
from tests.support.playbook_costs import PlaybookCosts

pytestmark = [pytest.mark.cluster, pytest.mark.day_two, pytest.mark.slow, pytest.mark.timeout(1800)]

PLAN = LoadPlan(topics=1, partitions=6, records_per_s=200, seed=11)
HOSTS = ("h1", "h2", "h3")
NOTHING = dict.fromkeys(HOSTS, 0)
# What is told of a quiet machine in docs/operations.md, and what one may show that does other things as well.
MOST_S = 1.0 if "FIGURES" in os.environ else 3.0


def variables(**given):
    return f"ANSIBLE_ARGS=-e {shlex.quote(json.dumps(given))}"


def play(lab, book, *arguments, **given):
    """A playbook that has no verb of make."""
    program = str(ROOT / ".venv" / "bin" / "ansible-playbook")
    done = subprocess.run(
        lab.enter_argv([program, f"playbooks/{book}.yml", *arguments, "-e", json.dumps(given)]),
        cwd=ROOT,
        env={**os.environ, LAB_ENV: lab.name},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout[-4000:]
    return done


@pytest.fixture(scope="module")
def downloaded(tmp_path_factory):
    """The package of Prometheus and what it needs; for which the lab's network is no use."""
    directory = tmp_path_factory.mktemp("prometheus") / "packages"
    download(["prometheus"], image.ensure(print), directory)
    return directory


@pytest.fixture
def packages(downloaded, lab):
    """Apt on h1 knows nothing but Prometheus; at the end that is gone from there."""
    (bind,) = [bind for bind in lab.state.binds if bind.writable and bind.source == bind.target]
    path = Path(bind.target) / f"packages-{os.getpid()}"
    shutil.copytree(downloaded, path)
    path.chmod(0o755)  # for apt's own user
    aside = "/etc/apt/aside"
    lab.run("h1", f"mkdir {aside} && mv /etc/apt/sources.list* {aside}/")
    lab.run("h1", f"echo '{SOURCE.format(path=path).strip()}' >/etc/apt/sources.list")
    yield
    lab.run("h1", f"rm /etc/apt/sources.list; mv {aside}/* /etc/apt/ && rmdir {aside}")
    lab.run("h1", "dpkg --purge prometheus && rm -rf /etc/prometheus", check=False)
    shutil.rmtree(path)


@pytest.fixture
def load(cluster, tmp_path):
    with checked_load(cluster.bootstrap, PLAN, tmp_path, f"day-{os.getpid()}") as load:
        yield load


def processes(cluster):
    return {broker: cluster.main_pid(broker) for broker in cluster.broker_ids()}


def servers(lab):
    """The process of ZooKeeper on each host."""
    command = "systemctl show --property=MainPID --value zookeeper"
    return {host: lab.run(host, command).stdout.strip() for host in HOSTS}


def lose_the_ensemble(lab):
    """All servers at once, and their disks."""
    for host in HOSTS:
        lab.run(host, "systemctl stop zookeeper")
    for host in HOSTS:
        lab.run(host, "rm -rf /var/lib/zookeeper/*")


def watched(lab):
    """Whether Prometheus on h1 has scraped all brokers."""
    query = quote('sum(up{job="landline"})')
    with urlopen(f"http://{lab.host('h1').address}:9090/api/v1/query?query={query}", timeout=10) as answer:
        found = json.load(answer)["data"]["result"]
    return [each["value"][1] for each in found] == [str(len(HOSTS))]


def test_the_playbooks_of_a_day_lose_nothing_and_are_hardly_felt(lab, cluster, packages, load, tmp_path):
    costs, plan = PlaybookCosts(), tmp_path / "plan.json"

    def run(what, *arguments):
        return costs.run(what, load, lambda: make(*arguments, f"LAB={lab.name}", quick=False))

    def run_book(what, book, *arguments, **given):
        return costs.run(what, load, lambda: play(lab, book, *arguments, **given))

    run("`preflight`", "preflight")
    before, first = processes(cluster), servers(lab)
    assert changed(run("`deploy`, nothing to do", "deploy")) == NOTHING
    live = {"log.retention.hours": 24}
    run("`deploy`, a key that changes live", "deploy", variables(broker_properties=live))
    run_book("`broker`, it changes back live", "broker")
    assert processes(cluster) == before
    changes = {"broker_properties": {**live, "num.partitions": 2}}
    restart = variables(**changes)
    run("`plan`, a key that needs a restart", "plan", f"PLAN={plan}", restart)
    assert processes(cluster) == before
    run("`apply` of that: all brokers roll", "apply", f"PLAN={plan}", restart)
    rolled = processes(cluster)
    assert not set(rolled.values()) & set(before.values())
    snapshots = variables(**changes, zookeeper_properties={"snapCount": 50_000})
    run("`deploy`, a setting of ZooKeeper's: its servers roll", "deploy", snapshots)
    assert not set(servers(lab).values()) & set(first.values())
    assert processes(cluster) == rolled
    run("`restart` of all brokers", "restart")
    assert not set(processes(cluster).values()) & set(rolled.values())
    listed = {"name": f"listed-{os.getpid()}", "partitions": 6, "replication_factor": 3}
    assert "created with 6 partitions" in run(
        "`topics`, one more", "topics", variables(landline_topics=[listed])
    )
    gone = variables(landline_topics=[{**listed, "state": "absent"}], landline_topics_delete=listed["name"])
    run("`topics`, it goes", "topics", gone)
    saved = tmp_path / "tree"
    run("`backup`", "backup", f"FILE={saved}")
    assert saved.stat().st_size > 0
    run("`support-bundle`", "support-bundle")
    assert changed(run_book("`spark`, another setting", "spark", spark_worker_memory="768m"))["h2"] > 0
    group = tmp_path / "watched.yml"
    group.write_text("prometheus: {hosts: {h1: {}}}\n")
    inventory = ("-i", "inventory/lab.py", "-i", str(group))
    installed = "`prometheus`: it is installed on a broker's host"
    run_book(installed, "prometheus", *inventory, prometheus_listen_address="0.0.0.0:9090")
    wait_until(lambda: watched(lab), 60, what="Prometheus has scraped all brokers")
    run("`deploy`, as it was: brokers and ZooKeeper's servers roll", "deploy")
    felt_s = costs.longest_gap_s
    run("`backup`, again", "backup", f"FILE={saved}")
    lose_the_ensemble(lab)
    run("`restore` of an ensemble that lost its disks: all brokers are down", "restore", f"FILE={saved}")
    records = load.acked()
    assert_no_anomaly(lab, load, HOSTS)
    assert load.failed() == 0
    keep_figures("playbooks", {"took_s": costs.took_s, "records": records, "lost": 0}, costs.rows)
    assert felt_s < MOST_S, costs.rows
    assert changed(make("deploy", f"LAB={lab.name}").stdout) == NOTHING
