"""Threads that look: reads of what was acknowledged, marks that never go back, files that say no more than is so."""

from __future__ import annotations

import threading
import uuid
from typing import NamedTuple

from broker.log.log import Log
from broker.protocol.errors import Errors, KafkaError
from broker.record.batch import read_records
from broker.replication.delayed_fetch import FetchEntry, FetchParams
from broker.utils.topic_partition import TopicPartition
from rig.wait import last_for
from tests.stress.compacted import check_key
from tests.stress.history import Mark, Written
from tests.stress.site import Place, Site
from tests.stress.writers import Step


class Seen(NamedTuple):
    """A partition's marks at a moment."""

    mark: Mark
    start: int
    synced: int
    committed: int
    end: int


def check_record(site: Site, place: Place, log: Log, wanted: Written) -> None:
    """What was acknowledged is read back byte-equal, unless it was truncated or retention let it go."""
    try:
        found = {r.offset: r.value for r in read_records(log.read_bytes(wanted.offset, 8192))}
    except KafkaError as error:
        gone = error.error_code is Errors.OFFSET_OUT_OF_RANGE and wanted.offset < log.log_start_offset
        if not gone and not site.has_failed(log) and place.history.keeps(wanted.offset, wanted.since):
            site.watch.problem(f"{place.name}: {wanted.offset} of {log} is not read: {error}")
        return
    value = found.get(wanted.offset)
    if value != wanted.value and place.history.keeps(wanted.offset, wanted.since):
        site.watch.problem(
            f"{place.name}: {wanted.offset} of {log} is {value!r}, was written as {wanted.value!r}"
        )


def reader(site: Site, name: str) -> Step:
    chance = site.chance(name)

    def read() -> None:
        place = chance.choice(site.places)
        partition = site.partition(place)
        if partition is None:
            return
        if place.compacts:
            if keyed := place.history.keyed():
                check_key(site, place, partition.log, *chance.choice(keyed))
            return
        try:
            wanted = chance.choice(place.history.written)
        except (IndexError, RuntimeError):  # another thread's append or clearing met the choice
            return
        check_record(site, place, partition.log, wanted)

    return read


def consumer(site: Site, name: str) -> Step:
    """Long polls from the end: they wait in the purgatory and are answered by whoever appends."""
    chance = site.chance(name)

    def poll() -> None:
        place = chance.choice(site.of_kind("leads", "turns", "passes"))
        partition = site.partition(place)
        if partition is None:
            return
        answered = threading.Event()
        entry = FetchEntry(place.name, uuid.UUID(int=0), partition.log.high_watermark, 65_536)

        def answer(_fetched: object) -> None:
            site.watch.holds_nothing(f"a long poll of {place.name}")
            answered.set()

        site.replicas.fetch(FetchParams(-1, -1, 50, 1, 65_536), [entry], answer)
        if not answered.wait(site.watch.stall_s):
            site.watch.problem(f"{place.name}: a long poll of 50 ms was never answered")

    return poll


def judge(site: Site, name: str) -> Step:
    """Looks at every partition's marks, in an order in which they may move on meanwhile."""
    chance, seen = site.chance(name), dict[TopicPartition, Seen]()

    def look() -> None:
        for place in site.places:
            partition = site.partition(place)
            if partition is None:
                continue
            mark, log = place.history.mark(), partition.log
            now = Seen(mark, log.log_start_offset, log.recovery_point, log.high_watermark, log.log_end_offset)
            before = seen.get(place.name)
            if not place.history.is_still(mark):
                continue
            seen[place.name] = now
            if not (now.start <= now.committed <= now.end and now.synced <= now.end):
                site.watch.problem(f"{place.name}: {now} contradicts itself")
            if (
                before is not None
                and before.mark == mark
                and any(a > b for a, b in zip(before[1:], now[1:], strict=True))
            ):
                site.watch.problem(f"{place.name}: went back from {before} to {now}, nothing was truncated")
            site.check_epochs(place, mark)
        _check_recovery_points(site)
        last_for(chance.random() * 0.005)

    return look


def _check_recovery_points(site: Site) -> None:
    """The file never vouches for more than the log does."""
    marks = [(place, place.history.mark(), site.partition(place)) for place in site.places]
    for log_dir in site.logs.dirs:
        points = log_dir.read_checkpoint(log_dir.recovery_points)
        for place, mark, partition in marks:
            if partition is None or partition.log.dir.parent != log_dir.path:
                continue
            said, own = points.get(place.name, 0), partition.log.recovery_point
            if said > own and place.history.is_still(mark):
                site.watch.problem(f"{place.name}: the file says {said} is durable, the log says {own}")


def housekeeper(site: Site, name: str) -> Step:
    """What the scheduler does too, at any moment and at once with it; but to one log at a time, for a pass
    over all of them may take as long on a busy machine as a thread may stand still.
    """
    chance, logs, replicas = site.chance(name), site.logs, site.replicas

    def keep_house() -> None:
        place = chance.choice(site.places)
        partition = None if place.quiet else site.partition(place)
        task = chance.randrange(8)
        if task == 0:
            logs.checkpoint_recovery_points()
        elif task == 1:
            logs.checkpoint_log_starts()
        elif task == 2:
            replicas.checkpoint_high_watermarks()
        elif task == 3:
            replicas.shrink_isrs()
            replicas.on_brokers_changed()
        elif partition is not None:
            log = partition.log
            try:
                (log.flush, log.roll, log.delete_old_segments, log.producers.expire)[task - 4]()
            except KafkaError as error:
                if place.kind == "passes" or site.is_gone(place):
                    return  # it was deleted meanwhile, or its disk has failed
                site.watch.problem(f"{log}: {error}")
        last_for(chance.random() * 0.01)

    return keep_house


def start_readers(site: Site) -> list[threading.Thread]:
    steps = {f"reader-{i}": reader(site, f"reader-{i}") for i in range(2)}
    steps |= {f"housekeeper-{i}": housekeeper(site, f"housekeeper-{i}") for i in range(2)}
    steps |= {"consumer": consumer(site, "consumer"), "judge": judge(site, "judge")}
    return [site.watch.run(name, step) for name, step in steps.items()]
