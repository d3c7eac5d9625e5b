"""The turn to move partitions: one lease in ZooKeeper, held by the run that moves them.

Two runs would undo each other: each takes all throttled moves for its own, and takes the throttles away at its end. The
lease is like the stop permit (`server.stopping.stop_permit`): one znode, never deleted, empty when free, and a time by
ZooKeeper's clock after which that of a dead run is free. The commands of one run have one holder. What the run notes of
itself is kept with it, for whoever can see by that whether it lives (`plugins/filter/moves.py`): a dead one's turn is
taken over by its name. Kafka's brokers ignore the znode.
"""

from __future__ import annotations

import getpass
import json
import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from broker.server.moves.judge import MovesRefusedError
from broker.server.zookeeper_clock import since
from broker.server.zookeeper_lease import LeaseZnode
from broker.zookeeper.store import Store
from broker.zookeeper.znodes import STRANGE, BadZnodeError, int64, load

TURN: Final = "/landline/move_turn"
# After the last sign of a command, and between the rounds of a play.
FOR_MS: Final = 30_000
BETWEEN_MS: Final = 120_000
# For how long one that was interrupted may take back what it has set.
TAKE_BACK_S: Final = 60
NOT_NOTED: Final = -1
_RENEWED_S: Final = 10.0
_LOOK_S: Final = 0.5
_VERSION: Final = 1
PAUSE: Final = "--pause"
_TOOK_BACK: Final = "has taken the moves and the throttles back. Run it again to go on"
_WENT_ON: Final = "moves partitions now: the turn of this run was over. Run it again when that is done"


@dataclass(frozen=True, slots=True)
class MoveLease:
    """Who moves partitions, as stored in ZooKeeper: any text that is unique to a run, and its command. ``since_ms`` is
    when the turn began, by ZooKeeper's clock, which renewals keep. ``is_ending``: it was interrupted, and takes back
    what it has set. ``run``: what the run notes of itself.
    """

    holder: str
    command: str
    for_ms: int = FOR_MS
    since_ms: int = NOT_NOTED
    is_ending: bool = False
    run: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HeldTurn:
    """Somebody's lease, and its remaining time."""

    lease: MoveLease
    remaining_ms: int

    def __str__(self) -> str:
        lease, left_s = self.lease, self.remaining_ms / 1000
        return (
            f"{lease.holder} moves partitions{since(lease.since_ms)}, by `{lease.command}`. Two at once would undo "
            "each other's moves and throttles: wait until that is done. If it has died, its turn ends in "
            f"{left_s:.0f} s; `landline rebalance --pause` ends it now, and takes its moves and throttles back"
        )


class MoveTurn:
    """Takes, renews and releases the lease. Stateless. Every method may raise the store's errors."""

    def __init__(self, store: Store) -> None:
        self._znode = LeaseZnode(store, TURN, decode_lease)

    def take(self, lease: MoveLease, *, dead: str | None = None, by_force: bool = False) -> HeldTurn | None:
        """Takes the lease, renews the same holder's, or ends another's: that of the run ``dead``, unless its command
        still takes back what it has set, or, with ``by_force``, anybody's. Returns None, or the other holder's lease.
        """
        held = self._znode.take(
            lambda present: present.holder == lease.holder,
            lambda since_ms: encode_lease(replace(lease, since_ms=since_ms)),
            may_end=lambda present: by_force or (present.holder == dead and not present.is_ending),
        )
        return None if held is None else HeldTurn(*held)

    def keep(self, lease: MoveLease, *, renew: bool = True) -> str | None:
        """Renews the holder's lease, also one whose time is over if nobody has had it since. Returns None, or who ended
        it, in words.
        """
        while True:
            found = self._znode.read()
            present = None if found is None else found[0]
            if found is None or present is None:
                return f"somebody {_TOOK_BACK}"
            if present.holder != lease.holder:
                is_pause = present.command.endswith(PAUSE)
                return f"{present.holder} {_TOOK_BACK if is_pause else _WENT_ON}"
            renewed = replace(lease, since_ms=present.since_ms)
            if not renew or self._znode.write(encode_lease(renewed), found[1]):
                return None

    def held(self) -> HeldTurn | None:
        """The lease that has not expired, whosever it is. Takes nothing."""
        held = self._znode.held()
        return None if held is None else HeldTurn(*held)

    def noted(self) -> tuple[MoveLease, int] | None:
        """The stored lease, also one that has expired, and when it ends by ZooKeeper's clock. Writes nothing."""
        return self._znode.noted()

    def free(self, holder: str) -> None:
        """Releases the holder's lease; another one is kept."""
        self._znode.free(lambda present: present.holder == holder)


