"""The cluster under test: brokers as systemd units on a lab's hosts. Tells when the cluster is whole after
a fault.

Commands reach a host over its console, not the network, so they work on a host whose cables are cut. A
``Product`` describes the kind of broker: the same suite breaks Landline and Apache Kafka. Use it inside the
lab's network (``lab.inside()``).
"""

from __future__ import annotations

import contextlib
import http.client
import json
import shutil
import socket
import subprocess
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from chaos.coordination import GROUP_TOPIC, TRANSACTION_TOPIC, Coordination, UnknownError
from lab import HostState, Lab
from rig.wait import last_for, wait_until
from rig.wire import answers_api_versions, cluster_view

ZOOKEEPER_PORT = 2181
ZOOKEEPER_UNIT = "zookeeper.service"
COMMAND_TIMEOUT_S = 150.0
POLL_S = 0.2
_STATUS_S = 1.5  # /status may be as old as this

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Product:
    """A kind of broker and its deployment; broker N is on host hN. ``{id}`` stands for the broker's id."""

    name: str
    unit: str
    port: int
    chroot: str
    data_dir: str
    """On the host, below /var/lib."""
    http_port: int = 0
    """The port at which brokers report what they lead (``/status``); 0: none."""


LANDLINE = Product("Landline", "landline-broker@{id}.service", 9092, "", "landline/broker-{id}", 8092)


class NotHealedError(Exception):
    """The cluster is not whole again in time; the message says what is missing."""


