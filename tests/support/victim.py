"""A well-behaved client beside hostile ones."""

from __future__ import annotations

import threading
import time
from typing import Self

from broker.protocol.errors import Errors
from rig.brokers import HOST
from rig.raw_client import RawClient, stranger
from rig.wait import wait_until
from tests.support.valid_requests import some_records

VICTIM = "victim"
"""Its topic."""


class Victim:
    """A client that writes and reads a small record repeatedly; records the longest round trip and
    their number.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.longest_s = 0.0
        self.trips = 0

    def _run(self) -> None:
        with RawClient(HOST, self._port, from_host=stranger()) as client:
            while not self._over.is_set():
                began = time.monotonic()
                assert client.produce(VICTIM, 0, some_records(b"small")).error_code == Errors.NONE
                assert client.fetch(VICTIM, 0, 0).error_code == Errors.NONE
                self.longest_s = max(self.longest_s, time.monotonic() - began)
                self.trips += 1

    def is_served_again(self) -> None:
        """Waits until the client is served again."""
        served = self.trips
        wait_until(lambda: self.trips > served, what="the victim is served")

    def __enter__(self) -> Self:
        self._thread.start()
        self.is_served_again()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(30)
