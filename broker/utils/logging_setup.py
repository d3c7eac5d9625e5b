"""Logging: one line per event to stderr, ``time level event key=value`` (logfmt) or JSON.

``LANDLINE_LOG_FORMAT=json`` and ``LANDLINE_LOG_LEVEL=debug|info|warning|error`` select format and level.
Under systemd each line starts with its priority, which the journal removes. Libraries that use the standard
library's logging (kazoo) are logged in the same format. Events and their keys are defined by the callers.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, MutableMapping
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final

import structlog

EventDict = MutableMapping[str, Any]
_LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}
_PRIORITIES: Final = {"debug": 7, "info": 6, "warning": 4, "error": 3, "critical": 2}
_PLAIN: Final = re.compile(r"[!#-<>-\[\]-~]+")  # printable ASCII without blank, quote, equals sign, backslash
# Clients choose their own names and the names in their requests; these may be 32 KiB of control characters.
_FROM_CLIENTS: Final = frozenset({"client_id", "entity", "group", "member", "path", "topic"})
_MAX_FROM_CLIENTS: Final = 256
# The journal splits lines at 48 KiB and would take the rest for a line of its own.
_MAX_VALUE: Final = 4096
_MAX_TRACEBACK: Final = 16 * 1024
_MAX_LINE: Final = 40_000
_LEAST_CUT: Final = 64


def configure_logging(environment: Mapping[str, str] = os.environ) -> None:
    """Configures logging. Called once, before the first event."""
    level = _LEVELS.get(environment.get("LANDLINE_LOG_LEVEL", "info").lower(), 20)
    render = render_json if environment.get("LANDLINE_LOG_FORMAT", "").lower() == "json" else render_logfmt
    structlog.configure(
        processors=[structlog.processors.add_log_level, _add_time, _add_exception, _cut_values, render],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=StderrLoggerFactory(journal=_stderr_is_journal(environment)),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(handlers=[_ToStructlog()], level=max(level, logging.WARNING), force=True)
    sys.excepthook = _log_uncaught
    threading.excepthook = _log_thread_death


class StderrLoggerFactory:
    """Makes structlog's innermost loggers. With ``journal``, lines start with the
    priority of sd-daemon(3).
    """

    def __init__(self, *, journal: bool = False) -> None:
        self._journal = journal

    def __call__(self, *_: object) -> StderrLogger:
        return StderrLogger(journal=self._journal)


class StderrLogger:
    """Writes each line with one system call, so that lines of several threads never mix. Write errors are
    ignored: the broker must not fail because stderr is gone.
    """

    def __init__(self, *, journal: bool) -> None:
        self._journal = journal

    def __getattr__(self, level: str) -> Callable[[str], None]:
        if level.startswith("_"):
            raise AttributeError(level)
        prefix = f"<{_PRIORITIES.get(level, 6)}>" if self._journal else ""

        def write(line: str) -> None:
            try:
                os.write(2, f"{prefix}{line[:_MAX_LINE]}\n".encode(errors="backslashreplace"))
            except OSError:
                return

        setattr(self, level, write)
        return write


def render_logfmt(_: object, __: str, event: EventDict) -> str:
    """Renders ``time level event key=value …``. Values with blanks, quotes or anything but printable ASCII
    become JSON strings.
    """
    head = [str(event.pop("timestamp", "")), str(event.pop("level", "info")), _name(event.pop("event", ""))]
    return " ".join(
        [part for part in head if part] + [f"{key}={_value(value)}" for key, value in event.items()]
    )


def render_json(_: object, __: str, event: EventDict) -> str:
    """Renders one JSON object that fits a line: the longest values are cut until it does."""
    values = dict(event)
    while len(line := _printable(json.dumps(values, default=str))) > _MAX_LINE:
        longest = max(values, key=lambda key: len(json.dumps(values[key], default=str)))
        text = str(values[longest])
        if len(text) <= _LEAST_CUT:
            return _printable(json.dumps({"event": str(values.get("event", ""))[:_LEAST_CUT], "cut": True}))
        values[longest] = f"{text[: len(text) // 2]}..."
    return line


def _name(event: object) -> str:
    return _value(event) if event else ""


def _value(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = value if isinstance(value, str) else str(value)
    return text if _PLAIN.fullmatch(text) else _printable(json.dumps(text))


def _printable(escaped: str) -> str:
    """Escapes DEL, the only ASCII control character that JSON leaves as it is."""
    return escaped.replace("\x7f", "\\u007f")


def _cut_values(_: object, __: str, event: EventDict) -> EventDict:
    """Cuts values that exceed the limit of their kind; a cut value says how much is missing."""
    for key, value in event.items():
        if isinstance(value, int | float | None):
            continue
        text = value if isinstance(value, str) else str(value)
        most = (
            _MAX_FROM_CLIENTS
            if key in _FROM_CLIENTS
            else _MAX_TRACEBACK
            if key == "traceback"
            else _MAX_VALUE
        )
        if len(text) > most:
            event[key] = f"{text[:most]}... ({len(text) - most} more)"
    return event


def _add_time(_: object, __: str, event: EventDict) -> EventDict:
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    event["timestamp"] = now.replace("+00:00", "Z")
    return event


def _add_exception(_: object, __: str, event: EventDict) -> EventDict:
    """Turns a traceback into one escaped value, so that an event stays on one line."""
    info = event.pop("exc_info", None)
    if info is True:
        info = sys.exc_info()
    if isinstance(info, BaseException):
        info = (type(info), info, info.__traceback__)
    if isinstance(info, tuple) and info[1] is not None:
        event.setdefault("error", f"{type(info[1]).__name__}: {info[1]}")
        event["traceback"] = "".join(traceback.format_exception(*info)).rstrip()
    return event


def _stderr_is_journal(environment: Mapping[str, str]) -> bool:
    """Whether stderr is the journal, by systemd's rule: ``JOURNAL_STREAM`` is stderr's device and inode."""
    try:
        stat = os.fstat(2)
    except OSError:
        return False
    return environment.get("JOURNAL_STREAM") == f"{stat.st_dev}:{stat.st_ino}"


class _ToStructlog(logging.Handler):
    """Forwards records of the standard library's logging to structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        log = structlog.get_logger(record.name)
        level = record.levelname.lower() if record.levelname.lower() in _LEVELS else "info"
        getattr(log, level)(
            "library_log", logger=record.name, message=record.getMessage(), exc_info=record.exc_info
        )


def _log_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        return
    structlog.get_logger("broker").critical("uncaught_error", exc_info=(kind, error, trace))


def _log_thread_death(args: threading.ExceptHookArgs) -> None:
    if issubclass(args.exc_type, SystemExit):
        return
    name = args.thread.name if args.thread else "?"
    info = (args.exc_type, args.exc_value, args.exc_traceback)
    structlog.get_logger("broker").error("thread_died", thread=name, exc_info=info)
