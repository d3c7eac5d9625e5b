"""A run through every scenario, in a world of three hosts that has the models' two natures and no time to lose."""

from __future__ import annotations

import signal
import threading
from dataclasses import replace

import pytest

from compare import run
from compare.events import now_us
from compare.members import Member
from compare.scenarios import RULES, Model, Planned, Scenario, System, When
from compare.settings import Pace
from compare.watch import Question, Watch
from rig.wait import wait_until

HOSTS = ("h1", "h2", "h3")
START_S = 0.02
# Where a pushed start needs somebody.
NEEDS_A_PERSON = set(Scenario) - {Scenario.COLD_START, Scenario.SLOW_HOST}


QUICK = Pace(patience_s=0.04, outage_s=0.06, during_s=0.01, run_limit_s=8.0, look_s=0.01)


class World:
    """Hosts, their daemons, and the lab's faults: the parts of ``Hosts`` and ``Lab`` that a run uses."""

    def __init__(self, model, start_s):
        self.start_s = start_s
        self.names = list(HOSTS)
        self.lab = self
        self.faults = self
        self.supervised = model is Model.INDEPENDENT
        self.powered = set(HOSTS)
        self.ssh = set(HOSTS)
        self.members = [
            Member(f"broker-{h[1]}", "broker", h[1], h, "u", (), f"x@{h}", "true", True, h) for h in HOSTS
        ]
        self.running = {}
        self.looks = 0
        self.lock = threading.Lock()
        self.done = []

    def start(self, member):
        with self.lock:
            self.running[member.name] = False
        timer = threading.Timer(self.start_s, self._serve, (member,))
        timer.daemon = True
        timer.start()

    def _serve(self, member):
        with self.lock:
            if member.name in self.running:
                self.running[member.name] = True

    def serving(self):
        with self.lock:
            self.looks += 1
            return {name for name, serves in self.running.items() if serves}

    def await_looks(self):
        """Until what is now was seen: when the second look is begun, the first was noted."""
        before = self.looks
        wait_until(lambda: self.looks >= before + 2, interval=0.002)

    def end(self, host):
        with self.lock:
            for member in self.members:
                if member.host == host:
                    self.running.pop(member.name, None)

    # Of Hosts

    def is_on(self, host):
        return host in self.powered

    def on(self):
        return sorted(self.powered)

    def cpu_us(self):
        return 1000 * len(self.done)

    def boot_id(self, host):
        return f"boot-{host}"

    def processes(self, member):
        return [1] if member.name in self.running else []

    def signal(self, member, number):
        assert number is signal.SIGKILL
        self.end(member.host)
        self.await_looks()
        if self.supervised:
            self.start(member)

    def systemctl(self, host, verb, unit):
        assert unit == "ssh.service"
        (self.ssh.discard if verb == "stop" else self.ssh.add)(host)

    # Of Faults

    def throttle(self, host, percent):
        self.done.append(("throttle", host, percent))

    def slow(self, host, kbit):
        self.done.append(("slow", host, kbit))

    def power_loss(self, host):
        self.end(host)
        self.powered.discard(host)

    def boot(self, host):
        self.powered.add(host)
        if self.supervised:
            for member in self.members:
                if member.host == host:
                    self.start(member)

    def reboot(self, host):
        self.power_loss(host)
        self.await_looks()
        self.boot(host)


class WorldsLauncher:
    """Pushes from h1, or lets each host start its own."""

    busy = False
    ended_us = 0

    def __init__(self, world, model):
        self.world = world
        self.push = model.is_push

    def can_start(self):
        return not self.push or self.world.is_on("h1")

    def start(self, members):
        self.ended_us = now_us()
        for member in members:
            reached = not self.push or member.host in self.world.ssh
            if self.world.is_on(member.host) and reached:
                self.world.start(member)

    def finish(self):
        pass

    def launches(self):
        return []


def go(scenario, model, pace=QUICK, start_s=START_S):
    world = World(model, start_s)
    watch = Watch([Question(tuple(m.name for m in world.members), world.serving, 0.002)])
    planned = Planned(1, scenario, System.LANDLINE, model, len(HOSTS), 1)
    return run.OneRun(planned, world.members, world, WorldsLauncher(world, model), watch, pace=pace).go()


@pytest.mark.parametrize("scenario", list(Scenario))
@pytest.mark.parametrize("model", [Model.INDEPENDENT, Model.PUSH_PARALLEL])
def test_every_scenario_ends_with_all_serving(scenario, model):
    record = go(scenario, model)
    figures = record.summary("c")
    assert figures["all_ready_us"] is not None
    assert figures["first_ready_us"] <= figures["all_ready_us"]
    assert (figures["recovered_us"] is None) == (scenario is Scenario.COLD_START)
    assert figures["person_acted"] == (model.is_push and scenario in NEEDS_A_PERSON)


@pytest.mark.parametrize(
    ("scenario", "action"),
    [
        (Scenario.CRASH, "ran the push again for h3"),
        (Scenario.REBOOT, "ran the push again for h3"),
        (Scenario.MASTER_DEAD_BEFORE, "ran the push for h1 h2 h3, late"),
        (Scenario.SSH_REFUSED, "started sshd on h3, ran the push again for h3"),
        (Scenario.HOST_ADDED, "entered h3 in the master's list and ran the push for it"),
    ],
)
def test_a_person_does_what_is_needed_once(scenario, action):
    assert go(scenario, Model.PUSH_SEQUENTIAL).actions == [action]


def test_a_fault_comes_when_its_rule_says():
    for scenario, rule in RULES.items():
        if rule is None or rule.when is When.DURING:
            continue
        record = go(scenario, Model.INDEPENDENT)
        if rule.when is When.BEFORE:
            assert record.fault_us == record.began_us
        else:
            assert record.fault_us >= record.all_ready_us


def test_what_never_serves_is_given_up():
    pace = replace(QUICK, run_limit_s=0.3)
    figures = go(Scenario.COLD_START, Model.INDEPENDENT, pace, start_s=60.0).summary("c")
    assert (figures["first_ready_us"], figures["all_ready_us"]) == (None, None)
    assert not figures["person_acted"]
