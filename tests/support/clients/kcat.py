"""kcat: Debian's binary with an old librdkafka (2.0.2), as an operator uses it in a shell.

Records go to kcat in chunks, each to one process and one partition. kcat prints one line with the offset for
every delivered record. A process's deliveries to one partition are in order, so the n-th line belongs to the
n-th record. If anything failed in a chunk, its whole outcome is unknown, and its records count as failed.
"""

from __future__ import annotations

import re
import subprocess
import threading
from collections import deque
from collections.abc import Iterator

from chaos.history import Acked, Assigned, Event, Failed, Polled, Sent, Trouble, record_id
from tests.support.clients.driver import DELIVERY_TIMEOUT_S, SESSION_TIMEOUT_S, Job

CHUNK = 2000
DIE_WITH_US = ("setpriv", "--pdeathsig", "KILL")
"""util-linux: a consumer must not outlive a test run that was killed."""
WHOLE_LINES = ("stdbuf", "-oL")
"""coreutils: kcat's own ``-u`` writes a record in pieces, and its messages on stderr would come
between them.
"""
SAID = 8
"""The number of kcat's own messages that are kept for its end."""
DELIVERED = re.compile(r"Message delivered to partition (\d+) \(offset (\d+)\)")
REBALANCED = re.compile(r"% Group .* rebalanced .*: assigned: (.*)")
PARTITION = re.compile(r"\[(\d+)\]")


class KcatDriver:
    """Idempotent kcat producers, one per chunk, and kcat group consumers with automatic commits."""

    name = "kcat"
    idempotent = True

    def produce(self, job: Job, producer: str) -> None:
        """See ``Driver``."""
        for number, start in enumerate(range(0, job.workload.records, CHUNK)):
            end = min(start + CHUNK, job.workload.records)
            while (wait_s := job.wait_before(end - 1)) > 0:
                job.reading_done.wait(wait_s)
            records = [record_id(producer, sequence) for sequence in range(start, end)]
            self._chunk(job, producer, records, number % job.workload.partitions)

    def _chunk(self, job: Job, producer: str, records: list[str], partition: int) -> None:
        job.recorder.add(*(Sent(producer, record) for record in records))
        command = ["kcat", "-P", "-E", "-vvv", "-b", job.workload.bootstrap, "-t", job.workload.topic]
        settings = {
            "acks": "all",
            "enable.idempotence": "true",
            "linger.ms": 5,
            "message.timeout.ms": DELIVERY_TIMEOUT_S * 1000,
        }
        done = subprocess.run(
            [*command, "-p", str(partition), "-m", str(DELIVERY_TIMEOUT_S), *_options(settings)],
            input="\n".join(records),
            capture_output=True,
            text=True,
            timeout=2 * DELIVERY_TIMEOUT_S,
            check=False,
        )
        job.recorder.add(*_outcome(producer, records, done.returncode, done.stderr))

    def consume(self, job: Job, consumer: str) -> None:
        """See ``Driver``. kcat ends at any consumer error, with or without ``-E``; then another one
        replaces it.
        """
        while not job.reading_done.is_set():
            said = self._consume_until_it_ends(job, consumer)
            if not job.reading_done.is_set():
                job.recorder.add(Trouble(consumer, f"kcat ended by itself: {said}"))

    def _consume_until_it_ends(self, job: Job, consumer: str) -> str:
        """Returns kcat's last messages."""
        settings = {
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 1000,
            "session.timeout.ms": SESSION_TIMEOUT_S * 1000,
            "heartbeat.interval.ms": 1000,
        }
        command = [
            *DIE_WITH_US,
            *WHOLE_LINES,
            "kcat",
            "-E",
            "-b",
            job.workload.bootstrap,
            "-f",
            "%p %o %s\\n",
            *_options(settings),
        ]
        process = subprocess.Popen(
            [*command, "-G", job.workload.group, job.workload.topic],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        with process:
            closer = threading.Thread(target=_terminate_when_done, args=(job, process), daemon=True)
            closer.start()
            assert process.stdout is not None
            said: deque[str] = deque(maxlen=SAID)
            for line in process.stdout:
                job.recorder.add(*_events_of_line(consumer, line))
                if line.startswith("%"):
                    said.append(line)
            process.wait(30)
        return f"{process.returncode}: {' '.join(said)}"


def _terminate_when_done(job: Job, process: subprocess.Popen[str]) -> None:
    job.reading_done.wait()
    process.terminate()


def _options(settings: dict[str, object]) -> list[str]:
    return [word for key, value in settings.items() for word in ("-X", f"{key}={value}")]


def _outcome(producer: str, records: list[str], exit_code: int, messages: str) -> list[Event]:
    """The acknowledgements of a chunk, or its failure, from kcat's exit code and delivery lines."""
    delivered = [(int(partition), int(offset)) for partition, offset in DELIVERED.findall(messages)]
    if exit_code != 0 or len(delivered) != len(records):
        reason = (
            f"kcat ended with {exit_code}, {len(delivered)} of {len(records)} delivered: {messages[-300:]}"
        )
        return [Failed(producer, record, reason) for record in records]
    return [
        Acked(producer, record, partition, offset)
        for record, (partition, offset) in zip(records, delivered, strict=True)
    ]


def _events_of_line(consumer: str, line: str) -> Iterator[Event]:
    """Parses a consumer's output: ``partition offset value`` in our format, or a message that starts
    with ``%``.
    """
    if not line.startswith("%"):
        partition, offset, value = line.split()
        yield Polled(consumer, int(partition), int(offset), value)
    elif rebalanced := REBALANCED.match(line):
        for partition in PARTITION.findall(rebalanced.group(1)):
            yield Assigned(consumer, int(partition))