class OwnTurn:
    """The turn of this command, from :meth:`begin` to :meth:`end`. Owns the lease as far as nobody ended it."""

    def __init__(self, turn: MoveTurn, lease: MoveLease) -> None:
        self._turn = turn
        self._lease = lease
        self._renewed = time.monotonic()

    def begin(
        self,
        pause_for: Callable[[float], object],
        *,
        is_held: bool = False,
        dead: str | None = None,
        by_force: bool = False,
    ) -> None:
        """Takes it, also from the run ``dead``, as soon as one that was interrupted has taken back what it had set.
        With ``is_held`` an earlier command of the run has it. Raises :class:`MovesRefusedError` with who has it now, or
        who ended it.
        """
        if is_held and not by_force:
            self._check(self._turn.keep(self._lease))
            return
        began = time.monotonic()
        while True:
            held = self._turn.take(self._lease, dead=dead, by_force=by_force)
            if held is None:
                return
            if not held.lease.is_ending or time.monotonic() - began >= TAKE_BACK_S:
                raise MovesRefusedError(str(held))
            pause_for(_LOOK_S)

    def begin_to_end(self) -> None:
        """Lets the next one wait while this one takes back what it has set. Raises :class:`MovesRefusedError` if
        somebody ended it.
        """
        self._lease = replace(self._lease, is_ending=True)
        self._check(self._turn.keep(self._lease))

    def keep(self) -> None:
        """Goes on with it. Raises :class:`MovesRefusedError` if somebody ended it."""
        now = time.monotonic()
        renew = now - self._renewed >= _RENEWED_S
        self._check(self._turn.keep(self._lease, renew=renew))
        if renew:
            self._renewed = now

    def _check(self, lost: str | None) -> None:
        if lost is not None:
            raise MovesRefusedError(lost)

    def leave(self, for_s: float | None = None) -> None:
        """Leaves it to the holder's next command, for so long, or as long as it takes a play to begin that."""
        for_ms = BETWEEN_MS if for_s is None else int(for_s * 1000)
        self._turn.keep(replace(self._lease, for_ms=for_ms))

    def end(self) -> None:
        self._turn.free(self._lease.holder)


def lease_of(options: Any) -> MoveLease:
    """What a command's options say of who it is."""
    brokers = getattr(options, "broker", None)
    words = [options.command]
    if brokers:
        words.append(f"--broker={','.join(map(str, brokers))}")
    if options.pause:
        words.append(PAUSE)
    return MoveLease(
        options.holder or f"{getpass.getuser()}@{socket.gethostname()} (process {os.getpid()})",
        " ".join(words),
        run=options.run,
    )


def told_of(held: HeldTurn | None) -> dict[str, Any] | None:
    """Who has the turn, for programs: None if nobody has."""
    if held is None:
        return None
    lease = held.lease
    return {
        "holder": lease.holder,
        "command": lease.command,
        "since_ms": lease.since_ms,
        "remaining_ms": held.remaining_ms,
        "is_ending": lease.is_ending,
        "run": lease.run,
    }


def encode_lease(lease: MoveLease) -> bytes:
    value = {
        "version": _VERSION,
        "holder": lease.holder,
        "command": lease.command,
        "for_ms": lease.for_ms,
        "since_ms": lease.since_ms,
        "is_ending": lease.is_ending,
        "run": lease.run,
    }
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def decode_lease(data: bytes) -> MoveLease | None:
    """None for a free turn, and for unreadable data: what somebody wrote by hand must not block moves forever."""
    try:
        value = load(TURN, data)
        run = value.get("run")
        return MoveLease(
            str(value["holder"]),
            str(value["command"]),
            int64(value["for_ms"]),
            int64(value["since_ms"]),
            is_ending=value.get("is_ending") is True,
            run=run if isinstance(run, dict) else {},
        )
    except (BadZnodeError, *STRANGE):
        return None
