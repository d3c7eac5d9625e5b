"""The brokers on a lab's hosts as a ``FaultTarget``: stopped and killed by systemd, reached inside the
lab's network.

``LANDLINE_LAB`` names the lab; ``make cluster-up`` deploys it. One broker per host, with the host's number as
its id.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from lab import Host, Lab
from rig.wait import wait_until
from rig.wire import answers_api_versions, cluster_view

LAB_ENV = "LANDLINE_LAB"
BROKER_PORT = 9092
RETURN_TIMEOUT_S = 90.0


class LabTarget:
    """A lab's brokers, stopped, started and killed as an operator would; use it inside the lab's network."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._hosts = {host.index: host for host in lab.hosts}
        self._killed_pid: dict[int, str] = {}
        self.bootstrap = ",".join(f"{host.address}:{BROKER_PORT}" for host in lab.hosts)

    def broker_ids(self) -> Sequence[int]:
        """All brokers."""
        return sorted(self._hosts)

    def controller_id(self) -> int:
        """The controller that all running brokers agree on."""

        def agreed() -> int:
            serving = [host for host in self._hosts.values() if self._serves(host)]
            named = {cluster_view(host.address, BROKER_PORT).controller_id for host in serving}
            return named.pop() if len(named) == 1 else 0

        return wait_until(
            lambda: max(agreed(), 0), timeout=RETURN_TIMEOUT_S, what="the brokers agree on a controller"
        )

    def stop(self, broker_id: int) -> None:
        """``systemctl stop``."""
        self._systemctl(broker_id, "stop")

    def start(self, broker_id: int) -> None:
        """``systemctl start``, which returns when the broker has reported to systemd that it is ready."""
        self._systemctl(broker_id, "start")
        self._wait_until_serving(broker_id)

    def kill(self, broker_id: int) -> None:
        """SIGKILL to the main process."""
        self._killed_pid[broker_id] = self.main_pid(broker_id)
        self._systemctl(broker_id, "kill", "--signal=KILL")

    def await_return(self, broker_id: int) -> None:
        """Waits until systemd has started another process and that process serves."""
        killed = self._killed_pid.pop(broker_id)
        wait_until(
            lambda: self.main_pid(broker_id) not in {killed, "0"},
            timeout=RETURN_TIMEOUT_S,
            interval=0.5,
            what=f"systemd restarted broker {broker_id}",
        )
        self._wait_until_serving(broker_id)

    def main_pid(self, broker_id: int) -> str:
        """The main process's id on its host; "0" when there is none."""
        return self._systemctl(broker_id, "show", "--property=MainPID", "--value").strip()

    def _systemctl(self, broker_id: int, verb: str, *options: str) -> str:
        unit = f"landline-broker@{broker_id}.service"
        done = self._lab.run(self._hosts[broker_id].name, ["systemctl", verb, *options, unit])
        return str(done.stdout)

    def _serves(self, host: Host) -> bool:
        return answers_api_versions(host.address, BROKER_PORT)

    def _wait_until_serving(self, broker_id: int) -> None:
        host = self._hosts[broker_id]
        wait_until(lambda: self._serves(host), timeout=RETURN_TIMEOUT_S, what=f"broker {broker_id} serves")


@contextmanager
def running_cluster() -> Iterator[LabTarget]:
    """The deployed cluster, with this thread (and what it starts) in the lab's network; skips if there
    is none.
    """
    name = os.environ.get(LAB_ENV, "")
    if not name or not Lab(name).exists:
        pytest.skip(f"no cluster: run `make cluster-up`, then set {LAB_ENV} to the lab's name (now {name!r})")
    lab = Lab(name)
    with lab.inside():
        target = LabTarget(lab)
        if len(target.broker_ids()) < 3:
            pytest.skip(f"lab {name!r} has {len(target.broker_ids())} hosts, this needs 3")
        yield target
