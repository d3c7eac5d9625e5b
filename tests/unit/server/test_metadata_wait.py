"""A wait for metadata: how often it looks, and that it ends with its client."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from broker.network.request_channel import ConnectionInfo, Request
from broker.protocol.api_keys import ApiKey
from broker.server.apis.metadata_wait import MetadataWait
from broker.server.metadata_cache import MetadataCache
from tests.support.clocks import ManualClock
from tests.support.group_fakes import ManualTimer

HOUR_MS = 3_600_000
WEEKS_MS = (1 << 31) - 1


class Site:
    """A broker whose metadata does not change unless the test says so, and one waiting request."""

    def __init__(self, timeout_ms: int, *, gone: bool = False) -> None:
        self.clock = ManualClock(1_000, 0)
        self.timer = ManualTimer(self.clock)
        self.cache = MetadataCache("PLAINTEXT")
        self.looks: list[int] = []
        self.answers = 0
        self.is_done = False
        ctx: Any = SimpleNamespace(clock=self.clock, timer=self.timer.real, metadata_cache=self.cache)
        info = ConnectionInfo("1", "10.0.0.1", "CLIENT", gone=gone)
        self.request = Request(
            ApiKey.DELETE_TOPICS, 6, 7, "c", memoryview(b""), info, 0, lambda _request: None
        )
        self.wait = MetadataWait(ctx, self.request, timeout_ms, self._look, self._finish)
        self.wait.start()

    def _look(self) -> bool:
        self.looks.append(self.clock.now_ms - 1_000)
        return self.is_done

    def _finish(self) -> None:
        self.answers += 1
        self.request.respond_nothing()

    @property
    def is_over(self) -> bool:
        return not self.timer.waiting and not self.cache._listeners


def test_what_comes_soon_is_seen_at_once():
    site = Site(30_000)
    site.timer.advance(300)
    assert all(20 <= later - look <= 30 for look, later in zip(site.looks, site.looks[1:], strict=False))
    site.is_done = True
    site.timer.advance(30)
    assert (site.answers, site.is_over) == (1, True)


def test_a_wait_of_weeks_looks_once_a_second():
    site = Site(WEEKS_MS)
    site.timer.advance(HOUR_MS)
    assert len(site.looks) < 4_000
    assert max(later - look for look, later in zip(site.looks, site.looks[1:], strict=False)) <= 1_020
    site.is_done = True
    site.timer.advance(1_010)
    assert (site.answers, site.is_over) == (1, True)


@pytest.mark.parametrize("timeout_ms", [30, 30_000])
def test_a_wait_ends_at_its_time_out_and_not_later(timeout_ms):
    site = Site(timeout_ms)
    site.timer.advance(timeout_ms - 1)
    assert site.answers == 0
    site.timer.advance(11)
    assert (site.answers, site.is_over) == (1, True)


def test_a_wait_ends_with_its_client():
    site = Site(WEEKS_MS)
    site.timer.advance(100)
    abandon = site.request.on_abandon
    assert abandon is not None
    abandon()
    assert (site.answers, site.is_over) == (0, True)
    abandon()
    site.is_done = True
    site.timer.advance(HOUR_MS)
    assert site.answers == 0


def test_nothing_is_waited_for_if_the_client_has_gone_before():
    site = Site(WEEKS_MS, gone=True)
    assert (site.answers, site.is_over, site.request.on_abandon) == (0, True, None)


def test_a_wait_that_is_over_keeps_no_request():
    site = Site(0)
    assert (site.answers, site.request.on_abandon) == (1, None)
