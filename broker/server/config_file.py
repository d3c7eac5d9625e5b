"""The properties file of a running broker: which content of it is in force, and reading it again.

`config.live_keys` says which keys a reload takes up; `dynamic_config` does so, on its own thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from broker.config.broker_config import BrokerConfig
from broker.config.live_keys import differences
from broker.config.problems import ConfigError, Problem
from broker.config.properties import MAX_FILE_BYTES, read_properties


class _Content(NamedTuple):
    """What was read: its version, None of a pipe; the version that was refused later, and why."""

    version: str | None
    refused: Mapping[str, str | None] | None = None
    needs_restart: Sequence[str] = ()


class ConfigFile:
    """A broker's properties file, with the content that was read last. After the start, only the manager of dynamic
    configs reads it; :meth:`status` may be called from any thread.

    ``overrides`` are those of the command line, which take precedence. ``check`` raises ConfigError for files that
    the properties name and that cannot be used.
    """

    def __init__(
        self,
        path: str,
        overrides: Sequence[tuple[str, str]] = (),
        check: Callable[[BrokerConfig, Any], None] = lambda _config, _properties: None,
    ) -> None:
        self.path = path
        self._overrides = overrides
        self._check = check
        # Taken before the broker loads the file: what changes meanwhile differs, and is loaded again.
        version = version_of(path)
        self._status = self._read = _Content(version)
        self._started_with = _texts(path) if version is not None else None

    def read(self) -> BrokerConfig:
        """The file's configuration now. Raises ConfigError. Then the caller calls :meth:`take` or :meth:`refuse`."""
        self._read = _Content(version_of(self.path))
        if _is_pipe(self.path):  # opening it could block for ever
            raise ConfigError([Problem(self.path, None, "is no regular file, so it cannot be read again")])
        properties = read_properties(self.path)
        if self._started_with is not None:
            waiting = differences(self._started_with, properties).restart
            self._read = self._read._replace(needs_restart=waiting)
        config = BrokerConfig.from_properties(properties, self._overrides)
        self._check(config, properties)
        return config

    def take(self) -> Sequence[str]:
        """Called when what was read is in force. Returns the changed keys that need a restart."""
        self._status = self._read
        return self._read.needs_restart

    def refuse(self, reason: str) -> None:
        """Called when it cannot be used: the broker goes on with what it has."""
        refused = {"version": self._read.version, "reason": reason}
        self._status = self._status._replace(refused=refused)

    def status(self) -> Mapping[str, Any]:
        """For /status: the file; its version in force; the version that was refused later, and why; the keys whose
        values in the file need a restart.
        """
        return {"path": self.path, **self._status._asdict()}


def _is_pipe(path: str) -> bool:
    file = Path(path)
    return file.exists() and not file.is_file()


def version_of(path: str) -> str | None:
    """What changes with each change of a file: time, size and inode. No digest, which would let whoever reads /status
    try passwords. None if it is no file that can be read twice.
    """
    file = Path(path)
    try:
        found = file.stat()
        if not file.is_file() or found.st_size > MAX_FILE_BYTES:
            return None
    except OSError:
        return None
    return f"{found.st_mtime_ns:x}-{found.st_size:x}-{found.st_ino:x}"


def _texts(path: str) -> Mapping[str, str] | None:
    try:
        return read_properties(path)
    except ConfigError:  # the broker does not start
        return None
