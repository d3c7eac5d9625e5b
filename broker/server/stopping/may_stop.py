"""`landline may-stop` and `landline await-return`: coordinate the restart of one broker.

`may-stop` takes the cluster's only stop permit and waits until the cluster tolerates the stop. `await-return`
renews the permit until the broker is back in every ISR that it was in, then releases it. Between the two, the
caller restarts the broker. `stop_judge` decides what is allowed, `stop_permit` manages the permit, and this
module only waits.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from broker.server.stopping.asker import Asker, CannotAskError
from broker.server.stopping.stop_judge import (
    ClusterSnapshot,
    in_words,
    not_back,
    not_known,
    out_of,
    why_another_cluster,
    why_another_process,
    why_cut_off,
    why_not_stop,
)
from broker.server.stopping.stop_permit import Lease, StopPermit, by_topic
from broker.zookeeper.access import NO_ACCESS, ZooKeeperAccess
from broker.zookeeper.client import ZooKeeperStore
from broker.zookeeper.cluster_store import ClusterStore
from broker.zookeeper.store import Store, StoreError

# If there is no quorum for this time, which is longer than an election, no broker is stopped and the
# command ends.
ZOOKEEPER_MS: Final = 6_000
# After a first response, a quorum may be away for this long: for an election, or until a lost session
# is replaced.
_AWAY_S: Final = 12.0
_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 5.0

Tell = Callable[[str], None]


@contextmanager
def zookeeper(
    connect: str, within_ms: int = ZOOKEEPER_MS, access: ZooKeeperAccess = NO_ACCESS
) -> Iterator[Store]:
    """A ZooKeeper session of this command. Raises :class:`StoreError` if there is no quorum
    within ``within_ms``.
    """
    store = ZooKeeperStore(connect, ZOOKEEPER_MS, access)
    store.connect(within_ms, threading.Event())
    try:
        yield store
    finally:
        store.close()


class Turn:
    """One broker's turn to restart, in one ZooKeeper session. ``tell`` receives what is waited for, whenever
    that changes; ``read`` is `read_view`, with how other brokers are asked; ``together`` are brokers that stop
    with this one; with ``known``, a broker is only back when all others know it.
    """

    def __init__(
        self,
        store: Store,
        asker: Asker,
        holder: str,
        lease_ms: int,
        tell: Tell,
        *,
        now: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
        read: Callable[..., ClusterSnapshot],
        together: frozenset[int] = frozenset(),
        known: bool = False,
    ) -> None:
        self._asker = asker
        self._together = together
        self._known = known
        self._permit = StopPermit(store)
        self._read_view = read
        self._cluster = ClusterStore(store)
        self._lease = Lease(holder, asker.own.broker_id, lease_ms)
        self._tell = tell
        self._told = ""
        self._now = now
        self._pause = pause

    def why_not_now(self) -> list[str]:
        """The reasons against a stop now, another holder's permit first; takes nothing. Raises as :meth:`ask`."""
        held = self._permit.held_by_another(self._lease)
        view = self._read()
        self._check(view)
        return [*([] if held is None else [str(held)]), *self._doubts(view)]

    def ask(self, within_s: float) -> list[str]:
        """Asks for the permit; returns an empty list when it is granted. Otherwise returns the reasons
        against it after ``within_s``, with the permit released.

        Raises :class:`StoreError` if ZooKeeper stays away. Raises :class:`CannotAskError` if the cluster is
        not this broker's, or if its properties would disconnect it from the others.
        """
        deadline = self._now() + within_s
        granted = False
        answered = self._now()
        try:
            while True:
                began = self._now()
                try:
                    reasons = self._ask_once()
                    answered = self._now()
                except StoreError as error:
                    if self._now() - answered >= _AWAY_S:
                        raise
                    reasons = [f"ZooKeeper: {error}"]
                granted = not reasons
                if granted or self._now() >= deadline:
                    return reasons
                # A waiting command holds nothing: it may wait for a broker that another holder's
                # restart repairs.
                self._free()
                self._say(f"waiting: {in_words(reasons)}")
                self._rest(began)
        finally:
            if not granted:
                self._free()

    def _ask_once(self) -> list[str]:
        held = self._permit.take(self._lease)
        if held is not None:
            return [str(held)]
        view = self._read()
        self._check(view)
        reasons = self._doubts(view)
        if reasons:
            return reasons
        broker_id = self._lease.broker_id
        member = view.members.get(broker_id)
        lost = self._permit.take(
            replace(
                self._lease,
                broker_epoch=-1 if member is None else member.epoch,
                out_of_isr=by_topic(out_of(view, broker_id)),
            )
        )
        return [] if lost is None else [str(lost)]

    def await_return(
        self,
        within_s: float,
        progress: Callable[[], int] = lambda: 0,
        given_up: Callable[[], str | None] = lambda: None,
    ) -> list[str]:
        """Returns an empty list when the broker is back in every ISR that it was in; otherwise what is
        missing after ``within_s`` without progress. The permit is released in both cases.

        ``progress`` returns an increasing number for a recovery's progress. ``given_up`` returns why waiting
        is useless.
        """
        lease = self._kept()
        loaded, fewest = 0, math.inf
        deadline = self._now() + within_s
        while True:
            began = self._now()
            reasons, missing = self._not_back(lease)
            if not reasons:
                break
            before = loaded, fewest
            loaded, fewest = max(loaded, progress()), min(fewest, missing)
            if (loaded, fewest) != before:
                deadline = self._now() + within_s
            end = given_up()
            if end is not None or self._now() >= deadline:
                reasons = reasons if end is None else [end, *reasons]
                break
            self._say(f"waiting: {in_words(reasons)}")
            self._rest(began)
        self._free()
        return reasons

    def _kept(self) -> Lease:
        """The lease with the state of the broker before its stop."""
        try:
            kept = self._permit.held_by(self._lease.holder, self._lease.broker_id)
        except StoreError:
            kept = None
        if kept is None:
            self._say("the permit is not this holder's: waiting for the broker in every one of its ISRs")
            return self._lease
        return replace(kept, for_ms=self._lease.for_ms)

    def _not_back(self, lease: Lease) -> tuple[list[str], float]:
        """What is missing, and in how many partitions: infinity before the broker is registered."""
        try:
            self._permit.take(lease)
            view = self._read(others=self._known)
        except StoreError as error:
            return [f"ZooKeeper: {error}"], math.inf
        missing = not_back(view, lease.broker_id, lease.broker_epoch, lease.was_out_of)
        if missing is None:
            return [f"broker {lease.broker_id} has not registered anew in ZooKeeper yet"], math.inf
        missing = missing + not_known(view, lease.broker_id)
        return missing, len(missing)

    def _check(self, view: ClusterSnapshot) -> None:
        """Raises :class:`CannotAskError` for problems that waiting does not solve."""
        own = self._asker.own
        wrong = why_another_cluster(view, own) or why_cut_off(view, own.broker_id, self._asker.listener)
        if wrong is not None:
            raise CannotAskError(wrong)

    def _doubts(self, view: ClusterSnapshot) -> list[str]:
        other = why_another_process(view, self._asker.own_now())
        return [other] if other is not None else self._why_not_stop(view)

    def _why_not_stop(self, view: ClusterSnapshot) -> list[str]:
        return why_not_stop(view, self._asker.own.broker_id, self._together)

    def _read(self, *, others: bool = True) -> ClusterSnapshot:
        return self._read_view(
            self._cluster, self._asker.own.broker_id, self._asker.default_min_isr, others=others
        )

    def _free(self) -> None:
        try:
            self._permit.free(self._lease.holder, self._lease.broker_id)
        except StoreError as error:
            self._say(f"the permit could not be given back and expires by itself: {error}")

    def _say(self, words: str) -> None:
        if words != self._told:
            self._told = words
            self._tell(words)

    def _rest(self, began: float) -> None:
        """Waits for the next read. In a large cluster a read takes longer: reading takes at most a quarter of
        the time, but no pause is long.
        """
        self._pause(min(max(_PAUSE_S, 3 * (self._now() - began)), _LONGEST_PAUSE_S))
