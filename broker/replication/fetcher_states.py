"""The states of a follower's fetcher, and what follows from what happens to it.

Pure: no thread, no clock, no IO. The fetcher has one thread, a Processor's loop may serve it, and others add, remove
and stop; each of them tells the machine under the fetcher's lock, and does what it instructs.

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

Whatever else happens changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import Enum, IntEnum
from typing import Final, NamedTuple

from broker.replication.follower_fetch import Followed
from broker.replication.follower_session import Key
from broker.utils.topic_partition import TopicPartition


class FetcherState(Enum):
    #: Nothing is asked of the leader.
    IDLE = "idle"
    #: The fetcher's thread sees to it that there is a connection. Nothing is asked yet.
    CONNECTING = "connecting"
    #: The fetcher's thread asks, or takes the answer.
    ASKING = "asking"
    #: A Processor's loop takes the answers and asks on.
    GUEST = "guest"
    #: Partitions were added: what was asked is no more what is wanted, and how it ends is no news.
    GIVEN_UP = "given up"
    STOPPED = "stopped"


class FetcherEvent(Enum):
    #: There is something to ask.
    PLANNED = "planned"
    CONNECTED = "connected"
    #: A loop is about to serve the conversation.
    INVITED = "invited"
    #: There are partitions that the leader was not asked for.
    ADDED = "added"
    #: Thread and loop are done with what was asked, well or not.
    ENDED = "ended"
    STOPPED = "stopped"


class Instruction(Enum):
    NOTHING = "nothing"
    #: The request under way shall fail at once: its long poll would last for replica.fetch.wait.max.ms.
    INTERRUPT = "interrupt"
    #: The connection was interrupted when it was asked nothing any more: the next request needs another.
    RECONNECT = "reconnect"


class Reaction(Enum):
    """To a leader that cannot be reached."""

    NOTHING = "nothing"
    #: Once, not at every try; whether it is gone for good, the next try tells.
    TELL = "tell"
    PAUSE = "pause"


class Changes(IntEnum):
    """What happened to the followed partitions since the leader was last asked for all of them: the weightiest."""

    NOTHING = 0
    REMOVED = 1
    #: One waits out an error or the quota.
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
    """What the fetcher's thread does next: it asks for ``ready`` or, where that is empty, waits."""

    ready: list[Followed]
    #: Milliseconds until the first of those put off may be asked for; None where there are none.
    delay_ms: int | None
    #: What the leader was told before, it was told for another role of a partition: the next request is a full one.
    is_anew: bool


class FetcherMachine:
    """What a ReplicaFetcher is at, and whom it follows. While it is asking, or a guest, all that is followed and not
    put off is asked for: who is added meanwhile has the request given up. One fetcher owns it, and calls it under its
    lock.
    """

    def __init__(self) -> None:
        #: Read without the lock by the loop: a state that has changed meanwhile is seen at its next answer.
        self.state = FetcherState.IDLE
        #: Since the last :meth:`plan` or :meth:`look`. Read without the lock by the loop.
        self.changes = Changes.NOTHING
        #: Tries in a row that did not reach the leader.
        self.failures = 0
        self._followed: dict[Key, Followed] = {}

    def __len__(self) -> int:
        return len(self._followed)

    @property
    def followed(self) -> Mapping[Key, Followed]:
        """What is followed now, put off or not."""
        return self._followed

    @property
    def is_stopped(self) -> bool:
        return self.state is FetcherState.STOPPED

    def on(self, event: FetcherEvent) -> Instruction:
        """Goes to the next state."""
        self.state, instruction = TRANSITIONS.get((self.state, event), (self.state, Instruction.NOTHING))
        return instruction

    # -- what is followed

    def add(self, followed: Iterable[Followed]) -> Instruction:
        """Follows them too, or in another role than before."""
        for item in followed:
            self._followed[item.key] = item
        self.changes = Changes.ADDED
        return self.on(FetcherEvent.ADDED)

    def remove(self, topic_partitions: Collection[TopicPartition]) -> None:
        """Follows them no more; what is asked for them meanwhile is not taken."""
        for key, item in list(self._followed.items()):
            if item.partition.topic_partition in topic_partitions:
                del self._followed[key]
                self.changes = max(self.changes, Changes.REMOVED)

    def put_off(self, followed: Followed, until_ms: int) -> None:
        """Does not ask for it before; nothing where it is followed in another role by now."""
        self.changes = max(self.changes, Changes.PUT_OFF)
        if self._followed.get(followed.key) is followed:
            self._followed[followed.key] = followed.put_off(until_ms)

    # -- what is done next

    def plan(self, now_ms: int) -> Plan:
        """What the thread does now, all over."""
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
        """All that is followed, for a loop to ask on for; None where the thread has something to do about it."""
        if not self.goes_well(len(self._followed)):
            return None
        self.changes = Changes.NOTHING
        return list(self._followed.values())

    def goes_well(self, asked: int) -> bool:
        """Whether a loop may ask for ``asked`` partitions: they are all, and none waits out an error."""
        is_asking = self.state is FetcherState.ASKING or self.state is FetcherState.GUEST
        return is_asking and self.changes < Changes.PUT_OFF and asked == len(self._followed)

    def reached(self) -> bool:
        """The leader answered; whether it could not be reached before."""
        failures, self.failures = self.failures, 0
        return failures > 0

    def unreachable(self) -> Reaction:
        """The leader could not be asked, or its answer not be had."""
        if self.state is FetcherState.GIVEN_UP:
            return Reaction.NOTHING
        self.failures += 1
        return Reaction.TELL if self.failures == 1 and not self.is_stopped else Reaction.PAUSE
