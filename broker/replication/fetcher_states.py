"""The states of a follower's fetcher and its reactions to events.

Pure: no threads, no clock, no IO. The fetcher has one thread, a Processor's loop may serve it, and other
threads add, remove and stop. Each passes its event to the machine under the fetcher's lock and follows
the instruction.

========== ============  ========== ===========
state      event         then       instruction
========== ============  ========== ===========
idle       planned       connecting
connecting connected     asking
connecting added         idle
connecting ended         idle
asking     invited       guest
asking     added         given up   interrupt
guest      added         given up   interrupt
asking     ended         idle
guest      ended         idle
given up   ended         idle       reconnect
any        stopped       stopped
========== ============  ========== ===========

All other events change nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import Enum, IntEnum
from typing import Final, NamedTuple

from broker.replication.follower_fetch import Followed
from broker.replication.follower_session import Key
from broker.utils.topic_partition import TopicPartition


class FetcherState(Enum):
    #: No request is in flight.
    IDLE = "idle"
    #: The fetcher's thread makes sure that there is a connection. No request is in flight yet.
    CONNECTING = "connecting"
    #: The fetcher's thread waits for an answer or handles it.
    ASKING = "asking"
    #: A Processor's loop handles the answers and sends the next requests.
    GUEST = "guest"
    #: Partitions were added: the request in flight is outdated, and its result is ignored.
    GIVEN_UP = "given up"
    STOPPED = "stopped"


class FetcherEvent(Enum):
    #: There are partitions to fetch.
    PLANNED = "planned"
    CONNECTED = "connected"
    #: A loop is about to serve the conversation.
    INVITED = "invited"
    #: There are partitions that the request does not include.
    ADDED = "added"
    #: Thread and loop have finished the request, with or without success.
    ENDED = "ended"
    STOPPED = "stopped"


class Instruction(Enum):
    NOTHING = "nothing"
    #: Make the request in flight fail at once; its long poll could last for replica.fetch.wait.max.ms.
    INTERRUPT = "interrupt"
    #: The connection was interrupted after its request had ended; the next request needs a new one.
    RECONNECT = "reconnect"


class Reaction(Enum):
    """The reaction to an unreachable leader."""

    NOTHING = "nothing"
    #: Log once, not at every retry; the next retry shows whether it is gone for good.
    TELL = "tell"
    PAUSE = "pause"


class Changes(IntEnum):
    """The most important change to the followed partitions since all of them were last requested."""

    NOTHING = 0
    REMOVED = 1
    #: A partition waits after an error, or for the quota.
    PUT_OFF = 2
    ADDED = 3


_Step = tuple[FetcherState, Instruction]
TRANSITIONS: Final[Mapping[tuple[FetcherState, FetcherEvent], _Step]] = {
    (FetcherState.IDLE, FetcherEvent.PLANNED): (FetcherState.CONNECTING, Instruction.NOTHING),
    (FetcherState.CONNECTING, FetcherEvent.CONNECTED): (FetcherState.ASKING, Instruction.NOTHING),
    (FetcherState.CONNECTING, FetcherEvent.ADDED): (FetcherState.IDLE, Instruction.NOTHING),
    (FetcherState.CONNECTING, FetcherEvent.ENDED): (FetcherState.IDLE, Instruction.NOTHING),
    (FetcherState.ASKING, FetcherEvent.INVITED): (FetcherState.GUEST, Instruction.NOTHING),
    (FetcherState.ASKING, FetcherEvent.ADDED): (FetcherState.GIVEN_UP, Instruction.INTERRUPT),
    (FetcherState.GUEST, FetcherEvent.ADDED): (FetcherState.GIVEN_UP, Instruction.INTERRUPT),
    (FetcherState.ASKING, FetcherEvent.ENDED): (FetcherState.IDLE, Instruction.NOTHING),
    (FetcherState.GUEST, FetcherEvent.ENDED): (FetcherState.IDLE, Instruction.NOTHING),
    (FetcherState.GIVEN_UP, FetcherEvent.ENDED): (FetcherState.IDLE, Instruction.RECONNECT),
    **{(state, FetcherEvent.STOPPED): (FetcherState.STOPPED, Instruction.NOTHING) for state in FetcherState},
}


class Plan(NamedTuple):
    """What the fetcher's thread does next: it fetches ``ready``, or waits if that is empty."""

    ready: list[Followed]
    #: Milliseconds until the first delayed partition is due; None if none is delayed.
    delay_ms: int | None
    #: A partition's role changed, so what the leader knows is outdated: the next request is a full one.
    is_anew: bool


