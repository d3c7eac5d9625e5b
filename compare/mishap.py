"""Injects a scenario's fault on a host, and undoes it. Each call returns when it is done."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from compare.hosts import Hosts
from compare.members import Member
from compare.scenarios import Fault
from compare.settings import SLOW_CPU_PERCENT, SLOW_KBIT

SSH_UNIT = "ssh.service"


def inflict(hosts: Hosts, fault: Fault, victim: str, members: Sequence[Member]) -> None:
    """Injects the fault. A crash hits the victim's serving member among ``members``. Raises LabError."""
    faults = hosts.lab.faults
    match fault:
        case Fault.SLOW:
            faults.throttle(victim, SLOW_CPU_PERCENT)
            faults.slow(victim, SLOW_KBIT)
        case Fault.NO_POWER:
            faults.power_loss(victim)
        case Fault.KILLED:
            for member in members:
                if member.host == victim and member.serves:
                    hosts.signal(member, signal.SIGKILL)
        case Fault.REBOOTED:
            faults.reboot(victim)
        case Fault.NO_SSH:
            hosts.systemctl(victim, "stop", SSH_UNIT)
        case Fault.HELD_BACK:
            pass


def power_back(hosts: Hosts, victim: str) -> None:
    """Boots the host. Raises LabError."""
    hosts.lab.faults.boot(victim)


def let_ssh_in(hosts: Hosts, victim: str) -> None:
    """Allows ssh again. Raises LabError."""
    hosts.systemctl(victim, "start", SSH_UNIT)


def mend(hosts: Hosts) -> None:
    """Restores the state before any fault: power, processors, cables, ssh. Raises LabError."""
    faults = hosts.lab.faults
    for host in hosts.names:
        faults.throttle(host, 0)
    faults.heal()
    for host in hosts.names:
        if not hosts.is_on(host):
            faults.boot(host)
        let_ssh_in(hosts, host)
    for host in hosts.names:  # the shared connection that a later push uses
        hosts.lab.run(host, "true")
