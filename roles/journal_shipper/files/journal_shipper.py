"""Ships this host's journal to a Kafka topic: one JSON record per journal entry, at least once, in order.

Follows ``journalctl -o json -f`` from the saved cursor. Sends each entry unchanged, with the host's name as
key. The cursor is saved only when the entry and all earlier ones are acknowledged by all in-sync replicas.
After any failure, reading resumes from the saved cursor. This can produce duplicates; readers recognize them
by the entry's cursor (``__CURSOR``), which every record has. While no broker is available nothing is read:
the journal is the buffer.

One file, standard library and kafka-python only. Starting, restarting and logging are left to systemd.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import re
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, fields
from enum import Enum
from pathlib import Path
from typing import Any, Self

from client_login import ConfigError, Login

READ_BYTES = 65_536
POLL_S = 0.2
SAVE_INTERVAL_S = 1.0
STATUS_INTERVAL_S = 10.0
PING_INTERVAL_S = 1.0
FLUSH_TIMEOUT_S = 10.0
FIRST_BACKOFF_S, LAST_BACKOFF_S = 1.0, 10.0
_CURSOR = re.compile(r"s=[0-9a-f]+;i=[0-9a-f]+;b=[0-9a-f]+;m=[0-9a-f]+;t=[0-9a-f]+;x=[0-9a-f]+")

START_FROM = ("boot", "oldest", "now")
# The types that the standard library supports.
COMPRESSION = ("gzip", "none")


class ShippingError(Exception):
    """This attempt failed: no broker available, a record rejected, or journalctl ended. A retry
    may succeed.
    """


def said(error: BaseException) -> str:
    """An error as text that starts with its class name; the client's own errors include it already."""
    kind, text = type(error).__name__, str(error)
    return text if text.startswith(kind) else f"{kind}: {text}"


class Log(Enum):
    """Severities, with the prefixes that systemd reads at the start of a line."""

    ERROR = 3
    WARNING = 4
    INFO = 6

    def __call__(self, event: str, **values: object) -> None:
        text = " ".join(f"{key}={json.dumps(value, default=str)}" for key, value in values.items())
        sys.stderr.write(f"<{self.value}>{event} {text}".rstrip() + "\n")
        sys.stderr.flush()


@dataclass(frozen=True, slots=True)
class Config:
    """The settings. In the configuration file each has its name with dots instead of underscores."""

    bootstrap_servers: str
    topic: str = "landline.journal"
    client_id: str = "landline-journal-shipper"
    compression_type: str = "gzip"
    start_from: str = "boot"
    max_unacked_records: int = 1000
    max_record_bytes: int = 900_000
    delivery_timeout_ms: int = 60_000
    own_unit: str = "landline-journal-shipper.service"
    journalctl: str = "journalctl"

    @classmethod
    def read(cls, path: Path) -> Config:
        """Parses ``key=value`` lines. The error for an unknown key or an invalid value names the key."""
        kinds = {field.name.replace("_", "."): field for field in fields(cls)}
        values: dict[str, Any] = {}
        for number, line in enumerate(path.read_text().splitlines(), 1):
            key, separator, value = (part.strip() for part in line.partition("="))
            if not key or key.startswith("#"):
                continue
            if not separator or key not in kinds:
                raise ConfigError(
                    f"{path}:{number}: unknown key {key!r}; known are {', '.join(sorted(kinds))}"
                )
            field = kinds[key]
            if field.type == "int" and not (value.isdecimal() and int(value) > 0):
                raise ConfigError(f"{path}:{number}: {key} must be a whole number above 0, not {value!r}")
            values[field.name] = int(value) if field.type == "int" else value
        if not values.get("bootstrap_servers"):
            raise ConfigError(
                f"{path}: bootstrap.servers is missing: host:port of one broker or more, by commas"
            )
        if values.get("start_from", "boot") not in START_FROM:
            raise ConfigError(f"{path}: start.from must be one of {', '.join(START_FROM)}")
        if values.get("compression_type", "gzip") not in COMPRESSION:
            raise ConfigError(f"{path}: compression.type must be one of {', '.join(COMPRESSION)}")
        return cls(**values)


