"""Adapts kazoo: how it connects and waits, and where its warnings go."""

from __future__ import annotations

import logging
import time
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler

from broker.zookeeper.select_ready import select_ready


class Handler(SequentialThreadingHandler):
    """The handler of a kazoo client. kazoo gives one dead server the whole session timeout to accept a
    connection. This handler allows a share of it, like ZooKeeper's own client. Only the connection's thread
    waits here, so the handler also measures how long nothing was heard from ZooKeeper.
    """

    def __init__(self, connect_timeout_s: float) -> None:
        super().__init__()
        self._connect_timeout_s = connect_timeout_s
        self._heard_s: float | None = None
        self._longest_silence_s = 0.0

    @property
    def longest_silence_s(self) -> float:
        since_s = 0.0 if self._heard_s is None else time.monotonic() - self._heard_s
        return max(self._longest_silence_s, since_s)

    def select(self, *args: Any, **kwargs: Any) -> Any:
        ready = select_ready(*args, **kwargs)
        # The first socket that is watched for reading is the server's.
        if args[0] and args[0][0] in ready[0]:
            now_s = time.monotonic()
            if self._heard_s is not None:
                self._longest_silence_s = max(self._longest_silence_s, now_s - self._heard_s)
            self._heard_s = now_s
        return ready

    def create_connection(self, *args: Any, **kwargs: Any) -> Any:
        kwargs["timeout"] = min(kwargs.get("timeout") or self._connect_timeout_s, self._connect_timeout_s)
        return super().create_connection(*args, **kwargs)


class LastWarning(logging.Handler):
    """Keeps kazoo's last warning for our own messages. kazoo's log goes nowhere else."""

    def __init__(self) -> None:
        super().__init__()
        self.text = "no answer yet"

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if not message.startswith("Transition to "):  # such a message gives no reason
            self.text = message
