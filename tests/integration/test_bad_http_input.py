"""What does not belong on the port of /metrics, /livez, /readyz and /status is refused, and holds up nobody."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from broker.protocol.api_keys import ApiKey
from rig.brokers import HOST
from rig.landline_broker import LandlineStandalone
from rig.raw_client import RawClient, request_frame
from rig.wait import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LandlineStandalone]:
    with LandlineStandalone(tmp_path_factory.mktemp("standalone") / "data") as running:
        yield running
        assert "traceback=" not in running.log_text()


HTTP_GARBAGE = {
    "nothing": b"",
    "binary": bytes(range(256)),
    "kafka": request_frame(ApiKey.API_VERSIONS, 0, b""),
    "endless line": b"GET /" + b"a" * 200_000,
    "endless headers": b"GET /livez HTTP/1.1\r\n" + b"X: y\r\n" * 20_000,
    "bad method": b"DELETE /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
    "body of 2 GiB": b"POST /status HTTP/1.1\r\nHost: x\r\nContent-Length: 2147483647\r\n\r\nabc",
    "path upwards": b"GET /../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n",
}


@pytest.mark.parametrize("garbage", HTTP_GARBAGE.values(), ids=HTTP_GARBAGE.keys())
def test_garbage_on_the_http_port_is_refused(garbage: bytes, broker: LandlineStandalone) -> None:
    before = broker.rss_mb()
    with RawClient(HOST, broker.http_port) as client:
        client.send(garbage)
        with suppress(OSError):  # it may have hung up already
            client.finish_sending()
        answer = client.await_close()
    assert not answer.startswith(b"HTTP/1.1 200") or b"/livez" in garbage
    assert b"root:" not in answer
    assert broker.is_ready()
    assert broker.rss_mb() - before < 10


def test_many_silent_http_connections_hold_up_nobody(broker: LandlineStandalone) -> None:
    with ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(RawClient(HOST, broker.http_port)).send(b"GET /metr")
        wait_until(broker.is_ready, timeout=60, what="/readyz answers")
