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
    """What was read: the bytes, None of a pipe; the bytes that were refused later, and why."""

    content: bytes | None
    refused: tuple[bytes | None, str] | None = None
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
        content = _content(path)
        self._status = self._read = _Content(content)
        self._started_with = _texts(path) if content is not None else None

    def read(self) -> BrokerConfig:
        """The file's configuration now. Raises ConfigError. Then the caller calls :meth:`take` or :meth:`refuse`."""
        self._read = _Content(_content(self.path))
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
        self._status = self._status._replace(refused=(self._read.content, reason))

    def status(self) -> Mapping[str, Any]:
        """For /status: the file; the SHA-256 of the content in force; the content that was refused later, and why;
        the keys whose values in the file need a restart.
        """
        content, refused, needs_restart = self._status
        return {
            "path": self.path,
            "sha256": _sha256(content),
            "refused": refused and {"sha256": _sha256(refused[0]), "reason": refused[1]},
            "needs_restart": needs_restart,
        }


def _is_pipe(path: str) -> bool:
    file = Path(path)
    return file.exists() and not file.is_file()


def _content(path: str) -> bytes | None:
    file = Path(path)
    try:
        if not file.is_file() or file.stat().st_size > MAX_FILE_BYTES:  # a pipe can be read only once
            return None
        return file.read_bytes()
    except OSError:
        return None


def _sha256(content: bytes | None) -> str | None:
    import hashlib  # late: it loads OpenSSL, which a start does not need

    return None if content is None else hashlib.sha256(content).hexdigest()


def _texts(path: str) -> Mapping[str, str] | None:
    try:
        return read_properties(path)
    except ConfigError:  # the broker does not start
        return None