class ClusterUnderTest:
    """Three or more brokers of one product, one on each host of a lab."""

    def __init__(self, lab: Lab, product: Product, coordination: Coordination) -> None:
        self.lab = lab
        self.product = product
        self.coordination = coordination
        self._addresses = {host.index: host.address for host in lab.hosts}
        self.broker_ids: Sequence[int] = sorted(self._addresses)
        self.bootstrap = ",".join(f"{address}:{product.port}" for address in self._addresses.values())

    # Actions on brokers

    def host(self, broker_id: int) -> str:
        """The name of the broker's host."""
        return f"h{broker_id}"

    def address(self, broker_id: int) -> str:
        """The address of the broker's host."""
        return self._addresses[broker_id]

    def on_host(self, broker_id: int, *command: str, check: bool = True) -> str:
        """Runs a command on the broker's host; returns its output."""
        host = self.host(broker_id)
        done = self.lab.run_on_console(host, list(command), check=check, timeout_s=COMMAND_TIMEOUT_S)
        return done.stdout.strip()

    def systemctl(self, broker_id: int, verb: str, *options: str, check: bool = True) -> str:
        """Runs ``systemctl VERB`` on the broker's unit."""
        unit = self.product.unit.format(id=broker_id)
        return self.on_host(broker_id, "systemctl", verb, *options, unit, check=check)

    def signal(self, broker_id: int, name: str) -> None:
        """Sends a signal to the broker's main process, if there is one."""
        self.systemctl(broker_id, "kill", f"--signal={name}", "--kill-whom=main", check=name == "KILL")

    def main_pid(self, broker_id: int) -> str:
        """The main process's id on its host; "0" when there is none."""
        return self.systemctl(broker_id, "show", "--property=MainPID", "--value")

    def each(self, work: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """Does the work for all items in parallel. The threads are in this thread's network namespace."""
        todo = list(items)
        with ThreadPoolExecutor(max_workers=max(1, len(todo))) as pool:
            return list(pool.map(work, todo))

    # Roles

    def zookeeper_servers(self) -> tuple[int, ...]:
        """The numbers of the hosts that have a ZooKeeper server."""
        return tuple(self.broker_ids)[:3]

    def zookeeper_leader(self) -> int:
        """The number of the host whose ZooKeeper server leads the ensemble."""
        return wait_until(self._zookeeper_leader, timeout=60, what="the ensemble has a leader")

    def _zookeeper_leader(self) -> int:
        return next((each for each, mode in self._zookeeper_modes().items() if mode == "Mode: leader"), 0)

    def _zookeeper_modes(self) -> Mapping[int, str]:
        """The mode line of each host's server; "" where none answers."""
        answers = {each: _four_letter_word(self._addresses[each], "srvr") for each in self.broker_ids}
        return {
            each: next((line for line in answer.splitlines() if line.startswith("Mode: ")), "")
            for each, answer in answers.items()
        }

    # Health

    def problems(self, topics: Iterable[str]) -> list[str]:
        """Descriptions of what is wrong; empty when every broker serves and every ISR is complete."""
        try:
            missing = set(self.broker_ids) - self.coordination.registered()
            if missing:
                return [f"brokers {sorted(missing)} are not registered"]
            controller = self.coordination.controller()
            known = self.coordination.topics()
            watched = [*topics, *(each for each in (GROUP_TOPIC, TRANSACTION_TOPIC) if each in known)]
            found = [str(each) for each in self.coordination.partitions(watched) if not each.in_sync]
        except UnknownError as error:
            return [f"ZooKeeper: {error}"]
        return found or self._split_ensemble() or self._dissenters(controller) or self._undecided()

    def _split_ensemble(self) -> list[str]:
        """Reports an ensemble without exactly one leader.

        After a frozen leader resumes, two servers lead for a moment, and the old one ends sessions that are
        still alive.
        """
        modes = self._zookeeper_modes()
        well = [*["Mode: follower"] * (len(modes) - 1), "Mode: leader"]
        return [] if sorted(modes.values()) == well else [f"the ensemble is not one: {modes}"]

    def _undecided(self) -> list[str]:
        """Partitions whose leader is about to remove a replica from the ISR: ZooKeeper does not show
        this yet.
        """
        if not self.product.http_port:
            return []
        found = self._unsure()
        if not found:
            last_for(_STATUS_S)  # the reports may be older than the state that was read first
            found = self._unsure()
        return found

    def _unsure(self) -> list[str]:
        found = []
        for each in self.broker_ids:
            try:
                rows = _status(self._addresses[each], self.product.http_port)["leading"]
            except (OSError, ValueError, KeyError) as error:
                found.append(f"broker {each} does not tell its status: {error!r}")
                continue
            found += [
                f"{row['topic']}-{row['partition']} leader {each} is sure of {row['isr']} of {row['replicas']}"
                for row in rows
                if set(row["isr"]) != set(row["replicas"])
            ]
        return found

    def _dissenters(self, controller: int) -> list[str]:
        """Brokers that do not serve, or that report another controller or fewer brokers to clients."""
        found = []
        for each in self.broker_ids:
            try:
                view = cluster_view(self._addresses[each], self.product.port)
            except OSError as error:
                found.append(f"broker {each} does not serve: {error}")
                continue
            if view.controller_id != controller or set(view.ports) != set(self.broker_ids):
                told = f"controller {view.controller_id} and brokers {sorted(view.ports)}"
                found.append(f"broker {each} tells of {told}; the controller is {controller}")
        return found

    def await_whole(self, topics: Iterable[str], timeout_s: float) -> str:
        """Waits until there are no ``problems``; raises ``NotHealedError`` with the remaining ones.

        Returns the last problem that was missing.
        """
        watched, last, before = list(topics), ["nothing was looked at"], [""]

        def whole() -> bool:
            last[:] = self.problems(watched)
            before[:] = last[:1] or before
            return not last

        try:
            wait_until(whole, timeout=timeout_s, interval=POLL_S)
        except TimeoutError:
            shown = "; ".join(last[:8]) + (f" and {len(last) - 8} more" if len(last) > 8 else "")
            raise NotHealedError(f"not whole after {timeout_s:.0f} s: {shown}") from None
        return before[0]

    def await_serving(self, broker_id: int, timeout_s: float = 90.0) -> None:
        """Waits until the broker is registered and answers clients."""
        wait_until(
            lambda: broker_id in self.coordination.registered() and self.answers(broker_id),
            timeout=timeout_s,
            interval=POLL_S,
            what=f"broker {broker_id} serves",
        )

    def answers(self, broker_id: int) -> bool:
        """Whether it answers a client now."""
        return answers_api_versions(self._addresses[broker_id], self.product.port, timeout_s=1.0)

    def restore(self) -> None:
        """Ends all possible faults: at the start, and after an error in the middle of a round."""
        self.lab.faults.heal()
        states = {each.host.index: each.state for each in self.lab.status()}
        self.each(self._restore_host, [(each, states[each]) for each in self.broker_ids])

    def _restore_host(self, host: tuple[int, HostState]) -> None:
        number, state = host
        name, faults = self.host(number), self.lab.faults
        if state is HostState.FROZEN:
            faults.thaw(name)
        if self.has_data_disks:
            faults.thaw_disk(name)
            faults.free_disk(name)
            if any("read-only" in each for each in self._faults_of(number)):
                faults.power_loss(name)
                state = HostState.OFF
        if state is HostState.OFF:
            faults.boot(name)
        self.open_zookeeper_port(number)
        self.on_host(number, "systemctl", "kill", "--signal=CONT", ZOOKEEPER_UNIT, check=False)
        self.on_host(number, "systemctl", "start", ZOOKEEPER_UNIT)
        self.signal(number, "CONT")
        self.systemctl(number, "reset-failed", check=False)
        self.systemctl(number, "start", "--no-block")

    def _faults_of(self, number: int) -> Iterable[str]:
        return next(each.faults for each in self.lab.status() if each.host.index == number)

    # ZooKeeper's port as one broker sees it

    def close_zookeeper_port(self, broker_id: int) -> None:
        """Drops traffic from this host's broker to every ZooKeeper server, including that on its own host."""
        rules = (
            "add table inet chaos; flush table inet chaos; "
            "add chain inet chaos out { type filter hook output priority 0; }; "
            f"add rule inet chaos out tcp dport {ZOOKEEPER_PORT} drop"
        )
        self.on_host(broker_id, "nft", rules)

    def hold_zookeepers_answers(self, broker_id: int) -> None:
        """Delays ZooKeeper's answers to this host's broker.

        ZooKeeper receives the broker's requests and executes them. The answers arrive when they are let
        through, or never, if the connection is closed before that.
        """
        rules = (
            "add table inet chaos; flush table inet chaos; "
            "add chain inet chaos in { type filter hook input priority 0; }; "
            f"add rule inet chaos in tcp sport {ZOOKEEPER_PORT} tcp flags & psh == psh drop"
        )
        self.on_host(broker_id, "nft", rules)

    def open_zookeeper_port(self, broker_id: int) -> None:
        """Undoes ``close_zookeeper_port`` and ``hold_zookeepers_answers``."""
        self.on_host(broker_id, "nft", "add table inet chaos; delete table inet chaos", check=False)

    # Evidence

    @property
    def has_data_disks(self) -> bool:
        """Whether disks can be filled and can lose what was not synced."""
        return self.lab.state.data_disk_mb > 0

    def log_dirs(self) -> Mapping[int, Path]:
        """Each broker's log dir, as the controller of the lab sees it."""
        return {each: self._data_path(each) for each in self.broker_ids}

    def replica_dirs(self, topics: Iterable[str], directory: Path) -> Mapping[int, Path]:
        """The current replicas of these topics' partitions and of the groups' offsets, as directories
        by broker.

        Each directory, below ``directory``, has links to the broker's replicas. A replica that was moved away
        while its broker was down stays in the log dir, as with Kafka, and is not included.
        """
        log_dirs, linked = self.log_dirs(), {each: directory / f"broker-{each}" for each in self.broker_ids}
        shutil.rmtree(directory, ignore_errors=True)
        for path in linked.values():
            path.mkdir(parents=True)
        for view in self.coordination.partitions([*topics, GROUP_TOPIC]):
            for broker in view.replicas:
                name = f"{view.topic}-{view.number}"
                (linked[broker] / name).symlink_to(log_dirs[broker] / name)
        return linked

    def _data_path(self, broker_id: int) -> Path:
        files = self.lab.files
        inside = Path(self.product.data_dir.format(id=broker_id))
        host = self.lab.host(self.host(broker_id))
        if self.has_data_disks:
            return files.host(host) / "data" / inside.relative_to("landline")
        return files.root(host) / "var/lib" / inside

    def journal(self, broker_id: int, since_s: float) -> str:
        """A host's journal since a time (seconds since 1970), even if the host is off."""
        options = [f"--since=@{since_s:.0f}", "--output=short-iso-precise", "--no-pager"]
        argv = self.lab.journal_argv(self.host(broker_id), options)
        return subprocess.run(argv, capture_output=True, text=True, errors="replace", check=False).stdout


def zookeeper_connect(lab: Lab, chroot: str = "") -> str:
    """The connect string of the ensemble on the lab's first three hosts."""
    return ",".join(f"{host.address}:{ZOOKEEPER_PORT}" for host in lab.hosts[:3]) + chroot


@contextlib.contextmanager
def cluster_of(lab: Lab, product: Product = LANDLINE) -> Iterator[ClusterUnderTest]:
    """The product's cluster in a running lab. This thread and what it starts are in the lab's network."""
    with lab.inside(), Coordination(zookeeper_connect(lab, product.chroot)) as coordination:
        yield ClusterUnderTest(lab, product, coordination)


def _status(address: str, port: int) -> Any:
    """A broker's /status. Raises OSError, ValueError."""
    try:
        with urllib.request.urlopen(f"http://{address}:{port}/status", timeout=2.0) as answer:
            return json.load(answer)
    except http.client.HTTPException as error:  # it went down while answering
        raise OSError(f"half an answer of {address}:{port}: {error}") from error


def _four_letter_word(address: str, word: str) -> str:
    try:
        with socket.create_connection((address, ZOOKEEPER_PORT), timeout=1.0) as connection:
            connection.sendall(word.encode())
            return b"".join(iter(lambda: connection.recv(65536), b"")).decode()
    except OSError:
        return ""
