"""What a release meets on its way to the hosts of the sample inventory: a disk that fills up, its own slowness, a plan,
and a run that ends at any task.

In a lab of this module's own, with hosts as operators have them (operators_hosts).
"""

import json
import os
import random
import re
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from rig.topics import create_topic
from tests.support.deploying import changed, interrupted
from tests.support.labs import lab_session
from tests.support.next_release import NEXT, VERSION
from tests.support.numbered_load import NumberedLoad, numbers_in
from tests.support.operators_hosts import prepare, ssh_may_be_lost
from tests.support.sample_inventory import (
    assert_all_run,
    bootstrap_servers,
    deploy,
    filled_in,
    main_pids,
    make_with,
    runs,
    with_next,
)

pytestmark = [pytest.mark.cluster, pytest.mark.day_two, pytest.mark.slow, pytest.mark.timeout(1200)]

# How many deploys end before their time, and at which tasks: a walk by hand takes more of them.
ROUNDS = int(os.environ.get("ROUNDS", "2"))
SEED = int(os.environ.get("SEED", "0")) or random.randrange(1, 1 << 16)
# Whoever asks for the permit of a run that was ended waits for so long.
PERMIT_S = 30
A_TASK = r"^TASK \["


@pytest.fixture(scope="module")
def lab():
    with lab_session("releases", hosts=3) as lab:
        prepare(lab)
        with lab.inside():
            yield lab


@pytest.fixture(scope="module")
def inventory(lab, archives, tmp_path_factory):
    """That of a cluster of this release, which runs."""
    hosts = filled_in(lab, tmp_path_factory.mktemp("releases"), archives)
    with pytest.MonkeyPatch.context() as environment:
        # Shared connections are found by address and user, and the hosts of all labs have the same addresses.
        environment.setenv("ANSIBLE_SSH_CONTROL_PATH_DIR", f"{lab.files.sockets}/operator")
        make_with(hosts, "deploy", arguments="--tags zookeeper,broker")
        yield hosts


def test_a_disk_that_fills_up_under_a_release_stops_the_run_and_the_next_one_completes_it(
    lab, inventory: Path
):
    """The check before the run does not see it: something else takes the room meanwhile."""
    name, directory = lab.hosts[1].name, f"/opt/landline/releases/{NEXT}"
    lab.run(name, f"mkdir --parents {directory} && mount -t tmpfs -o size=40m tmpfs {directory}")
    try:
        before, pids = runs(lab), main_pids(lab)
        done = with_next(inventory, "deploy", check=False)
        assert done.returncode != 0
        words = re.sub(r"\s+", " ", done.stdout)
        assert re.search(r"could not [\w ]+: .* There are \d+ MB left on its disk", words)
        assert "Nothing is restarted, for kafka-b failed above" in words
        assert (runs(lab), main_pids(lab)) == (before, pids)
        lab.run(name, f"mount -o remount,size=1g {directory}")
        with_next(inventory, "deploy", tags="broker_install")
        assert f"{NEXT}\n" in lab.run(name, f"{directory}/venv/bin/landline --version").stdout
    finally:
        lab.run(name, f"umount {directory} && rmdir {directory}")


SLOW = "s/^( +)stats.local_ns \\+= ended - started/\\1time.sleep(0.3); stats.local_ns += time.monotonic_ns() - started/"
TABLE = f"/opt/landline/releases/{NEXT}/venv/lib/python3*/site-packages/broker/server/apis"


@contextmanager
def slow_next_release(lab, inventory: Path):
    """The next release on all hosts, slow by 0.3 s with every request; the deploy's own probe makes some."""
    with_next(inventory, "deploy", tags="broker_install")
    for host in lab.hosts:
        # What was compiled is not looked at again.
        lab.run(
            host.name,
            f"cd {TABLE} && cp table.py /root/ && sed -E -i '{SLOW}' table.py && rm -f __pycache__/table.*",
        )
    try:
        yield
    finally:
        for host in lab.hosts:
            lab.run(host.name, f"cd {TABLE} && mv /root/table.py . && rm -f __pycache__/table.*")


def worse_in(said: str) -> int:
    """The broker that went first and went back, by what a deploy said."""
    words = re.sub(r"\s+", " ", said)
    worse = re.search(
        r"landline-broker@(\d)\.service on kafka-\w went first and is worse: its \w+ requests take", words
    )
    assert worse is not None, said[-4000:]
    back = (
        "It went back to the release and the configuration that it had, and is in sync. No other broker was"
    )
    assert back in words
    return int(worse[1])


def restarted_since(lab, pids) -> list[int]:
    return [n for n, pid in main_pids(lab).items() if pid != pids[n]]


def test_a_release_that_is_slow_goes_back_by_itself_and_no_other_broker_is_touched(lab, inventory: Path):
    before, pids = runs(lab), main_pids(lab)
    settings = '-e \'{"broker_properties": {"num.partitions": 2}}\''
    with slow_next_release(lab, inventory):
        done = with_next(inventory, "deploy", settings=settings, check=False)
    assert done.returncode != 0
    worse = worse_in(done.stdout)
    assert runs(lab) == before
    assert restarted_since(lab, pids) == [worse]
    # What it cost clients is told all the same.
    words = re.sub(r"\s+", " ", done.stdout)
    assert re.search(r"landline\.probe for \d+ s: \d+ records acknowledged, 0 failed, 0 not read", words)
    assert "longest gap" in words
    # Its files are those from before, to whoever reads them too.
    assert set(changed(deploy(inventory).stdout).values()) == {0}


