"""Threads that put records into partitions and take them away: producers, a fetcher, changes of roles, deletions."""

from __future__ import annotations

import itertools
import random
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial

from broker.log.log import Log
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.produce_messages import PartitionResponse
from broker.record.batch import Record, build_batch
from broker.utils.topic_partition import TopicPartition
from rig.wait import last_for, wait_until
from tests.stress.history import Mark, Written
from tests.stress.site import OTHER, SELF, Place, Site

_TIMEOUT_MS = 600_000
_MOST_WAITING = 40
_KEYS = 1000
_MOST_RECORDS = 5
# What a producer is told when the partition changed its role, or was deleted, meanwhile.
_CHANGED = {Errors.NOT_LEADER_OR_FOLLOWER, Errors.KAFKA_STORAGE_ERROR}

Step = Callable[[], None]


def batch_of(values: list[bytes], key: bytes | None = None, offset: int = 0, epoch: int = 0) -> memoryview:
    records = [Record(key, value, timestamp=1_700_000_000_000) for value in values]
    return memoryview(bytearray(build_batch(records, base_offset=offset, leader_epoch=epoch)))


def key_of(chance: random.Random) -> bytes:
    """Some keys come all the time, most hardly ever again: of those the cleaner has to keep an old record."""
    return b"k%d" % int(_KEYS ** chance.random())


