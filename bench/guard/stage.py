"""A whole broker and its clients on one thread, so that the cost of a request can be measured to
the microsecond.

The broker is BrokerServer in standalone mode, with its start-up, controller and coordinators. Its store is in
memory and its data directory in a file system in memory, so that no disk is measured. Requests go through an
additional Processor that no thread runs. The client runs its turns, and their CPU time is the cost. From
``recv`` to ``send`` everything is the production's code. Only the acceptor and TCP are left out, because the
sockets are Unix pairs.
"""

from __future__ import annotations

import itertools
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from broker.config.broker_config import BrokerConfig
from broker.config.properties import Properties
from broker.network.connection_quotas import ConnectionQuotas
from broker.network.processor import Processor
from broker.network.request_channel import ConnectionInfo
from broker.network.transport import PlainTransport
from broker.protocol import codec
from broker.protocol.api_keys import ApiKey
from broker.protocol.framing import request_prefix, response_body_offset
from broker.protocol.primitives import INT32
from broker.server.access import Access
from broker.server.broker_server import BrokerServer
from broker.server.quotas import QuotaManagers
from broker.zookeeper.embedded import EmbeddedStore

BROKER_ID: Final = 0
_TIMEOUT_S: Final = 30.0
_CLIENT_BUFFER: Final = 4 << 20
_CLIENT_ID: Final = "perf-check"
_IN_MEMORY: Final = Path("/dev/shm")
_HOUR_MS: Final = 3_600_000
_CONFIG: Final[Mapping[str, str]] = {
    "auto.create.topics.enable": "false",
    "broker.id": str(BROKER_ID),
    "controlled.shutdown.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "landline.http.host": "127.0.0.1",
    "landline.http.port": "0",
    "landline.log.dir.min.free.percent": "0",
    "landline.standalone": "true",
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    # Prevents background tasks during a measurement.
    "log.initial.task.delay.ms": str(_HOUR_MS),
    "replica.lag.time.max.ms": str(_HOUR_MS),
    "replica.high.watermark.checkpoint.interval.ms": str(_HOUR_MS),
}


class StageError(RuntimeError):
    """The broker answered with an error, or not at all: a workload does not measure what it claims."""


class SteppedProcessor:
    """A Processor without a thread: the caller of :meth:`turn` is its thread. No subclass, as a compiled class has none
    that is not.
    """

    def __init__(self, processor: Processor) -> None:
        self.adopt = processor.adopt
        self._processor = processor

    def turn(self) -> None:
        """Runs one turn of the loop; waits up to a second when there is nothing to do."""
        processor = self._processor
        processor._thread_id = threading.get_ident()  # noqa: SLF001 - in place of the thread
        processor._turn()  # noqa: SLF001

    def close(self) -> None:
        """Closes every connection."""
        self._processor._stopping = True  # noqa: SLF001
        self._processor._run()  # noqa: SLF001


class _StagedServer(BrokerServer):
    """The broker, with access to its APIs for our own Processor."""

    def secure(self, access: Access | None, quotas: QuotaManagers | None) -> None:
        """From now on serves requests with this authorizer and these quotas; None: without."""
        self._ctx.access = access
        self._ctx.quotas = quotas or self._security.quotas
        self._apis._quotas = self._ctx.quotas  # noqa: SLF001 - the same broker must be both, in turns

    def make_processor(self) -> SteppedProcessor:
        return SteppedProcessor(
            Processor(
                0,
                self._apis.dispatch,
                self.replica_manager.settle,
                max_frame_bytes=self.config.int("socket.request.max.bytes"),
                idle_ms=-1,
                quotas=ConnectionQuotas(1 << 10, 1 << 10, {}),
            )
        )


class Client:
    """The other end of one connection. ``answer`` is the last one received, without its length."""

    def __init__(self, ours: socket.socket) -> None:
        self._socket = ours
        self._buffer = memoryview(bytearray(_CLIENT_BUFFER))
        self._filled = 0
        self.answer = self._buffer[:0]

    def send(self, request: memoryview) -> memoryview:
        """Sends what the socket accepts; returns the rest."""
        try:
            return request[self._socket.send(request) :]
        except BlockingIOError:
            return request

    def receive(self) -> bool:
        """Receives the available data; returns whether an answer is complete. One request is in flight at
        a time.
        """
        with suppress(BlockingIOError):
            while True:
                count = self._socket.recv_into(self._buffer[self._filled :])
                if count == 0:
                    raise StageError("the broker closed the connection; its log says why")
                self._filled += count
        if self._filled < INT32.size:
            return False
        end = INT32.size + INT32.unpack_from(self._buffer)[0]
        if self._filled < end:
            return False
        self.answer, self._filled = self._buffer[INT32.size : end], 0
        return True

    def close(self) -> None:
        self._socket.close()


