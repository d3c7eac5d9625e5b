"""Landline brokers as processes on loopback: with ZooKeeper, or standalone. The same interface as
for Kafka's.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from rig.brokers import (
    HOST,
    TEST_CONFIG,
    BrokerProcess,
    http_status,
    unused_port,
    write_properties,
)
from rig.processes import ManagedProcess

REPOSITORY = Path(__file__).resolve().parents[1]
# A checkout of the same sources that are not compiled, for tests in one whose are: every other broker runs it.
PURE_CODE = "PURE_CODE"
COMMAND = (sys.executable, "-m", "broker")

# A test's few MiB of records do not need the GiB of free space that a broker in production keeps.
_OWN_CONFIG: Mapping[str, object] = {"landline.log.dir.min.free.bytes": 64 << 20}


def code_of(broker_id: int) -> Path:
    """The checkout that a broker of a test runs. With ``PURE_CODE`` clusters have compiled and pure brokers."""
    pure = os.environ.get(PURE_CODE)
    return Path(pure) if pure and broker_id % 2 == 0 else REPOSITORY


class _LandlineProcess(BrokerProcess):
    """The common part of both modes of Landline: the HTTP port, and when a broker is ready."""

    http_port: int
    http_scheme: str

    @property
    def http_url(self) -> str:
        """Base URL of /metrics, /livez, /readyz and /status."""
        return f"{self.http_scheme}://{HOST}:{self.http_port}"

    def is_ready(self) -> bool:
        """Whether the broker serves clients and /readyz agrees."""
        return super().is_ready() and http_status(f"{self.http_url}/readyz") == 200


def _scheme(config: Mapping[str, object]) -> str:
    return "https" if "landline.http.ssl.keystore.location" in config else "http"


class LandlineBroker(_LandlineProcess):
    """One Landline broker of a ZooKeeper cluster (``landline start server.properties``), of the checkout ``code``
    (default: :func:`code_of`).
    """

    def __init__(
        self,
        broker_id: int,
        zk_connect: str,
        log_dir: Path,
        config: dict[str, object] | None = None,
        *,
        port: int | None = None,
        command: Sequence[str] = COMMAND,
        code: Path | None = None,
    ) -> None:
        self.broker_id = broker_id
        self.log_dir = log_dir
        self.port = port or unused_port()
        self.http_port = unused_port()
        self.http_scheme = _scheme(config or {})
        self._properties = log_dir.with_name(log_dir.name + ".properties")
        self._settings: dict[str, object] = {
            **TEST_CONFIG,
            **_OWN_CONFIG,
            "broker.id": broker_id,
            "landline.http.host": HOST,
            "landline.http.port": self.http_port,
            "listeners": f"PLAINTEXT://{HOST}:{self.port}",
            "log.dirs": log_dir,
            "zookeeper.connect": zk_connect,
            **(config or {}),
        }
        self.process = ManagedProcess(
            f"Landline broker {broker_id}",
            lambda: [*command, "start", str(self._properties)],
            log_dir.with_name(log_dir.name + ".log"),
            cwd=code or code_of(broker_id),
        )

    def _prepare(self) -> None:
        write_properties(self._properties, self._settings)


class LandlineStandalone(_LandlineProcess):
    """One Landline broker without ZooKeeper (``landline standalone``), by default on a free port."""

    def __init__(
        self,
        data_dir: Path,
        config: dict[str, object] | None = None,
        port: int | None = None,
        *,
        code: Path = REPOSITORY,
    ) -> None:
        self.broker_id = 0
        self.log_dir = data_dir
        self.port = port or unused_port()
        self.http_port = unused_port()
        self.http_scheme = _scheme(config or {})
        self._overrides: dict[str, object] = {
            **_OWN_CONFIG,
            "landline.http.host": HOST,
            "landline.http.port": self.http_port,
            **(config or {}),
        }
        self.process = ManagedProcess(
            "Landline standalone",
            self._command,
            data_dir.with_name(data_dir.name + ".log"),
            cwd=code,
        )

    def _command(self) -> list[str]:
        overrides = [
            word for key, value in self._overrides.items() for word in ("--override", f"{key}={value}")
        ]
        return [*COMMAND, "standalone", "--port", str(self.port), "--data-dir", str(self.log_dir), *overrides]

    def _prepare(self) -> None:
        self.log_dir.parent.mkdir(parents=True, exist_ok=True)