def test_a_first_broker_that_nobody_has_watched_to_the_end_is_watched_by_the_next_deploy(
    lab, inventory: Path
):
    """^C while it is watched: as the next one would be, it is compared with brokers that have the old release."""
    before, pids = runs(lab), main_pids(lab)
    settings = {"landline_version": NEXT, "broker_canary_seconds": 30}
    with slow_next_release(lab, inventory):
        program = Path(sys.executable).with_name("ansible-playbook")
        argv = [
            str(program),
            "-i",
            str(inventory),
            "deploy.yml",
            "--tags",
            "broker",
            "-e",
            json.dumps(settings),
        ]
        returned, _ = interrupted(argv, r"TASK \[.*Watch it beside the others")
        assert returned != 0
        first = restarted_since(lab, pids)
        assert len(first) == 1
        done = with_next(inventory, "deploy", check=False)
    assert done.returncode != 0
    assert [worse_in(done.stdout)] == first
    assert runs(lab) == before
    assert restarted_since(lab, pids) == first
    kept = [lab.run(host.name, "ls /opt/landline/before", check=False).returncode for host in lab.hosts]
    assert 0 not in kept
    assert set(changed(deploy(inventory).stdout).values()) == {0}


def planned(inventory, file, settings):
    """A plan, and what was shown of it."""
    done = with_next(inventory, "plan", f"PLAN={file}", settings=settings)
    return json.loads(file.read_text()), done.stdout


def test_a_plan_is_what_is_done(lab, inventory: Path, tmp_path):
    file = tmp_path / "plan.json"
    settings = '-e \'{"broker_properties": {"num.partitions": %d}}\''
    two = settings % 2
    plan, said = planned(inventory, file, two)
    assert [row["action"] for row in plan["brokers"]] == ["restart"] * 3
    assert all(
        row["allowed"] == {"now": True, "why": f"broker {row['id']} may stop"} for row in plan["brokers"]
    )
    assert "+num.partitions=2" in said
    before = main_pids(lab)
    # Something on a host is not as it was when the plan was made.
    config = "/etc/landline/broker-2.properties"
    lab.run("h2", f"cp --preserve {config} /root/ && echo '# by hand' >>{config}")
    done = with_next(inventory, "apply", f"PLAN={file}", settings=two, check=False)
    assert done.returncode != 0
    assert f"another {config} on the host" in re.sub(r"\s+", " ", done.stdout)
    assert main_pids(lab) == before
    lab.run("h2", f"mv /root/broker-2.properties {config}")
    with_next(inventory, "apply", f"PLAN={file}", settings=two)
    assert not set(main_pids(lab).values()) & set(before.values())
    # Nothing is left of it, and the next plan knows how long it took.
    plan, said = planned(inventory, file, two)
    assert {row["action"] for row in plan["brokers"] + plan["zookeeper"]} == {"unchanged"}
    assert "Nothing to do with brokers and ZooKeeper." in said
    plan, _ = planned(inventory, file, settings % 3)
    assert plan["is_measured"]


def ended_early(lab, inventory: Path, release: str, at: int, how: str) -> None:
    """A deploy of a release that ends at one of its tasks, or without ssh well, if no host is needed any more."""
    program = Path(sys.executable).with_name("ansible-playbook")
    settings = {"landline_version": release, "broker_permit_s": PERMIT_S}
    argv = [str(program), "-i", str(inventory), "deploy.yml", "--tags", "broker", "-e", json.dumps(settings)]
    with ssh_may_be_lost(lab) as lose:
        interrupted(argv, A_TASK, at, lose if how == "lost ssh" else None)


def test_a_deploy_that_ends_at_any_task_is_completed_by_the_next_one(lab, inventory: Path):
    """By ^C, or because ssh does not answer any more. Records are written meanwhile."""
    bootstrap = bootstrap_servers(lab)
    draws = random.Random(SEED)
    print(f"SEED={SEED}")
    tasks = 60
    create_topic(bootstrap, "walked", 3, 3)
    with NumberedLoad(bootstrap, "walked", 3) as load:
        for _ in range(ROUNDS):
            release = VERSION if f"/{NEXT}/" in runs(lab)[0] else NEXT
            for host in lab.hosts:  # it is installed too
                lab.run(host.name, f"rm -rf /opt/landline/releases/{release}")
            at, how = draws.randrange(1, tasks), draws.choice(["^C", "lost ssh"])
            print(f"to {release}, ended at task {at} by {how}")
            ended_early(lab, inventory, release, at, how)
            done = deploy(inventory, f"-e landline_version={release}", f"-e broker_permit_s={PERMIT_S}")
            assert_all_run(lab, release)
            tasks = max(len(re.findall(A_TASK, done.stdout, re.MULTILINE)), tasks)
        assert set(changed(deploy(inventory, f"-e landline_version={release}").stdout).values()) == {0}
    assert load.failed == []
    assert load.acked <= numbers_in(bootstrap, "walked", 3)
