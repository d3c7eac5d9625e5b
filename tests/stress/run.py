"""One run: all threads for a while, then everybody is answered, everything is read, the logs are opened anew."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from broker.log.log_manager import LogManager
from tests.stress.lock_graph import LockGraph
from tests.stress.readers import check_record, start_readers
from tests.stress.site import EPOCHS_OF_A_LIFE, Site, make_manager, running_site
from tests.stress.slow_disk import slow_disk
from tests.stress.watch import Watch
from tests.stress.writers import Producers, start_writers
from tests.support.wait import wait_until


def run(directory: Path, seconds: float, seed: int, watch: Watch, graph: LockGraph) -> str:
    """What was done, in a line. Problems are ``watch``'s and ``graph``'s."""
    watch.hear_the_broker()
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    try:
        with slow_disk(seed), running_site(directory, seed, watch) as site:
            return _run(site, seconds, watch, graph)
    finally:
        sys.setswitchinterval(before)


def _run(site: Site, seconds: float, watch: Watch, graph: LockGraph) -> str:
    producers = Producers(site)
    threads = start_writers(site, producers) + start_readers(site)
    until = time.monotonic() + seconds
    while time.monotonic() < until and not graph.problems and not watch.stop.wait(0.2):
        if stalled := watch.stalled():
            watch.give_up(f"{', '.join(stalled)} stood still for {watch.stall_s} s")
    watch.stop.set()
    deadline = time.monotonic() + watch.stall_s
    for thread in threads:
        thread.join(max(deadline - time.monotonic(), 0))
    if hanging := [thread.name for thread in threads if thread.is_alive()]:
        watch.give_up(f"{', '.join(hanging)} did not end within {watch.stall_s} s")
        return "hung"
    try:
        wait_until(lambda: not producers.waiting, watch.stall_s)
    except TimeoutError:
        places = sorted({str(place.name) for place in producers.waiting.values()})
        marks = [site.partition(place) and site.partition(place).log for place in producers.waiting.values()]
        watch.give_up(f"{len(producers.waiting)} requests to {places} were never answered: {set(marks)}")
        return "hung"
    return _end(site, watch)


def _end(site: Site, watch: Watch) -> str:
    _read_all(site, site.logs)
    appended = sum(log.log_end_offset for log in site.logs.all_logs())
    lives = sum(place.history.life for place in site.places)
    site.replicas.shutdown()
    site.scheduler.shutdown()
    site.timer.stop()
    site.logs.shutdown()
    if not watch.problems:
        again = make_manager(site.paths, None)
        again.startup()
        if not again.clean:
            watch.problem("a stop was not clean")
        _read_all(site, again)
        again.shutdown()
    return f"{appended} records in {len(site.places)} partitions, {lives} logs"


def _read_all(site: Site, logs: LogManager) -> None:
    for place in site.places:
        log = logs.get(place.name)
        if log is None:
            site.watch.problem(f"{place.name} has no log")
            continue
        for wanted in list(place.history.written):
            check_record(site, place, log, wanted)
        foreign = [e for e in log.leader_epochs.entries if e[0] // EPOCHS_OF_A_LIFE != place.history.life]
        if foreign:
            site.watch.problem(
                f"{place.name}: log {place.history.life} of that name has epochs of another's: {foreign}"
            )
