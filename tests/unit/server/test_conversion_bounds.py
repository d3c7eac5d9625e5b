"""Messages of old clients are converted by a handler's thread, and no more of them than a fetch asked for."""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.record.batch import Record, build_batch, read_records
from broker.record.conversion import Converted
from broker.record.message_set import write_message
from broker.server.apis import fetch_old, produce_old
from broker.server.apis.fetch_old import MOST_BYTES
from tests.support.serving_site import EPOCH, HERE, ME, ServingSite
from tests.support.times import NOW_MS

HANDLER = "request-handler-0"
RECORDS = [Record(None, bytes([number]) * 1_000, (), NOW_MS) for number in range(64)]
BATCH_BYTES = 64 * 1_034
"""Of a batch as messages of magic 1."""
OLD_VERSIONS = range(4)


class Site(ServingSite):
    """A site that leads alone, and notes on which threads messages were converted, and how many bytes they became."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(directory)
        self.partition.make_leader(self.role(ME, EPOCH + 1, (ME,)))
        self.threads: set[str] = set()
        self.converted_bytes = 0
        for module, name in ((fetch_old, "down_converted"), (produce_old, "up_converted")):
            monkeypatch.setattr(module, name, self._noting(getattr(module, name)))

    def _noting(self, convert: Callable[..., Any]) -> Callable[..., Any]:
        def noting(*arguments: Any, **more: Any) -> Any:
            self.threads.add(threading.current_thread().name)
            result = convert(*arguments, **more)
            self.converted_bytes += len(result.messages if isinstance(result, Converted) else result)
            return result

        return noting

    def write(self, batches: int, compression: str = "none") -> None:
        batch = build_batch(RECORDS, compression=compression)
        for _ in range(batches):
            self.produce(HERE, version=7, records=batch, acks=1)
        self.do_work()
        self.answers.clear()

    def do_work(self) -> None:
        """Does what waits for a handler, on a thread with a handler's name."""
        work, self.work = self.work, []
        thread = threading.Thread(target=lambda: [one() for one in work], name=HANDLER)
        thread.start()
        thread.join()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    made = Site(tmp_path, monkeypatch)
    yield made
    made.close()


@pytest.mark.parametrize("version", OLD_VERSIONS)
@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_a_fetch_is_converted_by_a_handler_and_not_by_the_thread_that_read_it(
    site: Site, compression: str, version: int
) -> None:
    site.write(2, compression)
    site.fetch(HERE, version=version)
    assert (site.threads, site.answers, len(site.work)) == (set(), [], 1)
    site.do_work()
    assert site.threads == {HANDLER}
    (answer,) = site.answers
    assert len(answer) > 1_000


@pytest.mark.parametrize("version", range(3))
def test_a_produce_is_converted_by_a_handler_and_not_by_the_thread_that_read_it(
    site: Site, version: int
) -> None:
    messages = bytearray()
    write_message(messages, min(version, 1), 0, NOW_MS, None, b"old")
    site.produce(HERE, version=version, records=bytes(messages), acks=1)
    assert (site.threads, site.answers, len(site.work)) == (set(), [], 1)
    site.do_work()
    assert site.threads == {HANDLER}
    log = site.partition.log
    (stored,) = read_records(bytes(log.reader.read_bytes(0, 1 << 20, log.log_end_offset)))
    assert stored.value == b"old"


def test_without_a_free_handler_nothing_is_converted(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.write(2)
    monkeypatch.setattr(site, "submit", lambda *_arguments, **_more: False)
    site.fetch(HERE, version=2)
    assert (site.threads, site.work) == (set(), [])


@pytest.mark.parametrize("version", OLD_VERSIONS)
@pytest.mark.parametrize("compression", ["none", "gzip"])
@pytest.mark.parametrize("asked", [1, 10_000, 200_000, 1 << 30])
def test_no_more_is_converted_than_was_asked_for_and_one_batch(
    site: Site, asked: int, compression: str, version: int
) -> None:
    """A compressed batch becomes one message, and a plain one as many as fit. In memory are the messages, their copy
    that is sent, and the batch that is read.
    """
    site.write(20, compression)
    tracemalloc.start()
    try:
        site.fetch(HERE, version=version, partition_max_bytes=asked, max_bytes=1 << 30)
        site.do_work()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    asked = min(asked, MOST_BYTES)
    assert 0 < site.converted_bytes <= asked + BATCH_BYTES
    assert peak < 3 * (asked + BATCH_BYTES) + 200_000
    (answer,) = site.answers
    assert len(answer) <= asked + BATCH_BYTES + 100, "what surrounds the messages"
