"""What peers made the broker hold goes back to the system when they have gone, while the broker runs on."""

from __future__ import annotations

import platform
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from broker.protocol.api_keys import ApiKey
from rig.brokers import HOST
from rig.landline_broker import LandlineStandalone
from rig.raw_client import RawClient, request_frame
from rig.wait import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

KIB = 1024
CONNECTIONS = 600
GROWN_MIB, LEFT_MIB = 100, 30


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="only glibc keeps what was freed, and can give it back"
)
def test_halves_of_requests_leave_no_memory_behind(tmp_path: Path) -> None:
    half = request_frame(ApiKey.PRODUCE, 9, bytes(512 * KIB))[: 250 * KIB]
    with LandlineStandalone(tmp_path / "data") as broker:
        before = broker.rss_mb()
        with ExitStack() as stack:
            for _ in range(CONNECTIONS):
                hog = stack.enter_context(socket.create_connection((HOST, broker.port)))
                hog.settimeout(30)
                hog.sendall(half)
            wait_until(lambda: broker.rss_mb() > before + GROWN_MIB, what="the halves are held")
        wait_until(lambda: broker.rss_mb() < before + LEFT_MIB, timeout=90, what="the memory is given back")
        with RawClient(HOST, broker.port) as client:
            assert client.is_open()
