"""Runs many small jobs on a few threads, group by group, until the first failure."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

Job = Callable[[], None]


def run_parallel(groups: Sequence[Sequence[Job]], threads_per_group: int, name: str) -> None:
    """Runs the jobs of each group on ``threads_per_group`` threads; returns when all have ended.

    After the first exception no further job starts, and it is raised here. The caller's thread does one
    thread's share of the work.
    """
    failures: list[BaseException] = []

    def work(jobs: list[Job]) -> None:
        while jobs and not failures:
            try:
                job = jobs.pop()
            except IndexError:
                return
            try:
                job()
            except BaseException as error:  # any exception is passed to the caller
                failures.append(error)

    queues = [list(reversed(group)) for group in groups if group]
    plan = [queue for queue in queues for _ in range(min(threads_per_group, len(queue)))]
    threads = [
        threading.Thread(target=work, args=(queue,), name=f"{name}-{number}", daemon=True)
        for number, queue in enumerate(plan[1:])
    ]
    for thread in threads:
        thread.start()
    if plan:
        work(plan[0])
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
