"""Prepares a lab for runs: which units are enabled, what is started, what is watched; and restores
it afterwards.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field

from compare import members as kinds
from compare import mishap
from compare.hosts import Hosts
from compare.members import Member, Program
from compare.scenarios import Model, Planned, System
from compare.settings import BROKER_HTTP_PORT, MASTER_POLL_S, POLL_S, PROBE_TIMEOUT_S
from compare.watch import Look, Question, Watch, http_ready
from lab import Lab, LabError, UsageError
from lab.inventory import zookeeper_count
from lab.waiting import wait_until
from sparkctl.inventory import Host
from sparkctl.master import fetch_view

# The other service that starts by itself on these hosts and would use CPU time.
ASIDE = "landline-journal-shipper.service"
RESTORE_TIMEOUT_S = 120.0


@dataclass(slots=True)
class Bench:
    """One lab's bench. Use it inside the lab's network."""

    hosts: Hosts
    programs: dict[str, Program] = field(default_factory=dict)
    _enabled: set[str] | None = None

    @classmethod
    def of(cls, lab: Lab, count: int) -> Bench:
        """Raises UsageError if the lab is too small, or not deployed with one broker per host."""
        bench = cls(Hosts(lab))
        if count > len(bench.hosts.names):
            raise UsageError(f"lab {lab.name!r} has {len(bench.hosts.names)} hosts, not {count}")
        for host in bench.hosts.names:
            bench._read_programs(host)
        return bench

    def members(self, planned: Planned, run_id: str) -> list[Member]:
        """The members that this run starts."""
        return self._members(planned.system, planned.model, planned.hosts, run_id)

    def everything(self) -> list[Member]:
        """All members that any run may have started; those that serve come first."""
        count = len(self.hosts.names)
        found = [m for s in System for m in self._members(s, Model.INDEPENDENT, count, "")]
        return sorted(found, key=lambda member: not member.serves)

    def watch(self, planned: Planned, members: Sequence[Member]) -> Watch:
        """A watch that checks whether the run's members serve."""
        serving = [member for member in members if member.serves]
        if planned.system is System.LANDLINE:
            return Watch(
                Question((m.name,), http_ready(m.name, m.address, BROKER_HTTP_PORT), POLL_S) for m in serving
            )
        names = {member.address: member.name for member in serving}
        look = _alive(kinds.spark_cluster(self._peers(planned.hosts)).ui_urls()[0], names)
        return Watch([Question(tuple(names.values()), look, MASTER_POLL_S)])

    def arrange(self, system: System, model: Model) -> None:
        """Enables the units that the model starts at boot, and no others. Raises LabError."""
        enabled = {member.unit for member in self._members(system, model, len(self.hosts.names), "")}
        if model.is_push:
            enabled = set()
        if enabled != self._enabled:
            self._enable(enabled)

    def stop_everything(self) -> list[str]:
        """Stops everything; returns the names of members that had to be killed. Raises LabError."""
        everything = self.everything()
        stubborn = self.hosts.stop([member for member in everything if member.serves])
        return stubborn + self.hosts.stop([member for member in everything if not member.serves])

    def clear(self) -> list[str]:
        """Repairs every fault and stops everything; returns the names of members that had to be killed.
        Raises LabError.
        """
        mishap.mend(self.hosts)
        stubborn = self.stop_everything()
        self.hosts.forget_pids()
        return stubborn

    def set_aside(self, aside: bool) -> None:
        """Stops the other service on the hosts, or lets it run again, where it is installed."""
        verb = "disable" if aside else "enable"
        self.hosts.everywhere(lambda host: self.hosts.systemctl(host, verb, "--now", ASIDE, check=False))

    def restore(self) -> None:
        """Restores the deployed state: ZooKeeper and brokers run and start at boot, Spark does not.
        Raises LabError.
        """
        self.clear()
        self.hosts.forget_lifecycle()
        members = self._members(System.LANDLINE, Model.INDEPENDENT, len(self.hosts.names), "")
        self._enable({member.unit for member in members})
        units = {host: [m.unit for m in members if m.host == host] for host in self.hosts.names}
        self.hosts.everywhere(lambda host: self.hosts.systemctl(host, "start", "--no-block", *units[host]))
        looks = [http_ready(m.name, m.address, BROKER_HTTP_PORT) for m in members if m.serves]
        if not wait_until(lambda: all(look() for look in looks), RESTORE_TIMEOUT_S, 0.2):
            raise LabError(f"the brokers do not all serve {RESTORE_TIMEOUT_S:g} s after the comparison")
        self.set_aside(False)

    def _enable(self, enabled: set[str]) -> None:
        """Enables these units on each host, and disables its other ones."""
        units = {host: {m.unit for m in self.everything() if m.host == host} for host in self.hosts.names}

        def settle(host: str) -> None:
            for verb, names in (("enable", units[host] & enabled), ("disable", units[host] - enabled)):
                if names:
                    self.hosts.systemctl(host, verb, "--quiet", *sorted(names))

        self.hosts.everywhere(settle)
        self._enabled = enabled

    def _members(self, system: System, model: Model, count: int, run_id: str) -> list[Member]:
        if system is System.SPARK:
            return kinds.spark_members(self._peers(count))
        return kinds.landline_members(
            self._peers(count),
            self._peers(zookeeper_count(len(self.hosts.names))),
            self.programs,
            run_id,
            model,
        )

    def _peers(self, count: int) -> list[Host]:
        return [Host(host.name, host.address, host.address) for host in self.hosts.lab.hosts[:count]]

    def _read_programs(self, host: str) -> None:
        number = self.hosts.lab.host(host).index
        units = {f"broker-{host}": kinds.broker_unit(number)}
        if number <= zookeeper_count(len(self.hosts.names)):
            units[f"zookeeper-{host}"] = kinds.ZOOKEEPER_UNIT
        for name, unit in units.items():
            wanted = "--property=ExecStart,Environment,EnvironmentFiles"
            try:
                self.programs[name] = kinds.program(self.hosts.systemctl(host, "show", wanted, unit))
            except ValueError as error:
                raise UsageError(f"{host} has no {unit}: deploy to the lab first ({error})") from error


def _alive(url: str, names: dict[str, str]) -> Look:
    """The workers that the master reports as ALIVE."""
    fetch = functools.partial(fetch_view, url, PROBE_TIMEOUT_S)

    def look() -> set[str]:
        view = fetch()
        if view is None or view.status != "ALIVE":
            return set()
        return {names[address] for address in view.alive_hosts() if address in names}

    return look