class Stage:
    """The broker under test, its Processor and its clients; all on the caller's thread."""

    def __init__(self, server: _StagedServer) -> None:
        self.server = server
        self._processor = server.make_processor()
        self.turn = self._processor.turn  # this is timed; the profiler wraps it
        self._clients: list[Client] = []
        self._numbers = itertools.count()
        self._admin = self.connect()

    def connect(self, principal: str = "User:ANONYMOUS") -> Client:
        """Opens another connection, of a client with this principal."""
        client = Client(self.open_socket(principal))
        self._clients.append(client)
        return client

    def open_socket(self, principal: str = "User:ANONYMOUS") -> socket.socket:
        """A non-blocking connection that the caller owns and must close."""
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            end.setblocking(False)
        name = f"perf-check-{next(self._numbers)}"
        info = ConnectionInfo(name, "127.0.0.1", "PLAINTEXT", principal=principal)
        self._processor.adopt(PlainTransport(theirs), info)
        self._processor.turn()  # registers it: adopt has woken the loop
        return ours

    def exchange(self, client: Client, request: bytes) -> int:
        """Sends a request and waits for the answer; returns the CPU time of the Processor's turns
        in nanoseconds.
        """
        left = client.send(memoryview(request))
        spent = self._timed_turn()
        deadline = time.monotonic() + _TIMEOUT_S
        while not client.receive():
            if time.monotonic() > deadline:
                raise StageError(f"no answer within {_TIMEOUT_S:.0f} s")
            if left:
                left = client.send(left)
            spent += self._timed_turn()
        return spent

    def park(self, client: Client, request: bytes) -> int:
        """Sends a request that will be answered later, through another request; returns the CPU time
        in nanoseconds.
        """
        client.send(memoryview(request))
        return self._timed_turn()

    def _timed_turn(self) -> int:
        before = time.thread_time_ns()
        self.turn()
        return time.thread_time_ns() - before

    def ask(self, api_key: ApiKey, version: int, fields: Mapping[str, Any]) -> Any:
        """Sends a set-up request; returns the decoded answer. Raises :class:`StageError` for an error
        in it.
        """
        client = self._admin
        self.exchange(client, encode(api_key, version, fields))
        return decode_answer(api_key, version, client.answer)

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Waits for other threads of the broker during the set-up."""
        deadline = time.monotonic() + _TIMEOUT_S
        while not condition():
            if time.monotonic() > deadline:
                raise StageError(f"{what}: not within {_TIMEOUT_S:.0f} s")
            time.sleep(0.002)

    def close(self) -> None:
        for client in self._clients:
            client.close()
        self._processor.close()


def encode(api_key: ApiKey, version: int, fields: Mapping[str, Any]) -> bytes:
    """A whole request frame."""
    return frame(api_key, version, codec.encode(api_key, version, "request", fields))


def frame(api_key: ApiKey, version: int, body: bytes) -> bytes:
    """A whole request frame around an encoded body."""
    return request_prefix(api_key, version, 1, _CLIENT_ID, len(body)) + body


def decode_answer(api_key: ApiKey, version: int, answer: memoryview) -> Any:
    """The decoded answer. Raises :class:`StageError` if there is an error anywhere in it."""
    entity = codec.decode(
        api_key, version, "response", answer[response_body_offset(api_key, version, answer) :]
    )
    for error in _errors(entity):
        raise StageError(f"{api_key.name} v{version} was answered with {error!r}")
    return entity


def _errors(entity: Any) -> Iterator[Any]:
    for name in getattr(entity, "__slots__", None) or vars(entity):
        value = getattr(entity, name)
        if name == "error_code" and value:
            yield value
        elif isinstance(value, tuple):
            for item in value:
                if hasattr(item, "__dataclass_fields__"):
                    yield from _errors(item)


def data_parent() -> Path | None:
    """A directory for files that no disk should slow down; None: the default for temporary files."""
    return _IN_MEMORY if _IN_MEMORY.is_dir() else None


@contextmanager
def staged_broker() -> Iterator[Stage]:
    """A started broker on an empty directory; stopped and removed at the end."""
    with tempfile.TemporaryDirectory(prefix="landline-perf-", dir=data_parent()) as directory:
        config = BrokerConfig.from_properties(Properties(), [*_CONFIG.items(), ("log.dirs", directory)])
        server = _StagedServer(config, store=EmbeddedStore())
        server.startup(threading.Event())
        try:
            stage = Stage(server)
            try:
                yield stage
            finally:
                stage.close()
        finally:
            server.shutdown()
