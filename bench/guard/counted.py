"""``python -m bench.guard.counted [WORKLOAD…]``: serves the workloads under callgrind, which :mod:`.callgrind` starts.

Callgrind counts while a thread is in the C function ``ffi_call``, and writes its counts down, and begins again, when
``getppid`` is called. So each turn of the Processor is called through ctypes, and each round of requests ends with a
``getppid``. What the client does is not counted, nor what other threads do.

Under callgrind all takes fifty times as long, and the broker serves what takes long in other ways. So while requests
are counted its clocks go on by a microsecond each time that one looks.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from bench.guard.measure import settled_heap
from bench.guard.stage import Stage, staged_broker
from bench.guard.workloads import all_workloads
from bench.guard.workloads.workload import Workload
from broker.utils.logging_setup import configure_logging

ROUNDS: Final = 6
REQUESTS: Final = 4
_WARMING: Final = 16
_LOOK_NS: Final = 1000


def main(names: Sequence[str]) -> None:
    """Serves these workloads, or all; prints their names in the order of their rounds."""
    configure_logging({"LANDLINE_LOG_LEVEL": "warning"})
    with staged_broker() as stage:
        workloads = [one for one in all_workloads(stage) if not names or one.name in names]
        count_all(stage, workloads)
    print(json.dumps([workload.name for workload in workloads]))


def count_all(stage: Stage, workloads: Sequence[Workload]) -> None:
    """Serves ``ROUNDS`` rounds of ``REQUESTS`` requests of each."""
    plain, counted = stage.turn, _through_ffi(stage.turn)
    with settled_heap(), _clocks_by_looks():
        for workload in workloads:
            for number in range(ROUNDS):
                stage.turn = plain
                workload.begin_slice()
                for _ in range(1 if number else _WARMING):
                    workload.request()
                stage.turn = counted
                for _ in range(REQUESTS):
                    workload.request()
                os.getppid()
            workload.check()
    stage.turn = plain


@contextmanager
def _clocks_by_looks() -> Iterator[None]:
    real = {name: getattr(time, name) for name in ("monotonic_ns", "thread_time_ns")}
    for name, clock in real.items():
        setattr(time, name, itertools.count(clock(), _LOOK_NS).__next__)
    try:
        yield
    finally:
        for name, clock in real.items():
            setattr(time, name, clock)


def _through_ffi(function: Callable[[], None]) -> Callable[[], None]:
    call: Any = ctypes.pythonapi.PyObject_CallNoArgs
    call.argtypes, call.restype = [ctypes.py_object], ctypes.py_object

    def through_ffi() -> None:
        call(function)

    return through_ffi


if __name__ == "__main__":
    main(sys.argv[1:])