@dataclass(frozen=True, slots=True)
class Entry:
    """A journal entry as journalctl printed it, and its cursor. ``ship`` is False for our own log lines."""

    line: bytes
    cursor: str
    ship: bool


def read_entry(line: bytes, own_unit: str) -> Entry | None:
    """Parses a line as far as needed; None if it is not a journal entry.

    Log lines of this service are not shipped: shipping them could make it log again, in an endless loop.
    """
    try:
        entry = json.loads(line)
        cursor = entry["__CURSOR"]
    except (ValueError, KeyError, TypeError):
        return None
    if not isinstance(cursor, str):
        return None
    return Entry(line, cursor, entry.get("_SYSTEMD_UNIT") != own_unit)


class LineBuffer:
    """A buffer that splits bytes into lines. Drops a line over ``limit`` bytes, so that memory
    stays bounded.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rest = b""
        self._dropping = False
        self.dropped = 0

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yields the lines that ``chunk`` completes, without line ends."""
        *lines, rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            if self._dropping or len(line) > self._limit:
                self.dropped += 1
                self._dropping = False
            else:
                yield line
        if len(rest) > self._limit:
            self._dropping, rest = True, b""
        self._rest = rest


class CursorFile:
    """The cursor of the last entry that is acknowledged along with all earlier ones, on disk."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "cursor"
        self._saved = ""

    def load(self) -> str | None:
        """The saved cursor; None when there is none or when it is not a valid cursor."""
        try:
            text = self._path.read_text().strip()
        except FileNotFoundError:
            return None
        if not _CURSOR.fullmatch(text):
            Log.WARNING("cursor_damaged", file=self._path, text=text[:200], action="starting without it")
            return None
        return text

    def save(self, cursor: str) -> None:
        """Replaces the file atomically and durably."""
        if cursor == self._saved:
            return
        aside = self._path.with_suffix(".new")
        with aside.open("w") as file:
            file.write(cursor + "\n")
            file.flush()
            os.fsync(file.fileno())
        aside.replace(self._path)
        self._saved = cursor


class Systemd:
    """The connection to systemd, for notifications of the service's state if systemd asks for them
    (Type=notify, WatchdogSec).
    """

    def __init__(self) -> None:
        address = os.environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) if address else None

    def tell(self, *lines: str) -> None:
        """Sends lines such as ``READY=1``; does nothing without a listener, and never blocks."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.sendto("\n".join(lines).encode(), socket.MSG_DONTWAIT, self._address)


def follow_command(config: Config, cursor: str | None) -> list[str]:
    """The journalctl command that continues after ``cursor``, or begins where ``start.from`` says.

    ``--merge`` is used for what it turns off. A plain ``--follow`` shows the current boot only, so the last
    entries before a shutdown would be lost. It also asks the kernel for the boot id, which is wrong in a
    container's sandboxed service. Machine and boot are therefore selected by the fields of the newest entry.
    """
    newest = newest_entry(config)
    command = [config.journalctl, "--output=json", "--follow", "--quiet", "--merge"]
    this_machine = f"_MACHINE_ID={newest['_MACHINE_ID']}"
    if cursor is not None:
        return [*command, f"--after-cursor={cursor}", "--no-tail", this_machine]
    if config.start_from == "now":
        return [*command, "--lines=0", this_machine]
    this_boot = [f"_BOOT_ID={newest['_BOOT_ID']}"] if config.start_from == "boot" else []
    return [*command, "--no-tail", this_machine, *this_boot]


def newest_entry(config: Config) -> dict[str, Any]:
    """The journal's last entry. There is always one, because systemd has logged our start."""
    command = [config.journalctl, "--output=json", "--quiet", "--lines=1"]
    shown = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=30)
    try:
        entry: dict[str, Any] = json.loads(shown.stdout)
        return {name: entry[name] for name in ("_MACHINE_ID", "_BOOT_ID")}
    except (ValueError, KeyError, TypeError) as error:
        raise ShippingError(
            f"journalctl shows no entry (exit code {shown.returncode}): {shown.stderr!r}"
        ) from error


