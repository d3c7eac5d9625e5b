"""Runs a BrokerServer as a process: start-up, signals, systemd, exit code.

The main thread only waits: for signals, which are blocked on every thread, and for events from its helper
threads. A stop is possible at any time: it cancels a start-up, or shuts down a running broker. A second
SIGINT ends the process at once. SIGHUP stops the broker of a terminal, which was closed; elsewhere it reloads the
properties file, if there is one. BrokerServer defines how the broker starts and stops; `__main__` prints the
command's output.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Protocol

import structlog

from broker.utils.collector import leave_old_objects
from broker.utils.open_files import raise_open_file_limit
from broker.utils.process_identity import has_terminal
from broker.utils.stop_signals import STACKS_SIGNAL, STOP_SIGNALS, WAITED_SIGNALS, WAKE_SIGNAL
from broker.utils.systemd import Notifier, Watchdog, watchdog_interval_ms

_log = structlog.get_logger(__name__)
EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_FORCED: Final = 130
EXTEND_MS: Final = 60_000


class Server(Protocol):
    """The methods of BrokerServer that are used here."""

    def startup(self, cancel: threading.Event) -> None: ...
    def shutdown(self) -> None: ...
    def await_shutdown(self) -> None: ...
    def is_alive(self) -> bool: ...
    def reload(self) -> None: ...


class State(Enum):
    """The states of the process."""

    STARTING = "starting"
    RUNNING = "running"
    CANCELLING = "cancelling"
    STOPPING = "stopping"
    STOPPED = "stopped"


class Event(Enum):
    """What changes the state: events from the helper threads, and stop signals."""

    STARTED = "started"
    CANCELLED = "cancelled"
    FAILED = "failed"
    DIED = "died"
    ENDED = "ended"
    STOP = "stop"


TRANSITIONS: Final[dict[tuple[State, Event], State]] = {
    (State.STARTING, Event.STARTED): State.RUNNING,
    (State.STARTING, Event.FAILED): State.STOPPED,
    (State.STARTING, Event.CANCELLED): State.STOPPED,
    (State.STARTING, Event.STOP): State.CANCELLING,
    # The stop came when start-up was almost complete.
    (State.CANCELLING, Event.STARTED): State.STOPPING,
    (State.CANCELLING, Event.CANCELLED): State.STOPPED,
    (State.CANCELLING, Event.FAILED): State.STOPPED,
    (State.RUNNING, Event.STOP): State.STOPPING,
    (State.RUNNING, Event.DIED): State.STOPPED,
    (State.STOPPING, Event.ENDED): State.STOPPED,
}


@dataclass(frozen=True, slots=True)
class StartupErrors:
    """BrokerServer's two exceptions: start-up was cancelled through ``cancel``, or failed."""

    cancelled: type[Exception]
    failed: type[Exception]


# A computing thread releases the interpreter after this time when another thread wants it. With Python's
# default, the network thread could wait 5 ms per busy handler at every system call.
SWITCH_INTERVAL_S: Final = 0.0005

# Objects created during start-up stay alive. Checking them after every 700 new objects took a fifth of the
# time to load 10,000 logs.
STARTING_GC_THRESHOLD: Final = 100_000


