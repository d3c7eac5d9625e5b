"""The faults of brokers and their coordination: each is a pair of actions, inject and heal.

A fault gets its ``Victims``, which the round has just chosen by a role; it decides nothing itself. If systemd
repairs a fault by itself (it restarts a killed broker), there is nothing to heal.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from chaos.cluster import ZOOKEEPER_UNIT, ClusterUnderTest
from chaos.coordination import UnknownError
from lab import Direction
from rig.wait import wait_until

BOUNCES = 5
LOSS_PERCENT = 25.0
SLOW_KBIT = 700.0
"""Less than a follower needs under the suite's load, enough for heartbeats."""
RETURN_TIMEOUT_S = 120.0


class Role(enum.StrEnum):
    """The role of a fault's victim; resolved when the fault is injected."""

    LEADER = "leader"
    FOLLOWER = "follower"
    CONTROLLER = "controller"
    COORDINATOR = "group coordinator"
    TRANSACTION_COORDINATOR = "transaction coordinator"
    ALL = "all brokers"
    ZOOKEEPER_LEADER = "ZooKeeper leader"
    ENSEMBLE = "ZooKeeper ensemble"


@dataclass(frozen=True, slots=True)
class Victims:
    """The affected brokers (or hosts of ZooKeeper servers), and the other end if a fault has two."""

    ids: tuple[int, ...]
    peer: int

    def __str__(self) -> str:
        return ",".join(map(str, self.ids))


Action = Callable[[ClusterUnderTest, Victims], None]


@dataclass(frozen=True, slots=True)
class Fault:
    """A way to break something, and how to heal it."""

    name: str
    inject: Action
    heal: Action
    needs_data_disk: bool = False


def on_each(action: Callable[[ClusterUnderTest, int], object]) -> Action:
    """An action on all victims in parallel."""

    def act(cluster: ClusterUnderTest, victims: Victims) -> None:
        cluster.each(lambda each: action(cluster, each), victims.ids)

    return act


def _nothing(_: ClusterUnderTest, __: Victims) -> None:
    """Healed by systemd, or by the injection itself."""


def _kill(cluster: ClusterUnderTest, broker: int) -> None:
    cluster.signal(broker, "KILL")


def _stop(cluster: ClusterUnderTest, broker: int) -> None:
    cluster.systemctl(broker, "stop")


def _start(cluster: ClusterUnderTest, broker: int) -> None:
    cluster.systemctl(broker, "start")


def _pause(cluster: ClusterUnderTest, broker: int) -> None:
    cluster.signal(broker, "STOP")


def _continue(cluster: ClusterUnderTest, broker: int) -> None:
    cluster.signal(broker, "CONT")


def _freeze_host(cluster: ClusterUnderTest, broker: int) -> None:
    cluster.lab.faults.freeze(cluster.host(broker))


def _thaw_host(cluster: ClusterUnderTest, broker: int) -> None:
    cluster.lab.faults.thaw(cluster.host(broker))


def _power_loss(cluster: ClusterUnderTest, victims: Victims) -> None:
    """A single host also loses what its disk had not synced. Not all hosts at once: no broker promises to
    survive that.
    """
    lose_unsynced = cluster.has_data_disks and len(victims.ids) == 1
    for each in victims.ids:
        cluster.lab.faults.power_loss(cluster.host(each), lose_unsynced=lose_unsynced)


def _boot(cluster: ClusterUnderTest, _: Victims) -> None:
    cluster.lab.up()


def _bounce_clean(cluster: ClusterUnderTest, broker: int) -> None:
    for _ in range(BOUNCES):
        cluster.systemctl(broker, "restart")


def _bounce_hard(cluster: ClusterUnderTest, broker: int) -> None:
    for _ in range(BOUNCES):
        dead = cluster.main_pid(broker)
        _kill(cluster, broker)
        _await_successor(cluster, broker, dead)


def _await_successor(cluster: ClusterUnderTest, broker: int, dead: str) -> None:
    wait_until(
        lambda: cluster.main_pid(broker) not in {dead, "0"} and cluster.answers(broker),
        timeout=RETURN_TIMEOUT_S,
        interval=0.2,
        what=f"systemd restarted broker {broker}",
    )


def _cut_peer(direction: Direction) -> Action:
    def act(cluster: ClusterUnderTest, victims: Victims) -> None:
        for each in victims.ids:
            cluster.lab.faults.cut(cluster.host(each), cluster.host(victims.peer), direction)

    return act


def _cut_all_peers(cluster: ClusterUnderTest, victims: Victims) -> None:
    """Clients still reach the victim; the other brokers and their ZooKeeper servers do not."""
    for each in victims.ids:
        for other in set(cluster.broker_ids) - {each}:
            cluster.lab.faults.cut(cluster.host(each), cluster.host(other))


def _isolate(direction: Direction) -> Action:
    def act(cluster: ClusterUnderTest, victims: Victims) -> None:
        for each in victims.ids:
            cluster.lab.faults.cut(cluster.host(each), None, direction)

    return act


def _mend_cables(cluster: ClusterUnderTest, _: Victims) -> None:
    cluster.lab.faults.heal()


def _lose(cluster: ClusterUnderTest, broker: int) -> None:
    cluster.lab.faults.lose(cluster.host(broker), LOSS_PERCENT)


def _slow(cluster: ClusterUnderTest, broker: int) -> None:
    cluster.lab.faults.slow(cluster.host(broker), SLOW_KBIT)