class Journal:
    """A running ``journalctl -f``. Use it as a context manager: its process ends with it."""

    def __init__(self, config: Config, cursor: str | None) -> None:
        command = follow_command(config, cursor)
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self._pipe = self._process.stdout
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._pipe, selectors.EVENT_READ)
        self._buffer = LineBuffer(config.max_record_bytes)
        self._limit = config.max_record_bytes

    def lines(self, timeout_s: float) -> list[bytes]:
        """The lines that arrived, after waiting at most this long. Raises ``ShippingError`` when journalctl
        has ended.
        """
        if not self._selector.select(timeout_s):
            return []
        chunk = os.read(self._pipe.fileno(), READ_BYTES)
        if not chunk:
            raise ShippingError(f"journalctl ended with exit code {self._process.wait(5)}")
        before = self._buffer.dropped
        lines = list(self._buffer.feed(chunk))
        if self._buffer.dropped > before:
            Log.WARNING(
                "entry_too_large",
                entries=self._buffer.dropped - before,
                max_record_bytes=self._limit,
                action="not shipped; raise max.record.bytes and the topic's max.message.bytes",
            )
        return lines

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_unused: object) -> None:
        self._selector.close()
        self._process.kill()
        self._process.wait()
        self._pipe.close()


class Shipper:
    """The loop that moves entries from a journal to a topic, with a bounded number in flight.

    Invariant: the saved cursor is never past an entry that is not acknowledged.
    """

    def __init__(self, config: Config, cursors: CursorFile, systemd: Systemd, stop: threading.Event) -> None:
        self._config = config
        self._cursors = cursors
        self._systemd = systemd
        self._stop = stop
        self._key = socket.gethostname().encode()
        self._cursor = cursors.load()
        self._waiting: deque[tuple[str, Any]] = deque()
        self._next_save = self._next_status = self._next_ping = 0.0
        self.acknowledged = 0

    def run(self, journal: Journal, producer: Any) -> None:
        """Ships until asked to stop, then waits for what is in flight. Raises ``ShippingError``."""
        self._waiting.clear()
        while not self._stop.is_set():
            self._report()
            if len(self._waiting) < self._config.max_unacked_records:
                for line in journal.lines(POLL_S):
                    self._ship(line, producer)
            else:
                self._await_oldest()
            self._settle()
        with contextlib.suppress(Exception):
            producer.flush(timeout=FLUSH_TIMEOUT_S)
        self._settle(save=True)

    @property
    def cursor(self) -> str | None:
        """The cursor from which another attempt continues."""
        return self._cursor

    def _ship(self, line: bytes, producer: Any) -> None:
        entry = read_entry(line, self._config.own_unit)
        if entry is None:
            Log.WARNING("not_an_entry", line=line[:200].decode(errors="replace"), action="skipped")
        elif entry.ship:
            try:
                future = producer.send(self._config.topic, value=entry.line, key=self._key)
            except Exception as error:
                raise ShippingError(f"cannot send: {said(error)}") from error
            self._waiting.append((entry.cursor, future))
        else:
            self._waiting.append((entry.cursor, None))

    def _await_oldest(self) -> None:
        future = next((future for _unused, future in self._waiting if future is not None), None)
        if future is not None:
            # A timeout is no failure here: _settle reads the outcome.
            with contextlib.suppress(Exception):
                future.get(timeout=POLL_S)

    def _settle(self, *, save: bool = False) -> None:
        """Removes acknowledged entries, oldest first, and saves the last cursor reached."""
        while self._waiting:
            cursor, future = self._waiting[0]
            if future is not None:
                if not future.is_done:
                    break
                if future.failed():
                    raise ShippingError(f"not acknowledged: {said(future.exception)}")
                self.acknowledged += 1
            self._cursor = cursor
            self._waiting.popleft()
        now = time.monotonic()
        if self._cursor is not None and (save or now >= self._next_save):
            self._cursors.save(self._cursor)
            self._next_save = now + SAVE_INTERVAL_S

    def _report(self) -> None:
        now = time.monotonic()
        if now >= self._next_status:
            self._next_status = now + STATUS_INTERVAL_S
            to = f"{self._config.topic} at {self._config.bootstrap_servers}"
            self._systemd.tell(
                f"STATUS=shipping to {to}: {self.acknowledged} acknowledged, {len(self._waiting)} on the way"
            )
        if now >= self._next_ping:
            self._next_ping = now + PING_INTERVAL_S
            self._systemd.tell("WATCHDOG=1")


