"""Judges what was seen of ZooKeeper. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from broker.config.endpoint import host_port
from broker.server.doctor.answers import Dialled
from broker.server.doctor.findings import Finding, Findings, fail, ok, warn
from broker.zookeeper.acl import Acl
from broker.zookeeper.servers import NOT_SERVING
from broker.zookeeper.znodes import BrokerRegistration

_SLOW_MS: Final = 100
_NOT_LISTED: Final = "not in the whitelist"
_CONNECT: Final = "zookeeper.connect"


@dataclass(frozen=True, slots=True)
class EnsembleMember:
    """One server of ``zookeeper.connect``. ``said`` is the first line of its answer to `srvr`, or why there was
    none; ``mode`` is empty without a quorum, or if it does not answer the command.
    """

    address: tuple[str, int]
    dialled: Dialled
    said: str = ""
    mode: str = ""
    version: str = ""
    took_ms: int = 0


@dataclass(frozen=True, slots=True)
class Asked:
    """What a session has seen. ``offsets_ms`` is by how much each broker's clock was ahead of ZooKeeper's."""

    session_ms: int
    read_ms: float
    chroot: str
    exists: bool
    cluster_id: str | None = None
    controller_id: int | None = None
    registered: Mapping[int, BrokerRegistration] = field(default_factory=dict)
    offsets_ms: Mapping[int, int] = field(default_factory=dict)
    acls: Mapping[str, tuple[Acl, ...]] = field(default_factory=dict)


def judge_server(server: EnsembleMember, *, others_serve: bool) -> Finding:
    """A server that is down is a warning while the others have a quorum."""
    address = host_port(*server.address)
    check = f"zookeeper {address}"
    bad = warn if others_serve else fail
    if server.dialled is not Dialled.ANSWERED:
        do = {
            Dialled.NO_NAME: f"correct the host in {_CONNECT}, or make {server.address[0]} known here",
            Dialled.REFUSED: f"start zookeeper.service on {server.address[0]}, or correct the port in {_CONNECT}",
            Dialled.NO_TLS: "is it the server's secureClientPort, and do zookeeper.ssl.* fit its certificate?",
            Dialled.HUNG_UP: "is it the server's clientPort? Its secureClientPort needs zookeeper.ssl.client.enable",
        }.get(server.dialled, "is the host up, and no firewall in between? See its zookeeper.service")
        why = f"{server.dialled.value}{f' ({server.said})' if server.said else ''}"
        return bad(check, why, config=_CONNECT, do=do)
    if server.mode:
        return ok(check, f"{server.mode}, version {server.version}, answers in {server.took_ms} ms")
    if NOT_SERVING in server.said:
        do = "start the other servers of its ensemble: a majority must run and reach each other"
        return bad(check, "runs, but its ensemble has no quorum", config=_CONNECT, do=do)
    said = (
        "does not answer the command srvr" if _NOT_LISTED in server.said or not server.said else server.said
    )
    return warn(
        check, f"accepts connections, {said}", do="set 4lw.commands.whitelist=srvr there to see its mode"
    )


def judge_ensemble(servers: Sequence[EnsembleMember]) -> Findings:
    """Whether the servers are of one ensemble."""
    leaders = [host_port(*each.address) for each in servers if each.mode == "leader"]
    alone = [host_port(*each.address) for each in servers if each.mode == "standalone"]
    if len(leaders) > 1 or (alone and len(servers) > 1):
        return [
            fail(
                "zookeeper",
                f"{', '.join(leaders + alone)} are not of one ensemble: each leads or stands alone",
                config=_CONNECT,
                do=f"name only servers of one ensemble in {_CONNECT}",
            )
        ]
    return []


def judge_session(asked: Asked | str, *, sets_acls: bool) -> Findings:
    """``asked`` is what was seen, or why there was no session."""
    if isinstance(asked, str):
        do = "mend the servers first; if they are well, look at the log-in (landline.zookeeper.*) and at TLS"
        return [fail("zookeeper session", asked, config=_CONNECT, do=do)]
    if not asked.exists:
        return [
            fail(
                "zookeeper session",
                f"the chroot {asked.chroot} does not exist: no broker has ever started in it",
                config=_CONNECT,
                do=f"correct the chroot in {_CONNECT}; the first broker of a new cluster makes it",
            )
        ]
    found = []
    if asked.read_ms > _SLOW_MS:
        do = "look at the disks of ZooKeeper's servers (fsync) and at the network"
        found.append(warn("zookeeper session", f"a read takes {asked.read_ms:.0f} ms", do=do))
    else:
        said = f"opened in {asked.session_ms} ms, a read takes {asked.read_ms:.1f} ms"
        found.append(ok("zookeeper session", said))
    if asked.cluster_id is None:
        found.append(
            warn(
                "cluster",
                f"{asked.chroot or '/'} has no cluster id",
                config=_CONNECT,
                do="no broker has started in this chroot yet: is it the right one?",
            )
        )
    elif asked.controller_id is None:
        do = "is a broker running? The first one becomes the controller"
        found.append(fail("cluster", f"{asked.cluster_id} has no controller", do=do))
    else:
        ids = ", ".join(map(str, sorted(asked.registered)))
        said = f"{asked.cluster_id}, brokers {ids or 'none'}, controller {asked.controller_id}"
        found.append(ok("cluster", said))
    return found + judge_acls(asked.acls, sets_acls=sets_acls)


def judge_acls(acls: Mapping[str, tuple[Acl, ...]], *, sets_acls: bool) -> Findings:
    """Whether the tree is guarded as ``zookeeper.set.acl`` says."""
    check, config = "zookeeper ACLs", "zookeeper.set.acl"
    open_to_all = sorted(
        path
        for path, entries in acls.items()
        if any(entry.scheme == "world" and set(entry.permissions) & set("wcda") for entry in entries)
    )
    if not acls:
        return [ok(check, "no node is there yet, or none may be seen")] if sets_acls else []
    if sets_acls and open_to_all:
        said = f"anybody may change {', '.join(open_to_all)}"
        do = "run zookeeper-security-migration (docs/security.md, ZooKeeper): the key guards only new nodes"
        return [warn(check, said, config=config, do=do)]
    if open_to_all:
        return [
            ok(check, "none: zookeeper.set.acl is false, so whoever reaches ZooKeeper may change the cluster")
        ]
    return [ok(check, "only their creators may change the nodes")]


def judge_missing_listener(broker_id: int, listener: str, registration: BrokerRegistration) -> Finding:
    """A registered broker without this broker's inter-broker listener: neither can follow the other."""
    names = ", ".join(endpoint.listener_name for endpoint in registration.endpoints)
    return fail(
        f"broker {broker_id}",
        f"has no listener {listener}, by which this broker connects to others; it has {names or 'none'}",
        config="inter.broker.listener.name",
        do=f"add {listener} to listeners and advertised.listeners of broker {broker_id}, or correct the key here",
    )