def _cut_zookeeper(cluster: ClusterUnderTest, broker: int) -> None:
    cluster.close_zookeeper_port(broker)


def _mend_zookeeper(cluster: ClusterUnderTest, broker: int) -> None:
    cluster.open_zookeeper_port(broker)


def _expire_session(cluster: ClusterUnderTest, broker: int) -> None:
    """Keeps the broker from ZooKeeper until ZooKeeper has expired its session, and no longer."""
    cluster.close_zookeeper_port(broker)
    try:
        wait_until(
            lambda: broker not in _registered(cluster),
            timeout=60,
            interval=0.1,
            what=f"the session of broker {broker} ends",
        )
    finally:
        cluster.open_zookeeper_port(broker)


def _registered(cluster: ClusterUnderTest) -> frozenset[int]:
    try:
        return cluster.coordination.registered()
    except UnknownError:
        return frozenset(cluster.broker_ids)


def _fill_disk(cluster: ClusterUnderTest, broker: int) -> None:
    cluster.lab.faults.fill_disk(cluster.host(broker))


def _free_disk(cluster: ClusterUnderTest, broker: int) -> None:
    cluster.lab.faults.free_disk(cluster.host(broker))


def _read_only_disk(cluster: ClusterUnderTest, broker: int) -> None:
    cluster.lab.faults.read_only_disk(cluster.host(broker))


def _repair_disk(cluster: ClusterUnderTest, victims: Victims) -> None:
    """A file system that failed under open files is writable again only after a check, so only after
    a boot.
    """
    for each in victims.ids:
        cluster.lab.faults.power_loss(cluster.host(each))
    cluster.lab.up()


def _freeze_disk(cluster: ClusterUnderTest, broker: int) -> None:
    cluster.lab.faults.freeze_disk(cluster.host(broker))


def _thaw_disk(cluster: ClusterUnderTest, broker: int) -> None:
    cluster.lab.faults.thaw_disk(cluster.host(broker))


def _hold_zookeepers_answers(cluster: ClusterUnderTest, broker: int) -> None:
    cluster.hold_zookeepers_answers(broker)


def _majority(action: Callable[[ClusterUnderTest, int], object]) -> Action:
    """An action on so many servers that the rest are no quorum."""

    def act(cluster: ClusterUnderTest, victims: Victims) -> None:
        servers = cluster.zookeeper_servers()
        on_each(action)(cluster, Victims(servers[: len(servers) // 2 + 1], victims.peer))

    return act


def _pause_zookeeper(cluster: ClusterUnderTest, server: int) -> None:
    cluster.on_host(server, "systemctl", "kill", "--signal=STOP", ZOOKEEPER_UNIT)


def _continue_zookeeper(cluster: ClusterUnderTest, server: int) -> None:
    cluster.on_host(server, "systemctl", "kill", "--signal=CONT", ZOOKEEPER_UNIT)


def _stop_zookeeper(cluster: ClusterUnderTest, server: int) -> None:
    cluster.on_host(server, "systemctl", "stop", ZOOKEEPER_UNIT)


def _start_zookeeper(cluster: ClusterUnderTest, server: int) -> None:
    cluster.on_host(server, "systemctl", "start", ZOOKEEPER_UNIT)


_ALL = (
    Fault("SIGKILL", on_each(_kill), _nothing),
    Fault("SIGTERM", on_each(_stop), on_each(_start)),
    Fault("SIGSTOP", on_each(_pause), on_each(_continue)),
    Fault("freeze", on_each(_freeze_host), on_each(_thaw_host)),
    Fault("power loss", _power_loss, _boot),
    Fault("five clean bounces", on_each(_bounce_clean), _nothing),
    Fault("five hard bounces", on_each(_bounce_hard), _nothing),
    Fault("cut from a broker", _cut_peer(Direction.BOTH), _mend_cables),
    Fault("cut from a broker, inwards", _cut_peer(Direction.IN), _mend_cables),
    Fault("cut from a broker, outwards", _cut_peer(Direction.OUT), _mend_cables),
    Fault("cut from all brokers", _cut_all_peers, _mend_cables),
    Fault("isolated", _isolate(Direction.BOTH), _mend_cables),
    Fault("isolated, inwards", _isolate(Direction.IN), _mend_cables),
    Fault("isolated, outwards", _isolate(Direction.OUT), _mend_cables),
    Fault("packet loss", on_each(_lose), _mend_cables),
    Fault("low bandwidth", on_each(_slow), _mend_cables),
    Fault("cut from ZooKeeper", on_each(_cut_zookeeper), on_each(_mend_zookeeper)),
    Fault("session expiry", on_each(_expire_session), on_each(_mend_zookeeper)),
    Fault("full disk", on_each(_fill_disk), on_each(_free_disk), needs_data_disk=True),
    Fault("read-only disk", on_each(_read_only_disk), _repair_disk, needs_data_disk=True),
    Fault("disk stands still", on_each(_freeze_disk), on_each(_thaw_disk), needs_data_disk=True),
    Fault("ZooKeeper's answers held back", on_each(_hold_zookeepers_answers), on_each(_mend_zookeeper)),
    Fault("ZooKeeper quorum gone", _majority(_stop_zookeeper), _majority(_start_zookeeper)),
    Fault("ZooKeeper leader frozen", on_each(_pause_zookeeper), on_each(_continue_zookeeper)),
    Fault("ZooKeeper ensemble gone", on_each(_stop_zookeeper), on_each(_start_zookeeper)),
)
FAULTS: Mapping[str, Fault] = {fault.name: fault for fault in _ALL}