def make_producer(config: Config, login: Login) -> Any:
    """A producer that neither loses nor reorders records; ``ShippingError`` while no broker answers."""
    # Imported late: reading and checking the configuration needs no client.
    from kafka import KafkaProducer

    try:
        return KafkaProducer(
            bootstrap_servers=config.bootstrap_servers.split(","),
            client_id=config.client_id,
            acks="all",
            enable_idempotence=True,
            compression_type=None if config.compression_type == "none" else config.compression_type,
            linger_ms=50,
            max_request_size=config.max_record_bytes + 65_536,
            delivery_timeout_ms=config.delivery_timeout_ms,
            request_timeout_ms=min(30_000, config.delivery_timeout_ms // 2),
            # The longest time without a watchdog notification: one call may wait this long for metadata.
            max_block_ms=10_000,
            bootstrap_timeout_ms=10_000,
            metrics_enabled=False,
            **login.settings(),
        )
    except Exception as error:
        raise ShippingError(f"no broker at {config.bootstrap_servers}: {said(error)}") from error


def attempt(config: Config, login: Login, shipper: Shipper) -> None:
    """Runs one producer and one journalctl, until stop or until one of them fails."""
    producer = make_producer(config, login)
    try:
        with Journal(config, shipper.cursor) as journal:
            shipper.run(journal, producer)
    finally:
        with contextlib.suppress(Exception):
            producer.close(timeout=0)


def ship_until_stopped(
    config: Config, login: Login, shipper: Shipper, systemd: Systemd, stop: threading.Event
) -> None:
    """Retries, with growing pauses while nothing gets through."""
    backoff_s, seen = FIRST_BACKOFF_S, -1
    while not stop.is_set():
        try:
            attempt(config, login, shipper)
        except ShippingError as error:
            if shipper.acknowledged > seen:
                backoff_s, seen = FIRST_BACKOFF_S, shipper.acknowledged
            Log.WARNING("shipping_interrupted", error=error, acknowledged=seen, retry_s=backoff_s)
            systemd.tell(f"STATUS=waiting {backoff_s:.0f} s to try again: {error}")
            _pause(backoff_s, systemd, stop)
            backoff_s = min(backoff_s * 2, LAST_BACKOFF_S)


def _pause(seconds: float, systemd: Systemd, stop: threading.Event) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not stop.wait(1.0):
        systemd.tell("WATCHDOG=1")


def main() -> int:
    """Exit code 0 after a stop, 78 (EX_CONFIG) when the configuration is invalid."""
    parser = argparse.ArgumentParser(description="Ships this host's journal to a Kafka topic.")
    parser.add_argument("config", type=Path, help="file of key=value lines")
    parser.add_argument(
        "--client", type=Path, help="file of Kafka's settings for a client: TLS and the login"
    )
    parser.add_argument("--check", action="store_true", help="only check the file")
    arguments = parser.parse_args()
    try:
        config = Config.read(arguments.config)
        login = Login.read(arguments.client) if arguments.client else Login()
    except (ConfigError, OSError) as error:
        Log.ERROR("config_refused", error=error)
        return 78
    if arguments.check:
        return 0
    # The client logs every failed connection, several per second; our own line reports the final error.
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    stop, systemd = threading.Event(), Systemd()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_unused: stop.set())
    shipper = Shipper(config, CursorFile(Path(os.environ.get("STATE_DIRECTORY", "."))), systemd, stop)
    # Ready before any broker is: a host can boot while the cluster is down, and the journal keeps
    # the entries.
    systemd.tell("READY=1", f"STATUS=connecting to {config.bootstrap_servers}")
    Log.INFO("started", bootstrap_servers=config.bootstrap_servers, topic=config.topic, cursor=shipper.cursor)
    ship_until_stopped(config, login, shipper, systemd, stop)
    systemd.tell("STOPPING=1")
    Log.INFO("stopped", acknowledged=shipper.acknowledged, cursor=shipper.cursor)
    return 0


if __name__ == "__main__":
    sys.exit(main())
