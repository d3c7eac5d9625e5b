"""One run: all threads for a while, then everybody is answered, everything is read, the logs are opened anew
on mended disks.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path

from broker.log.log_manager import LogManager
from rig.wait import wait_until
from tests.stress.breaker import breaker
from tests.stress.compacted import check_all_keys
from tests.stress.failing_disk import FailingDisk, failing_disk
from tests.stress.lock_graph import LockGraph
from tests.stress.pair_load import PairLoad, check_shared
from tests.stress.readers import check_record, start_readers
from tests.stress.site import EPOCHS_OF_A_LIFE, MOST_FAILING, Site, make_manager, running_site
from tests.stress.slow_disk import slow_disk
from tests.stress.watch import Watch
from tests.stress.writers import Producers, start_writers


def run(directory: Path, seconds: float, seed: int, watch: Watch, graph: LockGraph) -> str:
    """What was done, in a line. Problems are ``watch``'s and ``graph``'s."""
    watch.hear_the_broker()
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    try:
        failing = max(1, min(int(seconds) // 10, MOST_FAILING))
        with slow_disk(seed), running_site(directory, seed, watch, failing) as site:
            with failing_disk() as disk:
                done = _run(site, seconds, watch, graph, disk)
            return done if done == "hung" else _end(site, watch, done)
    finally:
        sys.setswitchinterval(before)


def _run(site: Site, seconds: float, watch: Watch, graph: LockGraph, disk: FailingDisk) -> str:
    producers = Producers(site)
    pair_load = PairLoad(site.pair, site.seed)
    threads = start_writers(site, producers) + start_readers(site) + pair_load.start()
    threads.append(watch.run("breaker", breaker(site, disk, producers, seconds)))
    until = time.monotonic() + seconds
    while time.monotonic() < until and not graph.problems and not watch.stop.wait(0.2):
        if stalled := watch.stalled():
            queued = Counter(
                task.name for queue in (site.scheduler._tasks, site.scheduler._bulk) for task in list(queue)
            ).most_common(5)
            watch.give_up(
                f"{', '.join(stalled)} stood still for {watch.stall_s} s; the scheduler has to do: {queued}"
            )
    watch.stop.set()
    while (alive := [thread for thread in threads if thread.is_alive()]) and not watch.stalled():
        alive[0].join(0.05)
    if alive:
        watch.give_up(f"{', '.join(watch.stalled())} did not end within {watch.stall_s} s")
        return "hung"
    try:
        wait_until(lambda: not producers.waiting and not pair_load.waiting, watch.stall_s)
    except TimeoutError:
        if pair_load.waiting:
            shared = {
                str(site.pair.brokers[place.leader].replicas.partition(place.name))
                for place in pair_load.waiting.values()
            }
            watch.give_up(f"{len(pair_load.waiting)} requests to {shared} were never answered")
            return "hung"
        places = sorted({str(place.name) for place in producers.waiting.values()})
        marks = [site.partition(place) and site.partition(place).log for place in producers.waiting.values()]
        watch.give_up(f"{len(producers.waiting)} requests to {places} were never answered: {set(marks)}")
        return "hung"
    pair_load.settle()
    return _stopped(site, pair_load)


def _stopped(site: Site, pair_load: PairLoad) -> str:
    """The disks that failed have not been mended yet."""
    _read_all(site, site.logs)
    appended = sum(log.log_end_offset for log in site.logs.all_logs())
    lives = sum(place.history.life for place in site.places)
    site.replicas.shutdown()
    site.pair.shutdown()
    site.failures.shutdown()
    site.scheduler.shutdown()
    site.timer.stop()
    site.logs.shutdown()
    for logs in site.pair_logs.values():
        logs.shutdown()
    lost = len({place.directory for place in site.broken})
    return (
        f"{appended} records in {len(site.places)} partitions, {lives} logs, {lost} directories failed; two brokers: "
        f"{pair_load.acknowledged} requests acknowledged by both, {pair_load.consumed} records consumed, "
        f"{site.pair.elections} elections, {site.pair.isr_changes} changes of an ISR"
    )


def _end(site: Site, watch: Watch, done: str) -> str:
    """With mended disks: what had failed is recovered, all else was stopped cleanly, and everything is there."""
    if not watch.problems:
        again = make_manager(site.paths, None)
        again.startup()
        lost = {place.directory for place in site.broken}
        unclean = {log_dir.path for log_dir in again.dirs.unclean}
        if unclean != lost:
            watch.problem(f"after the stop {unclean} were not clean, {lost} had failed")
        site.broken.clear()
        _read_all(site, again)
        again.shutdown()
        _open_pair_again(site)
    return done


def _open_pair_again(site: Site) -> None:
    managers = [make_manager(paths, None) for paths in site.pair_paths.values()]
    for manager in managers:
        manager.startup()
    for place in site.pair.places:
        check_shared(site.watch, place, [manager.get_or_create(place.name) for manager in managers])
    for manager in managers:
        manager.shutdown()


def _read_all(site: Site, logs: LogManager) -> None:
    for place in site.places:
        log = logs.get(place.name)
        if log is None and site.is_gone(place):
            continue
        if log is None:
            site.watch.problem(f"{place.name} has no log")
            continue
        if place.compacts:
            check_all_keys(site, place, log)
        for wanted in list(place.history.written):
            check_record(site, place, log, wanted)
        foreign = [e for e in log.leader_epochs.entries if e[0] // EPOCHS_OF_A_LIFE != place.history.life]
        if foreign:
            site.watch.problem(
                f"{place.name}: log {place.history.life} of that name has epochs of another's: {foreign}"
            )
