"""A short comparison on the deployed cluster: the brokers' cold start, once in every model."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from lab import Lab
from rig.topics import all_records
from rig.wait import wait_until
from tests.support.lab_cluster import LAB_ENV, running_cluster

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
TOPIC = "landline.lifecycle"
HOSTS = 3
MODELS = {"independent", "push-sequential", "push-parallel"}
# What a broker says it took and what is seen from outside are so far apart at most, on a loaded machine too.
SEEN_WITHIN_US = 3_000_000


def run(*command):
    done = subprocess.run(command, cwd=ROOT, text=True, capture_output=True, timeout=400, check=False)
    print(done.stdout + done.stderr)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


@pytest.fixture(scope="module")
def cluster():
    with running_cluster() as target:
        yield target


@pytest.fixture(scope="module")
def lab(cluster):
    return Lab(os.environ[LAB_ENV])


@pytest.fixture(scope="module")
def comparison(cluster, lab, tmp_path_factory):
    """The directory that a comparison wrote."""
    directory = tmp_path_factory.mktemp("comparison")
    run(str(Path(sys.executable).with_name("ansible-playbook")), "playbooks/compare.yml")
    scope = ["--scenario", "cold-start", "--system", "landline", "--no-growth"]
    where = ["--name", lab.name, "--hosts", str(HOSTS), "--rounds", "1", "--output", str(directory)]
    run(sys.executable, "-m", "compare", "run", *where, *scope)
    return directory


@pytest.fixture(scope="module")
def events(comparison):
    return [json.loads(line) for line in (comparison / "events.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def runs(events):
    """The launcher's word on each run, by model."""
    return {event["model"]: event for event in events if event["step"] == "Run"}


def steps_of(events, run, role, instance):
    """A start's events in their order."""
    found = [
        event
        for event in events
        if (event["run_id"], event["role"], event["instance"], event["kind"])
        == (run["run_id"], role, instance, "start")
    ]
    return sorted(found, key=lambda event: event["seq"])


def test_every_model_brought_every_broker_up(runs):
    assert set(runs) == MODELS
    for event in runs.values():
        figures = event["run"]
        assert event["outcome"] == "ok"
        assert 0 < figures["first_ready_us"] <= figures["all_ready_us"] <= event["end_us"] - event["start_us"]
        assert figures["recovered_us"] is None
        assert not figures["person_acted"]
        assert figures["cpu_ms"] > 0


def test_only_a_push_sends_commands_one_for_each_daemon(runs):
    sent = {model: (event["run"]["commands"], event["run"]["connections"]) for model, event in runs.items()}
    daemons = 2 * HOSTS
    assert sent == {model: (0, 0) if model == "independent" else (daemons, daemons) for model in MODELS}


def test_every_broker_and_zookeepers_quorum_tell_their_start_from_the_process_to_ready(events, runs):
    """The run ends when all brokers serve; a third ZooKeeper server may still be on its way."""
    numbers = [str(number) for number in range(1, HOSTS + 1)]
    for run_event in runs.values():
        steps = {
            role: [[event["step"] for event in steps_of(events, run_event, role, n)] for n in numbers]
            for role in ("broker", "zookeeper")
        }
        assert all((told[0], told[-1]) == ("Process", "Ready") for told in steps["broker"])
        assert steps["zookeeper"].count(["Process", "Election", "Ready"]) > HOSTS // 2


def test_events_are_whole_and_agree_with_each_other(events, runs):
    assert len({event["id"] for event in events}) == len(events)
    by_start = defaultdict(list)
    for event in events:
        by_start[event["start_id"]].append(event)
        assert event["start_us"] <= event["end_us"]
        assert event["boot_id"]
        run_event = next(run for run in runs.values() if run["run_id"] == event["run_id"])
        assert event["model"] == run_event["model"]
        assert event["start_us"] >= run_event["start_us"] or event["kind"] == "stop"
    for found in by_start.values():
        assert sorted(event["seq"] for event in found) == list(range(1, len(found) + 1))


def test_what_is_seen_from_outside_is_what_the_brokers_say(events, runs):
    for run_event in runs.values():
        for number in map(str, range(1, HOSTS + 1)):
            own = steps_of(events, run_event, "broker", number)[-1]
            seen = steps_of(events, run_event, "launcher", f"broker-{number}")[-1]
            assert own["step"] == seen["step"] == "Ready"
            assert abs(seen["end_us"] - own["end_us"]) < SEEN_WITHIN_US


def test_a_push_tells_the_bytes_of_its_connections_and_a_start_by_itself_needs_none(events, runs):
    for model, run_event in runs.items():
        sent = [
            e["bytes"] for e in events if (e["model"], e["role"], e["step"]) == (model, "launcher", "Command")
        ]
        # A login alone takes some thousands.
        assert all(count > 2000 for count in sent)
        assert run_event["bytes"] == sum(sent)
        assert bool(sent) == (model != "independent")


def test_one_after_another_means_that_no_command_overlaps(events, runs):
    commands = {
        model: sorted(
            (event["start_us"], event["end_us"])
            for event in events
            if (event["role"], event["step"], event["model"]) == ("launcher", "Command", model)
        )
        for model in runs
    }
    assert not commands["independent"]
    ordered = commands["push-sequential"]
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(ordered))


def test_afterwards_the_cluster_is_as_it_was_and_the_topic_knows(cluster, lab, comparison, events):
    assert json.loads((comparison / "manifest.json").read_text())["failed_runs"] == []
    for host in lab.hosts:
        units = f"landline-broker@{host.index} zookeeper"
        assert lab.run(host.name, f"systemctl is-active {units}").stdout.split() == ["active", "active"]
        assert lab.run(host.name, f"systemctl is-enabled {units}").stdout.split() == ["enabled", "enabled"]
        spark = lab.run(host.name, "systemctl is-enabled landline-spark-worker", check=False).stdout
        assert spark.strip() == "disabled"
        assert lab.run(host.name, "ls /etc/landline/lifecycle.env", check=False).returncode != 0
    wanted = {event["id"] for event in events if event["role"] != "broker"}

    def published():
        return wanted <= {json.loads(m.value())["id"] for m in all_records(cluster.bootstrap, TOPIC)}

    wait_until(published, timeout=60, interval=1, what="the topic has what the comparison saw")