class FetcherMachine:
    """The state machine of a ReplicaFetcher, with the partitions that it follows. While it is asking, or a
    guest, the request covers every followed partition that is not delayed: adding one interrupts the request.
    Owned by one fetcher, which calls it under its lock.
    """

    def __init__(self) -> None:
        #: The loop reads it without the lock, and sees a change at its next answer.
        self.state = FetcherState.IDLE
        #: Changes since the last :meth:`plan` or :meth:`look`. The loop reads it without the lock.
        self.changes = Changes.NOTHING
        #: The number of failed attempts in a row to reach the leader.
        self.failures = 0
        self._followed: dict[Key, Followed] = {}

    def __len__(self) -> int:
        return len(self._followed)

    @property
    def followed(self) -> Mapping[Key, Followed]:
        """All followed partitions, delayed or not."""
        return self._followed

    @property
    def is_stopped(self) -> bool:
        return self.state is FetcherState.STOPPED

    def on(self, event: FetcherEvent) -> Instruction:
        """Goes to the next state and returns the instruction."""
        self.state, instruction = TRANSITIONS.get((self.state, event), (self.state, Instruction.NOTHING))
        return instruction

    # -- followed partitions

    def add(self, followed: Iterable[Followed]) -> Instruction:
        """Adds partitions, or replaces their role."""
        for item in followed:
            self._followed[item.key] = item
        self.changes = Changes.ADDED
        return self.on(FetcherEvent.ADDED)

    def remove(self, topic_partitions: Collection[TopicPartition]) -> None:
        """Removes partitions; data already requested for them is dropped."""
        for key, item in list(self._followed.items()):
            if item.partition.topic_partition in topic_partitions:
                del self._followed[key]
                self.changes = max(self.changes, Changes.REMOVED)

    def put_off(self, followed: Followed, until_ms: int) -> None:
        """Delays a partition; does nothing if its role has changed."""
        self.changes = max(self.changes, Changes.PUT_OFF)
        if self._followed.get(followed.key) is followed:
            self._followed[followed.key] = followed.put_off(until_ms)

    # -- next steps

    def plan(self, now_ms: int) -> Plan:
        """What the thread does now, for all partitions."""
        ready = [item for item in self._followed.values() if item.not_before_ms <= now_ms]
        delays_ms = [
            item.not_before_ms - now_ms for item in self._followed.values() if item.not_before_ms > now_ms
        ]
        is_anew = self.changes is Changes.ADDED
        self.changes = Changes.NOTHING
        if ready:
            self.on(FetcherEvent.PLANNED)
        return Plan(ready, min(delays_ms, default=None), is_anew)

    def look(self) -> list[Followed] | None:
        """All followed partitions, if a loop may fetch them all; None if the thread is needed."""
        if not self.goes_well(len(self._followed)):
            return None
        self.changes = Changes.NOTHING
        return list(self._followed.values())

    def goes_well(self, asked: int) -> bool:
        """Whether a loop may fetch ``asked`` partitions: they are all, and none waits after an error."""
        is_asking = self.state is FetcherState.ASKING or self.state is FetcherState.GUEST
        return is_asking and self.changes < Changes.PUT_OFF and asked == len(self._followed)

    def reached(self) -> bool:
        """Notes that the leader answered; True if it was unreachable before."""
        failures, self.failures = self.failures, 0
        return failures > 0

    def unreachable(self) -> Reaction:
        """Notes that the leader could not be reached, or gave no usable answer."""
        if self.state is FetcherState.GIVEN_UP:
            return Reaction.NOTHING
        self.failures += 1
        return Reaction.TELL if self.failures == 1 and not self.is_stopped else Reaction.PAUSE