class Daemon:
    """A broker as a process; Kafka's ``Kafka.main``. The main thread owns its state: helper threads only send
    events. ``make_server`` is called on the start-up thread with the function that receives status lines.
    ``reloads`` says whether SIGHUP reloads the server.
    """

    def __init__(
        self,
        make_server: Callable[[Callable[[str], None]], Server],
        errors: StartupErrors,
        notifier: Notifier,
        on_ready: Callable[[Any], None],
        *,
        reloads: bool = False,
    ) -> None:
        self._make_server = make_server
        self._errors = errors
        self._notifier = notifier
        self._on_ready = on_ready
        self._cancel = threading.Event()
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._main_thread = threading.get_ident()
        self._state = State.STARTING
        self._server: Server | None = None
        self._watchdog: Watchdog | None = None
        self._exit_code = EXIT_OK
        self._reloads = reloads
        self._reload_due = False

    def run(self) -> int:
        """Blocks until the broker has stopped; returns the exit code. Main thread only,
        with signals blocked.
        """
        faulthandler.enable()  # systemd's watchdog kills with SIGABRT: then dump the stacks of all threads
        faulthandler.register(STACKS_SIGNAL)  # the same on request, and the broker goes on
        raise_open_file_limit()
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        threading.Thread(target=self._start, name="startup", daemon=True).start()
        while self._state is not State.STOPPED:
            number = signal.sigwait(WAITED_SIGNALS)
            if number == signal.SIGHUP and self._reloads and not has_terminal():
                self._on_reload_signal()
            elif number in STOP_SIGNALS:
                self._on_stop_signal(signal.Signals(number))
            while not self._events.empty():
                self._on_event(self._events.get())
        return self._exit_code

    def _on_stop_signal(self, number: signal.Signals) -> None:
        if (self._state, Event.STOP) in TRANSITIONS:
            _log.info("stop_requested", signal=number.name, state=self._state.value)
            self._on_event(Event.STOP)
        elif number is signal.SIGINT and self._state is not State.STOPPED:
            _log.warning("stop_forced", signal=number.name)
            os._exit(EXIT_FORCED)

    def _on_reload_signal(self) -> None:
        """During start-up, the file may have been read already: it is read again when the broker runs."""
        _log.info("reload_requested", state=self._state.value)
        if self._state is State.RUNNING and self._server is not None:
            self._server.reload()
        else:
            self._reload_due = True

    def _on_event(self, event: Event) -> None:
        before = self._state
        after = TRANSITIONS.get((before, event))
        if after is None:  # DIED while stopping: the shutdown thread reports the end itself
            return
        self._state = after
        if after is State.RUNNING:
            self._on_running()
        elif after is State.CANCELLING:
            self._notifier.stopping("Stopping during start-up")
            self._cancel.set()
        elif after is State.STOPPING:
            self._begin_shutdown()
        elif before is State.RUNNING:
            _log.error("broker_ended_by_itself")
            self._exit_code = EXIT_FAILED
        elif event is Event.FAILED and before is State.STARTING:
            self._exit_code = EXIT_FAILED

    def _on_running(self) -> None:
        server = self._server
        if server is None:
            raise RuntimeError("started without a server")
        self._notifier.ready("Running")
        interval_ms = watchdog_interval_ms()
        if interval_ms is not None:
            self._watchdog = Watchdog(self._notifier, interval_ms, server.is_alive)
            self._watchdog.start()
        self._spawn("await-shutdown", server.await_shutdown, Event.DIED)
        self._on_ready(server)
        if self._reload_due:
            server.reload()
        # What start-up created stays alive, so the collector need not check it again. Nor does it collect
        # before the freeze: all of it is alive, and for 10,000 partitions a collection takes over a tenth of
        # a second, when the first clients connect.
        gc.freeze()
        leave_old_objects()

    def _begin_shutdown(self) -> None:
        self._notifier.stopping("Stopping")
        if self._watchdog is not None:
            self._watchdog.stop()
        if self._server is not None:
            self._spawn("shutdown", self._server.shutdown, Event.ENDED)

    def _start(self) -> None:
        event = Event.FAILED
        usual = gc.get_threshold()
        gc.set_threshold(STARTING_GC_THRESHOLD, *usual[1:])
        try:
            server = self._make_server(self._progress)
            server.startup(self._cancel)
            self._server = server
            event = Event.STARTED
        except self._errors.cancelled:
            _log.info("startup_cancelled")
            event = Event.CANCELLED
        except self._errors.failed as error:
            self._notifier.status(f"Cannot start: {error}")
            _log.error("startup_failed", reason=str(error))
        except BaseException:
            self._notifier.status("Cannot start, see the log")
            _log.exception("startup_failed")
        finally:
            gc.set_threshold(*usual)
        self._report(event)

    def _spawn(self, name: str, action: Callable[[], None], at_end: Event) -> None:
        """Runs ``action`` on its own thread, then reports ``at_end``."""

        def run() -> None:
            try:
                action()
            except Exception:
                _log.exception("shutdown_failed", step=name)
                self._exit_code = EXIT_FAILED
            self._report(at_end)

        threading.Thread(target=run, name=name, daemon=True).start()

    def _report(self, event: Event) -> None:
        self._events.put(event)
        signal.pthread_kill(self._main_thread, WAKE_SIGNAL)

    def _progress(self, text: str) -> None:
        """Forwards a status line of BrokerServer; during start-up and shutdown it also extends
        systemd's time-out.
        """
        if self._state is State.RUNNING:
            self._notifier.status(text)
        else:
            self._notifier.busy(text, EXTEND_MS)
