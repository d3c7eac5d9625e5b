"""The interface of a broker process for tests, whether Landline or Apache Kafka; clusters of them;
and `Peer`.

``kafka_broker`` and ``landline_broker`` implement it. ``Peer`` creates standalone brokers and clusters of one
of the two, so that a test that is written once runs against both.
"""

from __future__ import annotations

import abc
import http.client
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from rig.ports import free_port
from rig.processes import CpuSeconds, ManagedProcess
from rig.wait import wait_until
from rig.wire import ClusterView, answers_api_versions, cluster_view

HOST = "127.0.0.1"

# For tests that run many brokers on a small machine. A test overrides the settings that it is about.
TEST_CONFIG: Mapping[str, object] = {
    "auto.create.topics.enable": "false",
    "controlled.shutdown.retry.backoff.ms": 500,
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 4,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 4,
    "transaction.state.log.replication.factor": 1,
    "zookeeper.session.timeout.ms": 6000,
}


def http_status(url: str, timeout_s: float = 2.0) -> int:
    """Returns the HTTP status of a GET, or 0 when there is no answer. No certificate is checked."""
    try:
        with urllib.request.urlopen(url, timeout=timeout_s, context=_anybody(url)) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except (OSError, http.client.HTTPException):  # it is down, or went down while answering
        return 0


def _anybody(url: str) -> ssl.SSLContext | None:
    if not url.startswith("https:"):
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def write_properties(path: Path, settings: Mapping[str, object]) -> Path:
    """Writes a server.properties with sorted keys and returns its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{key}={value}\n" for key, value in sorted(settings.items())))
    return path


class BrokerProcess(abc.ABC):
    """One broker on loopback. It keeps its port and its log dir across ``stop``, ``kill`` and ``start``."""

    broker_id: int
    log_dir: Path
    port: int
    process: ManagedProcess
    start_timeout_s: float = 60.0
    segments: str = "*.log"
    """The names of a partition's files with records."""

    @property
    def bootstrap(self) -> str:
        """``host:port`` of the broker's listener."""
        return f"{HOST}:{self.port}"

    def is_ready(self) -> bool:
        """Whether the broker serves clients now."""
        return answers_api_versions(HOST, self.port)

    def start(self) -> Self:
        """Starts the broker and waits until it is ready."""
        self.start_nowait()
        self.wait_ready()
        return self

    def prepare(self) -> None:  # noqa: B027 - most have nothing to do
        """The preparation that an operator does once before the first start; ``start`` does it if it was
        not done.
        """

    def start_nowait(self) -> None:
        """Starts the process and returns at once."""
        self._prepare()
        self.process.start()

    def wait_ready(self) -> None:
        """Waits until the broker serves clients, knows the controller and finds itself in the cluster.

        Apache Kafka serves before that; a client that connects in between may have to wait for its next
        metadata refresh.
        """
        self.process.wait_ready(lambda: self.is_ready() and self._is_member(), self.start_timeout_s)

    def view(self) -> ClusterView:
        """The cluster as this broker reports it to clients; an ``OSError`` when it does not answer."""
        return cluster_view(HOST, self.port)

    def _is_member(self) -> bool:
        try:
            view = self.view()
        except OSError:
            return False
        return view.controller_id >= 0 and self.port in view.ports.values()

    def stop(self, timeout_s: float = 60.0) -> int:
        """Stops it by SIGTERM (with controlled shutdown); returns the exit code."""
        return self.process.stop(timeout_s)

    def kill(self) -> None:
        """Ends it by SIGKILL."""
        self.process.kill()

    def freeze(self) -> None:
        """Suspends it (SIGSTOP)."""
        self.process.freeze()

    def thaw(self) -> None:
        """Resumes it after ``freeze``."""
        self.process.thaw()

    def rss_mb(self) -> float:
        """Resident memory in MiB."""
        return self.process.rss_mb()

    def cpu_seconds(self) -> CpuSeconds:
        """CPU time since the process started."""
        return self.process.cpu_seconds()

    def log_text(self) -> str:
        """All output of the process."""
        return self.process.log_text()

    @abc.abstractmethod
    def _prepare(self) -> None:
        """Writes the files that the process reads when it starts."""

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()


class Cluster:
    """Brokers that share one ZooKeeper chroot, in order of their ids."""

    def __init__(self, brokers: Mapping[int, BrokerProcess], zk_connect: str) -> None:
        self.brokers = dict(brokers)
        self.zk_connect = zk_connect

    @property
    def bootstrap(self) -> str:
        """The bootstrap servers: all brokers' addresses, joined by commas."""
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def start(self) -> Self:
        """Starts all brokers at once and waits until each is ready."""
        for broker in self.brokers.values():
            broker.start_nowait()
        for broker in self.brokers.values():
            broker.wait_ready()
        wait_until(self.is_complete, timeout=60, what="every broker knows all brokers")
        return self

    def is_complete(self) -> bool:
        """Whether every broker reports every broker to clients."""
        return all(broker.view().ports.keys() == self.brokers.keys() for broker in self.brokers.values())

    def controller(self) -> BrokerProcess:
        """The current controller; waits until all running brokers agree on one."""

        def agreed() -> BrokerProcess | None:
            running = [broker for broker in self.brokers.values() if broker.process.running]
            named = {broker.view().controller_id for broker in running}
            return self.brokers.get(named.pop()) if len(named) == 1 else None

        found = wait_until(agreed, timeout=60, what="the brokers agree on a controller")
        assert found is not None
        return found

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Kills every broker that is still running."""
        for broker in self.brokers.values():
            broker.process.kill()


def unused_port() -> int:
    """A free port on the loopback address of the test brokers."""
    return free_port(HOST)
