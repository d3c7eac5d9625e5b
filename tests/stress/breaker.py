"""The thread that breaks disks: one directory after the other fails for good, and the others must serve on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rig.wait import last_for, wait_until
from tests.stress.failing_disk import FailingDisk
from tests.stress.site import Site
from tests.stress.writers import Producers, Step


def breaker(site: Site, disk: FailingDisk, producers: Producers, seconds: float) -> Step:
    """Spreads the failures over a run of ``seconds``."""
    chance, left = site.chance("breaker"), list(site.failing)
    pause_s = seconds / (len(left) + 1)

    def break_one() -> None:
        if not left:
            last_for(0.05)
            return
        until = pause_s * (0.5 + chance.random())
        while until > 0 and not site.watch.stop.is_set():
            site.watch.beat("breaker")
            last_for(min(until, 0.5))
            until -= 0.5
        if not site.watch.stop.is_set():
            fail(site, disk, producers, left.pop())

    return break_one


def fail(site: Site, disk: FailingDisk, producers: Producers, directory: Path) -> None:
    """The directory's partitions go, all of them; every other directory's producers are acknowledged as before."""
    doomed = [place for place in site.places if place.directory == directory]
    site.broken.update(doomed)
    site.watch.expect(directory.name, *(place.name.topic for place in doomed))
    disk.fail(directory)
    _await(
        site,
        lambda: all(
            site.replicas.is_offline(place.name) and site.logs.get(place.name) is None for place in doomed
        ),
        f"the partitions of {directory.name}, which has failed, are not given up",
    )
    healthy = [place for place in site.of_kind("leads") if place not in site.broken]
    before = {place: producers.acknowledged[place] for place in healthy}
    _await(
        site,
        lambda: site.watch.stop.is_set() or all(producers.acknowledged[p] > before[p] for p in healthy),
        f"with {directory.name} failed, other directories acknowledge nothing",
    )


def _await(site: Site, condition: Callable[[], bool], problem: str) -> None:
    watch = site.watch

    def holds() -> bool:
        watch.beat("breaker")
        return bool(watch.problems) or condition()

    try:
        wait_until(holds, watch.stall_s)
    except TimeoutError:
        watch.problem(problem)
