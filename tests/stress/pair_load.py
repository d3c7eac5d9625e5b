"""Who writes to, reads from, and looks at the partitions that two brokers share."""

from __future__ import annotations

import itertools
import random
import sys
import threading
from collections.abc import Callable, Iterator, Mapping

from broker.log.log import Log
from broker.log.look_ups import read_region
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.produce_messages import PartitionResponse
from broker.record.batch import Record, read_records
from broker.replication.delayed_fetch import Fetched, FetchEntry, FetchParams
from broker.utils.topic_partition import TopicPartition
from rig.wait import last_for, wait_until
from tests.stress.history import Mark, Written
from tests.stress.pair import BROKERS, Pair, Replicating, Shared, controller
from tests.stress.watch import Watch
from tests.stress.writers import batch_of

FOR_GOOD = Mark(0, sys.maxsize)
_TIMEOUT_MS = 600_000
_MOST_WAITING = 30
# What a producer may be told: the leader is another, or too few are in sync.
_MAY_BE = {
    Errors.NOT_LEADER_OR_FOLLOWER,
    Errors.NOT_ENOUGH_REPLICAS,
    Errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
}


class PairLoad:
    """``waiting`` are the requests that have no answer yet. The controller works until :meth:`settle`: a request
    that waits for two in sync is answered once it lets the follower back in.
    """

    def __init__(self, pair: Pair, seed: int) -> None:
        self._pair = pair
        self._watch = pair.watch
        self._seed = seed
        self.waiting: dict[int, Shared] = {}
        self._settled = threading.Event()
        self.acknowledged = self.consumed = 0
        self._numbers = itertools.count()

    def start(self) -> list[threading.Thread]:
        """Two of each who may meet themselves."""
        makers: dict[str, Callable[[random.Random], Callable[[], None]]] = {
            "pair-producer-0": self._producer,
            "pair-producer-1": self._producer,
            "pair-consumer": self._consumer,
            "pair-reader": self._reader,
            "pair-judge": self._judge,
            "pair-housekeeper": self._housekeeper,
        }
        decide = controller(self._pair, random.Random(f"{self._seed} pair-controller"))
        self._controller = self._watch.run("pair-controller", decide, until=self._settled)
        return [
            self._watch.run(name, make(random.Random(f"{self._seed} {name}")))
            for name, make in makers.items()
        ]

    def _broker_of(self, place: Shared, chance: random.Random) -> Replicating:
        """Whom a client with metadata that is mostly fresh asks."""
        return self._pair.brokers[place.leader if chance.random() < 0.9 else chance.choice(BROKERS)]

    def _producer(self, chance: random.Random) -> Callable[[], None]:
        def produce() -> None:
            last_for(chance.random() * 0.01)
            if len(self.waiting) > _MOST_WAITING:
                return
            place = chance.choice(self._pair.places)
            number = next(self._numbers)
            values = [
                b"pair %d-%d " % (number, i) * chance.randint(1, 30) for i in range(chance.randint(1, 4))
            ]
            self._send(place, self._broker_of(place, chance), number, values, chance.choice((-1, -1, 1, 0)))

        return produce

    def _send(self, place: Shared, broker: Replicating, number: int, values: list[bytes], acks: int) -> None:
        self.waiting[number] = place

        def answered(responses: Mapping[TopicPartition, PartitionResponse]) -> None:
            del self.waiting[number]
            self._watch.holds_nothing(f"an answer of {place.name}")
            response = responses[place.name]
            if response.error is not Errors.NONE:
                if response.error not in _MAY_BE:
                    self._watch.problem(
                        f"{place.name}: acks={acks} was answered with {response.error.name}: {response.message}"
                    )
            elif acks == -1:
                self.acknowledged += 1
                for i, value in enumerate(values):
                    place.history.add(Written(response.base_offset + i, value, FOR_GOOD))

        broker.replicas.append_records(
            timeout_ms=_TIMEOUT_MS,
            required_acks=acks,
            entries={place.name: batch_of(values)},
            callback=answered,
        )

    def _consumer(self, chance: random.Random) -> Callable[[], None]:
        """What it is given is below the high watermark, and so may not be lost."""

        def poll() -> None:
            place = chance.choice(self._pair.places)
            broker = self._broker_of(place, chance)
            log = broker.replicas.local_log(place.name)
            assert log is not None
            offset = max(log.log_start_offset, log.high_watermark - chance.randint(0, 10))
            answered = threading.Event()

            def answer(fetched: Fetched) -> None:
                self._watch.holds_nothing(f"a long poll of {place.name}")
                self._note_consumed(place, offset, fetched)
                answered.set()

            entry = FetchEntry(place.name, place.topic_id, offset, 65_536)
            broker.replicas.fetch(FetchParams(-1, -1, 50, 1, 65_536), [entry], answer)
            if not answered.wait(self._watch.stall_s):
                self._watch.problem(f"{place.name}: a long poll of 50 ms was never answered")

        return poll

    def _note_consumed(self, place: Shared, offset: int, fetched: Fetched) -> None:
        for _, found in fetched:
            if found.error is not Errors.NONE or found.records is None:
                continue
            try:
                records = read_records(read_region(found.records))
            except KafkaError:
                continue  # the file was cut, or written anew, since: a connection would end here
            for record in records:
                if record.offset >= found.high_watermark:
                    self._watch.problem(
                        f"{place.name}: {record.offset} was read, committed is {found.high_watermark}"
                    )
                elif record.offset >= offset and record.value is not None:
                    self.consumed += 1
                    place.history.add(Written(record.offset, record.value, FOR_GOOD))

    def _reader(self, chance: random.Random) -> Callable[[], None]:
        def read() -> None:
            place = chance.choice(self._pair.places)
            mark = place.history.mark()
            log = self._pair.brokers[place.leader].replicas.local_log(place.name)
            try:
                wanted = chance.choice(place.history.written)
            except (IndexError, RuntimeError):  # nothing yet, or another thread's append met the choice
                return
            assert log is not None
            problem = lost(log, wanted)
            if problem is not None and place.history.is_still(mark):
                self._watch.problem(f"{place.name}: the leader {problem}")

        return read

    def _judge(self, chance: random.Random) -> Callable[[], None]:
        """No high watermark passes what a member of the ISR has."""

        def look() -> None:
            for place in self._pair.places:
                mark = place.history.mark()
                partition = self._pair.brokers[place.leader].replicas.partition(place.name)
                assert partition is not None
                with partition._lock:
                    leads, committed, isr = partition.is_leader, partition.log.high_watermark, partition.isr
                ends = {
                    broker_id: log.log_end_offset
                    for broker_id in isr.maximal
                    if (log := self._pair.brokers[broker_id].replicas.local_log(place.name)) is not None
                }
                if leads and committed > min(ends.values()) and place.history.is_still(mark):
                    self._watch.problem(f"{place.name}: {committed} is committed in {isr}, they have {ends}")
            last_for(chance.random() * 0.005)

        return look

    def _housekeeper(self, chance: random.Random) -> Callable[[], None]:
        def keep_house() -> None:
            broker = self._pair.brokers[chance.choice(BROKERS)]
            log = broker.replicas.local_log(chance.choice(self._pair.places).name)
            assert log is not None
            task = chance.randrange(6)
            if task == 0:
                broker.replicas.shrink_isrs()
            elif task == 1:
                broker.replicas.on_brokers_changed()
            elif task == 2:
                broker.replicas.checkpoint_high_watermarks()
            elif task == 3:
                broker.logs.apply_retention()
            elif task == 4:
                log.flush()
            else:
                log.roll()
            last_for(chance.random() * 0.05)

        return keep_house

    def settle(self) -> None:
        """Once nobody writes any more: the followers come up to their leaders, and nothing is lost anywhere."""
        self._settled.set()
        self._controller.join()
        for place in self._pair.places:
            logs = [self._pair.brokers[broker_id].replicas.local_log(place.name) for broker_id in BROKERS]
            try:
                wait_until(
                    lambda logs=logs: len({log.log_end_offset for log in logs}) == 1, self._watch.stall_s
                )
            except TimeoutError:
                self._watch.problem(f"{place.name}: the follower does not come up to its leader: {logs}")
                continue
            check_shared(self._watch, place, logs)


