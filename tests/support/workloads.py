"""Runs a client's workload, one producer and the members of a group at once; returns the history for
the checker.

``run`` does this in this process, ``WorkloadProcess`` in a separate one, so that four clients can run side by
side without sharing an interpreter lock. The clients themselves are in ``clients``.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

from confluent_kafka import Consumer, TopicPartition

from chaos.history import Acked, Event, Failed, History, Polled, Recorder, Sent
from rig.topics import await_leaders, end_offsets
from tests.support.clients.aio import AiokafkaDriver
from tests.support.clients.confluent import ConfluentDriver
from tests.support.clients.driver import Driver, Gate, Job, Workload
from tests.support.clients.kcat import KcatDriver
from tests.support.clients.python_kafka import KafkaPythonDriver

DRIVERS: Mapping[str, Driver] = {
    driver.name: driver for driver in (ConfluentDriver(), KafkaPythonDriver(), AiokafkaDriver(), KcatDriver())
}
TAIL_S = 1.5
"""How long consumers continue after the last acknowledged record, because a duplicate would come after it."""


class WorkloadFailedError(RuntimeError):
    """A client raised where it should have continued; the message contains its traceback."""


def run(workload: Workload, gate: Gate | None = None) -> History:
    """Writes and reads at once; returns when all acknowledged records were read, or after too long
    without progress.
    """
    opened = threading.Event()
    opened.set()
    used_gate = gate or opened
    job = Job(workload, Recorder(), used_gate, _pacer(workload, used_gate))
    driver = DRIVERS[workload.client]
    errors: list[str] = []
    producer = _thread(lambda: driver.produce(job, workload.client), errors)
    members = [f"{workload.client}-c{number}" for number in range(workload.consumers)]
    consumers = [_thread(lambda name=name: driver.consume(job, name), errors) for name in members]  # type: ignore[misc]
    _wait_for_reading(job, producer, errors)
    job.reading_done.set()
    for thread in (producer, *consumers):
        thread.join(60)
    if errors:
        raise WorkloadFailedError(f"{workload.client}: {errors[0]}")
    return job.recorder.history([workload.client] if driver.idempotent else [])


def audit(bootstrap: str, topic: str, history: History, timeout_s: float = 120.0) -> History:
    """Reads the whole topic once more outside any group: a history with the same sends and one reader of
    all partitions.
    """
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": f"{topic}-audit", "enable.auto.commit": False}
    )
    events: list[Event] = [e for e in history.events if isinstance(e, Sent | Acked | Failed)]
    try:
        await_leaders(bootstrap, topic)
        ends = end_offsets(consumer, topic)
        consumer.assign([TopicPartition(topic, partition, 0) for partition in ends])
        deadline = time.monotonic() + timeout_s
        left = {partition for partition, end in ends.items() if end > 0}
        while left and time.monotonic() < deadline:
            for message in consumer.consume(5000, 0.5):
                partition, offset, value = message.partition(), message.offset(), message.value()
                if (
                    message.error() is None
                    and partition is not None
                    and offset is not None
                    and value is not None
                ):
                    events.append(Polled("audit", partition, offset, value.decode()))
                    if offset + 1 >= ends[partition]:
                        left.discard(partition)
    finally:
        consumer.close()
    return History(events, history.idempotent)


class WorkloadProcess:
    """A workload in its own process, killed when its ``with`` block ends; several may share one gate."""

    def __init__(self, workload: Workload, gate: Any, log_path: Path) -> None:
        context = multiprocessing.get_context("spawn")
        self._receiver, sender = context.Pipe(duplex=False)
        self.workload = workload
        self._process = context.Process(target=_child, args=(workload, gate, sender, log_path), daemon=True)
        self._process.start()
        sender.close()

    def result(self, timeout_s: float) -> History:
        """Returns the history; raises ``WorkloadFailedError`` when the client failed or did not end
        in time.
        """
        try:
            if not self._receiver.poll(timeout_s):
                raise WorkloadFailedError(f"{self.workload.client}: no result within {timeout_s} s")
            outcome = self._receiver.recv()
        except EOFError as error:
            raise WorkloadFailedError(f"{self.workload.client}: the client's process died") from error
        if isinstance(outcome, str):
            raise WorkloadFailedError(outcome)
        history: History = outcome
        return history

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.join(20)
        self._receiver.close()


def new_gate() -> Any:
    """A closed gate that workload processes can wait for."""
    return multiprocessing.get_context("spawn").Event()


def _child(workload: Workload, gate: Any, sender: Connection, log_path: Path) -> None:
    """Runs the workload; the libraries' complaints about dead brokers go to a separate log."""
    log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(message)s")
    try:
        sender.send(run(workload, gate))
    except BaseException:
        sender.send(f"{workload.client}: {traceback.format_exc()}")
    finally:
        sender.close()


def _thread(work: Callable[[], None], errors: list[str]) -> threading.Thread:
    def guarded() -> None:
        try:
            work()
        except BaseException:
            errors.append(traceback.format_exc())

    thread = threading.Thread(target=guarded, daemon=True)
    thread.start()
    return thread


def _pacer(workload: Workload, gate: Gate) -> Callable[[int], float]:
    """Returns the function for ``Job.wait_before``: an even rate, with the held-back records after
    the gate.
    """
    start = time.monotonic()
    first_held = workload.records - workload.held_back

    def wait_before(sequence: int) -> float:
        if sequence >= first_held and not gate.is_set():
            return 0.1
        if workload.records_per_s is None or gate.is_set():
            return 0.0
        return start + sequence / workload.records_per_s - time.monotonic()

    return wait_before


def _wait_for_reading(job: Job, producer: threading.Thread, errors: list[str]) -> None:
    """Returns when production ended and everything is read, an error occurred, or there was no progress for
    too long.
    """
    last, since = (-1, -1), time.monotonic()
    while not errors:
        now = time.monotonic()
        seen = (job.recorder.acked_count(), job.recorder.polled_count())
        if seen != last or (producer.is_alive() and not job.gate.is_set()):
            last, since = seen, now
        if not producer.is_alive() and job.recorder.missing() == 0 and now - since > TAIL_S:
            return
        if now - since > job.workload.quiet_timeout_s and not producer.is_alive():
            return
        job.reading_done.wait(0.05)
