"""What kazoo is given to work with: how it connects and waits, and where its complaints go."""

from __future__ import annotations

import logging
import time
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler

from broker.zookeeper.select_ready import select_ready


class Handler(SequentialThreadingHandler):
    """kazoo gives one dead server the whole session time-out to accept; like ZooKeeper's own client, ours a
    share. Its connection's thread waits here alone, so here it shows how long nothing was heard of ZooKeeper.
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
        # The first that is watched for reading is the server's socket.
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
    """Keeps the last thing kazoo complained of, for our own messages; kazoo's log goes nowhere else."""

    def __init__(self) -> None:
        super().__init__()
        self.text = "no answer yet"

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if not message.startswith("Transition to "):  # says nothing of why
            self.text = message