def check_shared(watch: Watch, place: Shared, logs: list[Log]) -> None:
    """Both logs, at rest: the same records, and all that may not be lost."""
    one, other = _read_both(logs)
    if one != other:
        at = next((a, b) for a, b in itertools.zip_longest(one, other) if a != b)
        watch.problem(f"{place.name}: the replicas differ: {at}")
    for log in logs:
        for wanted in list(place.history.written):
            if problem := lost(log, wanted):
                watch.problem(f"{place.name}: {problem}")


def _read_both(logs: list[Log]) -> tuple[list[tuple[int, bytes | None]], ...]:
    """What both have, from the first offset that both have; read again if retention takes it meanwhile."""
    while True:
        start = max(log.log_start_offset for log in logs)
        try:
            return tuple([(r.offset, r.value) for r in _all_records(log, start)] for log in logs)
        except KafkaError:
            if max(log.log_start_offset for log in logs) == start:
                raise


def lost(log: Log, wanted: Written) -> str | None:
    """What is wrong with what ``log`` has at the offset; None when nothing is, or retention let it go."""
    try:
        found = {record.offset: record.value for record in read_records(log.read_bytes(wanted.offset, 8192))}
    except KafkaError as error:
        if wanted.offset < log.log_start_offset:
            return None
        return f"{log} does not give {wanted.offset}, {wanted.value!r} was committed there: {error}"
    if (value := found.get(wanted.offset)) == wanted.value:
        return None
    return f"{log} has {value!r} at {wanted.offset}, {wanted.value!r} was committed there"


def _all_records(log: Log, offset: int) -> Iterator[Record]:
    while offset < log.log_end_offset:
        records = read_records(log.read_bytes(offset, 65_536))
        yield from (record for record in records if record.offset >= offset)
        offset = records[-1].offset + 1
