"""The two storms: many sessions on a real ensemble; many brokers to which a real controller sends
the metadata.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from compare.storm.ensemble import HOST, free_ports
from compare.storm.listeners import Listeners
from compare.storm.sessions import Address, Session, StormError, make_parents, register
from compare.watch import http_ready
from lab.waiting import wait_until

CONTROLLER_ID = 0
START_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Storm:
    """The result of one storm.

    ``seconds``: for ZooKeeper from the first session to the last node; for the controller from the last
    registration until the last broker was told of all.
    """

    storm: str
    members: int
    seconds: float
    registered_seconds: float
    requests: int = 0
    received_mib: float = 0.0


async def zookeeper_storm(addresses: Sequence[Address], members: int) -> Storm:
    """Opens sessions in parallel, each with a broker's node. Raises StormError."""
    path = f"/landline-storm-{uuid.uuid4().hex[:8]}"
    await make_parents(addresses[0], path)
    data = [registration(HOST, 9092)] * members
    began = time.perf_counter()
    sessions = await register(addresses, path, data, 1)
    took = time.perf_counter() - began
    await _end(sessions)
    return Storm("zookeeper", members, round(took, 3), round(took, 3))


async def controller_storm(addresses: Sequence[Address], members: int, limit_s: float) -> Storm:
    """Starts a broker, which becomes the controller, and registers ``members`` more that only listen, all
    at once.

    All are registered below a path of their own, so brokers that the ensemble has already are not counted.
    Raises StormError.
    """
    chroot = f"/landline-storm-{uuid.uuid4().hex[:8]}"
    await make_parents(addresses[0], chroot)
    connect = ",".join(f"{host}:{port}" for host, port in addresses) + chroot
    listeners = Listeners(members, members + 1)
    server, port = await listeners.serve(HOST)
    with _broker(connect) as ready:
        await asyncio.to_thread(ready)
        began = time.perf_counter()
        data = [registration(HOST, port)] * members
        sessions = await register(addresses, f"{chroot}/brokers/ids", data, CONTROLLER_ID + 1)
        registered = time.perf_counter() - began
        try:
            await asyncio.wait_for(listeners.all_told.wait(), limit_s)
        except TimeoutError:
            raise StormError(
                f"after {limit_s:g} s {listeners.told} of {members} brokers were told of all: give a greater --limit"
            ) from None
        took = time.perf_counter() - began - registered
        await _end(sessions)
    server.close()
    return Storm(
        "controller",
        members,
        round(took, 3),
        round(registered, 3),
        listeners.requests,
        round(listeners.received_bytes / 2**20, 1),
    )


def registration(host: str, port: int) -> bytes:
    """A broker's node, as Kafka 3.9 writes it."""
    return json.dumps(
        {
            "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
            "endpoints": [f"PLAINTEXT://{host}:{port}"],
            "features": {},
            "jmx_port": -1,
            "port": port,
            "host": host,
            "version": 5,
            "timestamp": str(time.time_ns() // 1_000_000),
        },
        separators=(",", ":"),
    ).encode()


async def _end(sessions: Sequence[Session]) -> None:
    await asyncio.gather(*(session.end() for session in sessions))


@contextmanager
def _broker(connect: str) -> Iterator[Callable[[], None]]:
    """Starts a broker's process; yields a function that waits until it serves, and raises StormError when it
    does not.
    """
    port, http_port = free_ports(2)
    with tempfile.TemporaryDirectory(prefix="landline-storm-") as directory:
        home = Path(directory)
        settings = {
            "broker.id": CONTROLLER_ID,
            "listeners": f"PLAINTEXT://{HOST}:{port}",
            "log.dirs": home / "data",
            "zookeeper.connect": connect,
            "landline.http.host": HOST,
            "landline.http.port": http_port,
        }
        properties = home / "server.properties"
        properties.write_text(
            "".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8"
        )
        command = [sys.executable, "-m", "broker", "start", str(properties)]
        with (home / "log").open("w+b") as log:
            process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
            )
            look = http_ready("broker", HOST, http_port)

            def wait() -> None:
                if not wait_until(lambda: process.poll() is not None or bool(look()), START_TIMEOUT_S, 0.05):
                    raise StormError(f"the broker does not serve after {START_TIMEOUT_S:g} s")
                if process.poll() is not None:
                    last = (home / "log").read_text(errors="replace").splitlines()[-3:]
                    raise StormError(f"the broker ended with {process.returncode}: {' '.join(last)}")

            try:
                yield wait
            finally:
                process.kill()
                process.wait()
