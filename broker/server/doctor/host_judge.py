"""Judges what was found on a broker's host. Pure; `host_facts` reads it.

Each function returns the findings of one check, at least one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from broker.log.free_space import FreeSpaceFloor, Space
from broker.server.doctor.findings import Finding, Findings, fail, ok, warn

GIB: Final = 1 << 30
_FEW_FILES: Final = 100_000
_FEW_BYTES: Final = 256 << 20
_SOON_DAYS: Final = 30
_LARGE_OFFSET_MS: Final = 1_000
_BAD_OFFSET_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class Mount:
    """The mount that a path is on. ``missing`` is the mount point of fstab above the path where nothing is
    mounted, if there is one.
    """

    point: str
    kind: str
    read_only: bool
    missing: str | None = None


@dataclass(frozen=True, slots=True)
class LogDirFacts:
    """A log directory. ``mount`` and ``space`` are of its nearest parent if it does not exist. ``uid`` owns it,
    ``foreign`` has the first files in it that belong to another user. ``broker_id`` and ``cluster_id`` are those of
    its meta.properties, ``damage`` says why it cannot be read. ``failure`` is the running broker's reason not to
    use the directory.
    """

    path: str
    exists: bool
    mount: Mount
    space: Space
    uid: int = 0
    foreign: Collection[str] = ()
    broker_id: int | None = None
    cluster_id: str | None = None
    damage: str | None = None
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class Owner:
    """The user that the broker runs as."""

    uid: int
    name: str


def judge_log_dir(
    facts: LogDirFacts, floor: FreeSpaceFloor, owner: Owner | None, own: tuple[int | None, str | None]
) -> Findings:
    """``own`` has the broker id of the properties, and the cluster id in ZooKeeper; each None if unknown."""
    check, found = f"log dir {facts.path}", []

    def failed(said: str, do: str, config: str = "log.dirs") -> None:
        found.append(fail(check, said, config=config, do=do))

    if facts.mount.missing is not None:
        failed(
            f"{facts.mount.missing} of /etc/fstab is not mounted, so the directory is on {facts.mount.point}",
            f"mount {facts.mount.missing} before the broker starts: it would begin with an empty replica on "
            f"{facts.mount.point}",
        )
    if facts.failure is not None:
        failed(
            f"the running broker does not use it: {facts.failure}", "repair the disk, then restart the broker"
        )
    if not facts.exists:
        found.append(
            warn(
                check,
                f"does not exist; a broker that starts makes it on {facts.mount.point}",
                config="log.dirs",
                do="is the path right, and its disk mounted?",
            )
        )
    if facts.mount.read_only:
        failed(
            f"{facts.mount.point} is mounted read-only",
            "see dmesg for errors of the disk; then mount it rw again and restart the broker",
        )
    found += _space(check, facts.space, floor)
    if facts.exists:
        found += _ownership(check, facts, owner)
        found += _meta(check, facts, own)
    if found:
        return found
    space = facts.space
    free = f"{space.free_bytes / GIB:.1f} of {space.total_bytes / GIB:.1f} GiB free"
    return [ok(check, f"{free}, {facts.mount.kind} at {facts.mount.point}")]


def _space(check: str, space: Space, floor: FreeSpaceFloor) -> Findings:
    config = "landline.log.dir.min.free.bytes, landline.log.dir.min.free.percent"
    do = "free space, lower log.retention.* of the largest topics, or enlarge the disk"
    limit = floor.bytes_on(space.total_bytes)
    free = f"{space.free_bytes / GIB:.2f} GiB free of {space.total_bytes / GIB:.2f}"
    if space.free_inodes == 0:
        return [fail(check, "no inode is free", config="log.dirs", do="delete other files of this disk")]
    if space.free_bytes < limit:
        return [
            fail(
                check,
                f"{free}, below the floor of {limit / GIB:.2f} GiB: produce is refused",
                config=config,
                do=do,
            )
        ]
    if space.free_bytes < 2 * limit or space.free_bytes * 10 < space.total_bytes:
        return [warn(check, f"{free}; below {limit / GIB:.2f} GiB produce is refused", config=config, do=do)]
    return []


def _ownership(check: str, facts: LogDirFacts, owner: Owner | None) -> Findings:
    if owner is None:
        return []
    do = f"stop the broker and `chown -R {owner.name}: {facts.path}`"
    if facts.uid != owner.uid:
        said = f"belongs to uid {facts.uid}, but the broker runs as {owner.name} (uid {owner.uid})"
        return [fail(check, said, config="log.dirs", do=do)]
    if facts.foreign:
        said = f"{', '.join(sorted(facts.foreign))} in it belong to another user than {owner.name}"
        return [fail(check, f"{said}: was the broker once started by hand?", config="log.dirs", do=do)]
    return []


def _meta(check: str, facts: LogDirFacts, own: tuple[int | None, str | None]) -> Findings:
    broker_id, cluster_id = own
    found, meta = [], f"{facts.path}/meta.properties"
    if facts.damage is not None:
        do = "restore the file from another log directory of this broker, or replace the disk"
        found.append(fail(check, facts.damage, config="log.dirs", do=do))
    if cluster_id and facts.cluster_id and facts.cluster_id != cluster_id:
        found.append(
            fail(
                check,
                f"{meta} is of cluster {facts.cluster_id}, and zookeeper.connect leads to cluster {cluster_id}",
                config="log.dirs, zookeeper.connect",
                do="mount this cluster's disk, or correct zookeeper.connect (its chroot too)",
            )
        )
    if broker_id is not None and facts.broker_id not in (None, broker_id):
        found.append(
            fail(
                check,
                f"{meta} has broker.id={facts.broker_id}, the properties have broker.id={broker_id}",
                config="log.dirs, broker.id",
                do="mount this broker's disk, or correct broker.id",
            )
        )
    return found


# -- the clock


@dataclass(frozen=True, slots=True)
class ClockFacts:
    """What the kernel says of the clock; ``synchronised`` is None if it says nothing. ``offsets_ms`` has, by
    broker id, by how much its clock was ahead of ZooKeeper's when it registered.
    """

    synchronised: bool | None
    max_error_ms: float
    offsets_ms: Mapping[int, int]


def judge_clock(facts: ClockFacts, broker_id: int | None) -> Findings:
    """One finding for the synchronisation, one for each clock that is off."""
    check, found = "clock", []
    if facts.synchronised is False:
        found.append(
            warn(
                check,
                "the kernel says that it is not synchronised by NTP",
                do="enable chrony or systemd-timesyncd: records' times and retention follow this clock",
            )
        )
    for other, offset_ms in facts.offsets_ms.items():
        if abs(offset_ms) < _LARGE_OFFSET_MS:
            continue
        whose = "this broker's clock" if other == broker_id else f"the clock of broker {other}"
        direction = "ahead of" if offset_ms > 0 else "behind"
        make = fail if abs(offset_ms) >= _BAD_OFFSET_MS else warn
        found.append(
            make(
                check,
                f"{whose} was {abs(offset_ms) / 1000:.1f} s {direction} ZooKeeper's when it registered",
                do=f"synchronise the clocks by NTP; then restart broker {other} to have it measured again",
            )
        )
    if found:
        return found
    known = f"; {len(facts.offsets_ms)} brokers within 1 s of ZooKeeper's" if facts.offsets_ms else ""
    state = (
        "nothing is known of its synchronisation"
        if facts.synchronised is None
        else f"synchronised by NTP, within {facts.max_error_ms:.0f} ms"
    )
    return [ok(check, f"{state}{known}")]


# -- limits and memory


def judge_open_files(limit: int | None, used: int | None, unit: str | None) -> Finding:
    """``limit`` is the soft limit of the running process or of its unit; None if neither is known."""
    check = "open files"
    config = f"LimitNOFILE of {unit}" if unit else "ulimit -n of whoever starts the broker"
    if limit is None:
        return ok(check, "no process and no unit to look at")
    known = "" if used is None else f", {used} in use"
    if used is not None and used * 10 >= limit * 9:
        do = "raise the limit and restart the broker, before it can accept and open no more"
        return fail(check, f"limit {limit}{known}", config=config, do=do)
    if limit < _FEW_FILES or (used is not None and used * 2 > limit):
        do = f"raise it to {max(_FEW_FILES, 4 * (used or 0))}: each segment and connection needs some"
        return warn(check, f"limit {limit}{known}", config=config, do=do)
    return ok(check, f"limit {limit}{known}")


@dataclass(frozen=True, slots=True)
class MemoryFacts:
    """Bytes of the host's memory; of the broker's control group, without page cache, the limit None if there is
    none; and of the broker in swap.
    """

    total: int
    available: int
    group_limit: int | None = None
    group_used: int = 0
    swapped: int = 0


def judge_memory(facts: MemoryFacts) -> Findings:
    check, found = "memory", []
    free = f"{facts.available / GIB:.1f} of {facts.total / GIB:.1f} GiB available"
    if facts.available < min(_FEW_BYTES, facts.total // 10):
        found.append(
            warn(check, free, do="see which process takes it: without page cache every fetch reads the disk")
        )
    if facts.group_limit is not None and facts.group_used * 10 > facts.group_limit * 9:
        found.append(
            warn(
                check,
                f"the broker's control group uses {facts.group_used / GIB:.2f} of {facts.group_limit / GIB:.2f} GiB",
                config="MemoryMax of its unit",
                do="raise it, or the kernel ends the broker",
            )
        )
    if facts.swapped > 16 << 20:
        said = f"{facts.swapped >> 20} MiB of the broker are in swap"
        found.append(
            warn(check, said, config="vm.swappiness", do="set vm.swappiness=1: swapped pages stall requests")
        )
    return found or [ok(check, free)]


# -- certificates, versions


def judge_certificate(where: str, days_left: float, config: str) -> Finding:
    check = f"certificate of {where}"
    do = "put a new one there (make certificates): it is taken up without a restart"
    if days_left < 0:
        return fail(check, f"expired {-days_left:.0f} days ago", config=config, do=do)
    if days_left < _SOON_DAYS:
        return warn(check, f"expires in {days_left:.0f} days", config=config, do=do)
    return ok(check, f"{days_left:.0f} days left")


def judge_versions(
    installed: str, running: str | None, platform: str, others: Mapping[int, Mapping[str, str]]
) -> Findings:
    """``others`` has the inter-broker settings of each broker that answered, by its id."""
    check = "versions"
    found = []
    if running is not None and running != installed:
        found.append(
            warn(
                check,
                f"the running broker is {running}, this command is {installed}",
                do="restart the broker to run the installed release",
            )
        )
    key = "inter.broker.protocol.version"
    values = {broker: texts[key] for broker, texts in others.items() if key in texts}
    known = sorted(set(values.values()))
    if len(known) > 1:
        listed = ", ".join(f"broker {broker}: {text}" for broker, text in sorted(values.items()))
        do = "finish the upgrade that is under way, or set all brokers alike"
        found.append(warn(check, f"{key} differs: {listed}", config=key, do=do))
    between = f", inter-broker {', '.join(known)}" if known else ""
    return found or [ok(check, f"Landline {installed}, {platform}{between}")]


# -- the broker and its ports


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """The broker as a process. ``pid`` is None if it does not run. ``unit`` is its systemd unit, None if there is
    none, ``unit_state`` that unit's ActiveState. ``state`` is that of its /status, None without an answer.
    ``is_asked`` is False if the properties do not say where to ask.
    """

    pid: int | None
    unit: str | None = None
    unit_state: str = ""
    state: str | None = None
    is_asked: bool = True


def judge_process(facts: ProcessFacts) -> Finding:
    check, unit = "broker", facts.unit
    if facts.pid is None:
        if unit is not None and facts.unit_state in {"failed", "activating"}:
            said = f"does not run; {unit} is {facts.unit_state}"
            return fail(check, said, do=f"see `journalctl -u {unit} -n 50`, then `systemctl start {unit}`")
        said = "does not run" + (f"; {unit} is {facts.unit_state}" if unit else "")
        return warn(check, said, do=f"`systemctl start {unit}`" if unit else "start it, if it is to run")
    if facts.state is None and not facts.is_asked:
        return ok(
            check, f"runs as process {facts.pid}; without a fixed landline.http.port its state is not asked"
        )
    if facts.state is None:
        return warn(
            check,
            f"runs as process {facts.pid}, but its /status does not answer",
            config="landline.http.host, landline.http.port",
            do="see its journal; `kill -USR2` of the process writes its stacks there",
        )
    if facts.state not in {"RunningAsBroker", "RunningAsController"}:
        return warn(
            check, f"process {facts.pid} is in state {facts.state}", do="wait, and see its journal for why"
        )
    return ok(check, f"process {facts.pid} is {facts.state}")


def judge_port(name: str, port: int, *, accepts: bool, running: bool, config: str) -> Finding:
    check = f"port {port}"
    if running and not accepts:
        return fail(
            check,
            f"{name}: the broker runs, but nobody accepts connections there",
            config=config,
            do="see the broker's journal: it may be starting, or run with other settings than this file's",
        )
    if accepts and not running:
        return fail(
            check,
            f"{name}: the broker does not run, but another process listens there",
            config=config,
            do=f"find it by `ss -ltnp sport = :{port}` and end it, or choose another port",
        )
    return ok(check, f"{name}: {'accepts connections' if accepts else 'free'}")