class Producers:
    """Requests of clients, and what their answers promise."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.waiting: dict[int, Place] = {}
        self.acknowledged: Counter[Place] = Counter()
        self._numbers = itertools.count()

    def step(self, name: str, places: list[Place]) -> Step:
        chance = self._site.chance(name)

        def produce() -> None:
            if len(self.waiting) > _MOST_WAITING:
                last_for(0.001)
                return
            place = chance.choice(places)
            if place.quiet:
                return
            number = next(self._numbers)
            values = [
                b"%d-%d " % (number, i) * chance.randint(1, 30)
                for i in range(chance.randint(1, _MOST_RECORDS))
            ]
            key = key_of(chance) if place.compacts else None
            self._send(place, number, values, key, chance.choice((-1, -1, 1, 0)))
            if chance.random() < 0.05:
                last_for(chance.random() * 0.01)

        return produce

    def await_answers(self, place: Place) -> None:
        """All who wait are answered without another record or flush that would help them."""
        place.quiet = True
        try:
            wait_until(lambda: place not in list(self.waiting.values()), self._site.watch.stall_s / 2, 0.005)
        except TimeoutError:
            partition = self._site.partition(place)
            self._site.watch.problem(
                f"{place.name}: requests are not answered: {partition and partition.log}"
            )
        finally:
            place.quiet = False

    def _send(self, place: Place, number: int, values: list[bytes], key: bytes | None, acks: int) -> None:
        mark = place.history.mark()
        partition = self._site.partition(place)
        log = None if partition is None else partition.log
        self.waiting[number] = place

        def answered(responses: Mapping[TopicPartition, PartitionResponse]) -> None:
            del self.waiting[number]
            self._site.watch.holds_nothing(f"an answer of {place.name}")
            response = responses[place.name]
            if response.error is not Errors.NONE:
                may_change = place.kind not in ("leads", "dooms") or self._site.is_gone(place)
                if response.error not in _CHANGED or not may_change:
                    self._site.watch.problem(
                        f"{place.name}: acks={acks} was answered with {response.error.name}: {response.message}"
                    )
            elif acks != 0 and log is not None:
                self.acknowledged[place] += 1
                self._judge(place, log, response.base_offset, values, key, acks, mark)

        self._site.replicas.append_records(
            timeout_ms=_TIMEOUT_MS,
            required_acks=acks,
            entries={place.name: batch_of(values, key)},
            callback=answered,
        )

    def _judge(
        self,
        place: Place,
        log: Log,
        base: int,
        values: list[bytes],
        key: bytes | None,
        acks: int,
        mark: Mark,
    ) -> None:
        synced, committed, end = log.durability.synced_end, log.high_watermark, base + len(values)
        if not place.history.keeps(end - 1, mark):
            return
        if place.syncs_each and synced < end:
            self._site.watch.problem(f"{place.name}: {end} was acknowledged, synced is {synced}")
        if acks == -1 and committed < end:
            self._site.watch.problem(f"{place.name}: {end} was acknowledged, committed is {committed}")
        note(place, key, base, values, mark)


def note(place: Place, key: bytes | None, base: int, values: list[bytes], mark: Mark) -> None:
    """What has been appended from ``base`` on is to stay."""
    if key is not None:
        place.history.add_keyed(key, Written(base + len(values) - 1, values[-1], mark))
        return
    for i, value in enumerate(values):
        place.history.add(Written(base + i, value, mark))


def append_fetched(site: Site, place: Place, number: int, count: int, chance: random.Random) -> None:
    """One fetch of a follower, as its fetcher appends it."""
    partition = site.held(place)
    log, mark = partition.log, place.history.mark()
    offset = log.log_end_offset
    values = [b"%s %d-%d " % (place.name.topic.encode(), number, i) * 20 for i in range(count)]
    key = key_of(chance) if place.compacts else None
    records = batch_of(values, key, offset, place.epoch)
    info = partition.append_as_follower(records, place.epoch, max(offset - 3, 0), log.log_start_offset)
    if info is None or info.first_offset != offset:
        site.watch.problem(
            f"{place.name}: a fetch at {offset} was appended as {info and (info.first_offset, info.last_offset)}"
        )
    if place.syncs_each and (synced := log.durability.synced_end) < offset + count:
        site.watch.problem(f"{place.name}: a fetch up to {offset + count} returned with {synced} synced")
    note(place, key, offset, values, mark)


def follower(site: Site, name: str, place: Place) -> Step:
    """Appends what its leader sends; now and then it has to truncate, or to begin anew."""
    chance, numbers = site.chance(name), itertools.count()

    def fetch() -> None:
        if site.is_gone(place):
            last_for(0.05)
            return
        try:
            fetch_one()
        except KafkaError:
            if not site.is_gone(place):
                raise

    def fetch_one() -> None:
        append_fetched(site, place, next(numbers), chance.randint(1, _MOST_RECORDS), chance)
        if chance.random() < 0.02:
            truncate(site, place, chance.randint(0, 60))
            place.epoch += 1
            partition = site.held(place)
            partition.make_follower(place.state(OTHER))
        elif chance.random() < 0.001:
            truncate(site, place, None)

    return fetch


def truncate(site: Site, place: Place, records: int | None) -> None:
    """Takes the last ``records`` away, all of them when None: the log then begins where it would end."""
    partition = site.held(place)
    log = partition.log
    with partition._lock:
        end = log.log_end_offset
        offset = log.log_start_offset if records is None else max(log.log_start_offset, end - records)
        place.history.begin_cut(offset - _MOST_RECORDS)  # a batch that reaches the offset goes as a whole
        if records is None:
            log.truncate_fully_and_start_at(end + 10)
        else:
            log.truncate_to(offset)
    place.history.settled()


def turner(site: Site, name: str, place: Place, producers: Producers) -> Step:
    """Leader, deposed, truncated, a follower for a while, leader again: producers are at it all the time."""
    chance, numbers = site.chance(name), itertools.count()

    def turn() -> None:
        last_for(chance.random() ** 2 * 0.1)
        if chance.random() < 0.4:
            producers.await_answers(place)
        partition = site.held(place)
        place.epoch += 1
        partition.make_follower(place.state(OTHER))
        site.replicas.wake_all(place.name)
        truncate(site, place, chance.randint(0, 15))
        for _ in range(chance.randint(0, 4)):
            append_fetched(site, place, next(numbers), chance.randint(1, 3), chance)
        place.epoch += 1
        partition.make_leader(place.state(SELF))
        site.replicas.wake_all(place.name)

    return turn


def deleter(site: Site, name: str, place: Place) -> Step:
    """Deletes the topic and makes another one of its name at once."""
    chance = site.chance(name)

    def pass_on() -> None:
        last_for(chance.random() * 0.15)
        partition = site.held(place)
        for _ in range(chance.randint(0, 3)):  # so that its last flush has epochs to write
            place.epoch += 1
            partition.make_leader(place.state(SELF))
            last_for(chance.random() * 0.01)
        place.quiet = True
        place.history.begin_life()
        site.replicas.forget(place.name)
        site.logs.delete_async(place.name)
        place.history.forget()
        site.make(place)
        last_for(chance.random() ** 2 * 0.3)  # what the old one still had under way comes to its end
        site.check_epochs(place, place.history.mark())
        place.quiet = False

    return pass_on


def start_writers(site: Site, producers: Producers) -> list[threading.Thread]:
    led = site.of_kind("leads", "turns", "passes", "dooms")
    steps = {f"producer-{i}": producers.step(f"producer-{i}", led) for i in range(3)}
    turning = partial(turner, producers=producers)
    for kind, make in (("follows", follower), ("falls", follower), ("turns", turning), ("passes", deleter)):
        for place in site.of_kind(kind):
            steps[f"{kind}-{place.name}"] = make(site, f"{kind}-{place.name}", place)
    return [site.watch.run(name, step) for name, step in steps.items()]
