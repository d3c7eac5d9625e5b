"""Faults of the cables: the requested faults, and the nftables ruleset and tc commands that implement them.

Pure. A cut or a loss is a drop rule of the bridge family in the lab's own namespace, by the name of the
host's cable. It lasts across reboots of the host and touches no other lab. A slow cable is a token bucket on
both ends, which must be set again at each boot of the host.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lab.naming import CONTROLLER, Host

TABLE = "bridge landline_lab"


class LinkFaultKind(enum.StrEnum):
    """The kind of a cable's fault."""

    CUT = "cut"
    LOSE = "lose"
    SLOW = "slow"


class Direction(enum.StrEnum):
    """The direction as seen from the host: incoming, outgoing."""

    IN = "in"
    OUT = "out"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class LinkFault:
    """One fault of one host's cable."""

    kind: LinkFaultKind
    host: str
    peer: str | None = None
    """Only frames between the host and this peer (a host or `controller`); None: all frames. For CUT."""
    direction: Direction = Direction.BOTH
    amount: float = 0.0
    """LOSE: the percentage of frames lost. SLOW: kbit/s."""

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> LinkFault:
        """Parse an entry of lab.json."""
        return cls(
            LinkFaultKind(values["kind"]),
            values["host"],
            values["peer"],
            Direction(values["direction"]),
            float(values["amount"]),
        )

    def __str__(self) -> str:
        match self.kind:
            case LinkFaultKind.CUT:
                peer = f" {self.peer}" if self.peer else ""
                return f"cut{peer}" + ("" if self.direction is Direction.BOTH else f" {self.direction}")
            case LinkFaultKind.LOSE:
                return f"loses {self.amount:g} %"
            case LinkFaultKind.SLOW:
                return f"{self.amount:g} kbit/s"


def added(faults: tuple[LinkFault, ...], new: LinkFault) -> tuple[LinkFault, ...]:
    """`faults` plus `new`. `new` replaces a loss or slowness that the host already has."""
    kept = [old for old in faults if old != new and not (_is_one_per_host(new) and _same_slot(old, new))]
    return (*kept, new)


def healed(faults: tuple[LinkFault, ...], host: str | None, peer: str | None = None) -> tuple[LinkFault, ...]:
    """`faults` without those of `host` (None: of all hosts), or only without those between the two hosts."""
    if host is None:
        return ()
    if peer is not None:
        pair = {host, peer}
        return tuple(fault for fault in faults if {fault.host, fault.peer} != pair)
    return tuple(fault for fault in faults if host not in (fault.host, fault.peer))


def is_cut_off(faults: Iterable[LinkFault], host: str) -> bool:
    """Can the controller not reach the host at all?"""
    return any(
        fault.kind is LinkFaultKind.CUT and fault.host == host and fault.peer in (None, CONTROLLER)
        for fault in faults
    )


def slow_faults(faults: Iterable[LinkFault]) -> set[LinkFault]:
    """The faults that tc implements."""
    return {fault for fault in faults if fault.kind is LinkFaultKind.SLOW}


def _is_one_per_host(fault: LinkFault) -> bool:
    return fault.kind is not LinkFaultKind.CUT


def _same_slot(old: LinkFault, new: LinkFault) -> bool:
    return (old.kind, old.host) == (new.kind, new.host)


def ruleset(faults: Iterable[LinkFault], hosts: Iterable[Host]) -> str:
    """The whole nftables script for these faults. It replaces the previous rules in one transaction."""
    interfaces = {host.name: host.interface for host in hosts}
    rules: dict[str, list[str]] = {
        hook: [] for hook in ("prerouting", "forward", "input", "output", "postrouting")
    }
    for fault in faults:
        for hook, rule in _rules(fault, interfaces):
            rules[hook].append(rule)
    chains = "".join(_chain(hook, lines) for hook, lines in rules.items() if lines)
    start_anew = f"table {TABLE}\ndelete table {TABLE}\n"
    return start_anew + (f"table {TABLE} {{\n{chains}}}\n" if chains else "")


def _chain(hook: str, rules: list[str]) -> str:
    body = "".join(f"    {rule}\n" for rule in rules)
    return f"  chain {hook} {{\n    type filter hook {hook} priority 0; policy accept;\n{body}  }}\n"


def _rules(fault: LinkFault, interfaces: Mapping[str, str]) -> list[tuple[str, str]]:
    if fault.kind is LinkFaultKind.SLOW:
        return []
    if fault.peer is not None:
        return _pair_rules(fault, interfaces)
    verdict = _verdict(fault)
    name = interfaces[fault.host]
    outgoing = ("prerouting", f'iifname "{name}" {verdict}')
    incoming = ("postrouting", f'oifname "{name}" {verdict}')
    return _chosen(fault.direction, incoming, outgoing)


def _pair_rules(fault: LinkFault, interfaces: Mapping[str, str]) -> list[tuple[str, str]]:
    name = interfaces[fault.host]
    if fault.peer == CONTROLLER:
        return _chosen(
            fault.direction, ("output", f'oifname "{name}" drop'), ("input", f'iifname "{name}" drop')
        )
    peer = interfaces[fault.peer or ""]
    incoming = ("forward", f'iifname "{peer}" oifname "{name}" drop')
    outgoing = ("forward", f'iifname "{name}" oifname "{peer}" drop')
    return _chosen(fault.direction, incoming, outgoing)


def _chosen(
    direction: Direction, incoming: tuple[str, str], outgoing: tuple[str, str]
) -> list[tuple[str, str]]:
    match direction:
        case Direction.IN:
            return [incoming]
        case Direction.OUT:
            return [outgoing]
        case Direction.BOTH:
            return [incoming, outgoing]


def _verdict(fault: LinkFault) -> str:
    if fault.kind is LinkFaultKind.CUT:
        return "drop"
    return f"numgen random mod 1000 < {max(1, round(fault.amount * 10))} drop"


def shaping(interface: str, kbit: float | None) -> list[str]:
    """The tc command that limits outgoing traffic of `interface` to `kbit`, or lifts the limit when None."""
    if kbit is None:
        return ["tc", "qdisc", "del", "dev", interface, "root"]
    burst_bytes = max(16 * 1024, round(kbit * 1000 / 8 / 50))
    rate = f"{kbit:g}kbit"
    bucket = ["tbf", "rate", rate, "burst", str(burst_bytes), "latency", "400ms"]
    return ["tc", "qdisc", "replace", "dev", interface, "root", *bucket]
