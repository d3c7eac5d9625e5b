"""Requests that use quotas, on a clock that moves when told."""

from __future__ import annotations

from typing import Any

from broker.network.request_channel import ConnectionInfo, Request
from broker.protocol.api_keys import ApiKey
from broker.server.quotas import QuotaManagers
from tests.support.clocks import Nanoseconds


def request(
    api: ApiKey = ApiKey.HEARTBEAT, version: int = 4, connection: ConnectionInfo | None = None
) -> Request:
    info = connection or ConnectionInfo("1", "10.0.0.1", "PLAINTEXT", principal="User:alice")
    return Request(api, version, 7, "app", memoryview(b"abc"), info, 0, lambda _request: None)


def served(quotas: QuotaManagers, clock: Nanoseconds, ms: int, **more: Any) -> Request:
    """A request that took a thread so long, and is not answered yet."""
    made = request(**more)
    if quotas.meter is not None:
        made.measure(quotas.meter, clock())
    clock.pass_ms(ms)
    return made
