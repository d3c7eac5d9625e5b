"""Adapts kazoo: how it connects and waits, and where its warnings go."""

from __future__ import annotations

import logging
import socket
import time
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler

from broker.zookeeper.connect_string import Secure
from broker.zookeeper.select_ready import select_ready
from broker.zookeeper.silence import Silence


class Handler(SequentialThreadingHandler):
    """The handler of a kazoo client. kazoo gives one dead server the whole session timeout to accept a
    connection. This handler allows a share of it, like ZooKeeper's own client. Only the connection's thread
    waits here, so the handler also tells ``silence`` when something was heard from ZooKeeper. With ``secure``,
    connections speak TLS; kazoo's own way has neither Kafka's keys nor text in the configuration.
    """

    def __init__(
        self, connect_timeout_s: float, secure: Secure | None = None, silence: Silence | None = None
    ) -> None:
        super().__init__()
        self._connect_timeout_s = connect_timeout_s
        self._secure = secure
        self._silence = silence or Silence()

    def select(self, *args: Any, **kwargs: Any) -> Any:
        # OpenSSL may hold an answer that came in one record with the answer before.
        held = [each for each in args[0] if getattr(each, "pending", int)() > 0]
        ready = (held, [], []) if held else select_ready(*args, **kwargs)
        # The first socket that is watched for reading is the server's.
        if args[0] and args[0][0] in ready[0]:
            self._silence.heard(time.monotonic())
        return ready

    def create_connection(self, *args: Any, **kwargs: Any) -> Any:
        kwargs["timeout"] = min(kwargs.get("timeout") or self._connect_timeout_s, self._connect_timeout_s)
        if self._secure is None:
            return super().create_connection(*args, **kwargs)
        connection = socket.create_connection(kwargs["address"], kwargs["timeout"])
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            return self._secure(connection, kwargs["hostname"])
        except BaseException:
            connection.close()
            raise


class LastWarning(logging.Handler):
    """Keeps kazoo's last warning for our own messages. kazoo's log goes nowhere else."""

    def __init__(self) -> None:
        super().__init__()
        self.text = "no answer yet"

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if not message.startswith("Transition to "):  # such a message gives no reason
            self.text = message
