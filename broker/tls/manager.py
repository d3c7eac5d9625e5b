"""All TLS listeners of a broker, and its HTTP port: made before the ports are bound, and reloaded while it runs.

Keys change by dynamic configs, files by whoever rotates certificates. Both are looked at together, so that
new keys in a file and a new password for it fit. `listener_tls` has one listener's state.
"""

from __future__ import annotations

import datetime as dt
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

import structlog

from broker.config.broker_config import BrokerConfig
from broker.config.listener_keys import ListenerConfig
from broker.config.problems import ConfigError, Problem
from broker.metrics.registry import Metrics
from broker.network.handshakes import Handshakes
from broker.security.distinguished_name import java_name
from broker.tls.certificates import Moment
from broker.tls.http import HTTP, http_problem, http_settings
from broker.tls.listener_tls import ListenerTls, TlsState, now_utc
from broker.tls.settings import TlsError, TlsSettings

_log = structlog.get_logger(__name__)
_WARN_DAYS: Final = 14
_AGAIN: Final = dt.timedelta(days=1)
_NO_ALERT: Final = dt.datetime.min.replace(tzinfo=dt.UTC)


def settings_of(config: BrokerConfig) -> dict[str, tuple[TlsSettings, ListenerConfig]]:
    """The settings of each TLS listener, and its configs."""
    found = {}
    for endpoint in config.listeners:
        if not endpoint.security_protocol.endswith("SSL"):
            continue
        values = config.for_listener(endpoint.listener_name)
        settings = TlsSettings.of(endpoint.listener_name, values)
        # Clients of a SASL listener have a principal already: certificates are asked for only by a key of the
        # listener's own (KIP-684).
        if (
            endpoint.security_protocol == "SASL_SSL"
            and values.name_of("ssl.client.auth") == "ssl.client.auth"
        ):
            settings = replace(settings, client_auth="none")
        found[endpoint.listener_name] = settings, values
    return found


Blame = Callable[[TlsError], Problem]


def _wanted(config: BrokerConfig) -> Iterator[tuple[str, TlsSettings, Blame]]:
    """The settings of each listener and of the HTTP port, by names, and what an error about them is called."""
    for name, (settings, values) in settings_of(config).items():
        yield name, settings, partial(_blame, values)
    of_http = http_settings(config)
    if of_http is not None:
        yield HTTP, of_http, http_problem


def _blame(values: ListenerConfig, error: TlsError) -> Problem:
    return Problem(values.name_of(error.key), None, str(error))


class TlsManager:
    """The TLS listeners of a broker, and its HTTP port if that speaks TLS. Raises :class:`ConfigError` with the
    problems of all of them. Only its reloads change it, one at a time.
    """

    def __init__(self, config: BrokerConfig, now: Callable[[], Moment] = now_utc) -> None:
        self._now = now
        self._config = config
        self._reloading = threading.Lock()  # lock order 15
        self._alerted = _NO_ALERT
        problems: list[Problem] = []
        between = {config.inter_broker_listener_name, config.controller_listener_name}
        self._listeners: dict[str, ListenerTls] = {}
        for name, settings, blame in _wanted(config):
            try:
                self._listeners[name] = ListenerTls(settings, between_brokers=name in between, now=now)
            except TlsError as error:
                problems.append(blame(error))
        if problems:
            raise ConfigError(list(dict.fromkeys(problems)))
        self.between_brokers = self._listeners.get(config.inter_broker_listener_name)
        self.of_controller = self._listeners.get(config.controller_listener_name)
        kafkas = {name: listener for name, listener in self._listeners.items() if name != HTTP}
        self.handshakes = Handshakes(kafkas) if kafkas else None
        self.http = self._listeners[HTTP].wrap if HTTP in self._listeners else None

    @property
    def listeners(self) -> Mapping[str, ListenerTls]:
        return self._listeners

    def tell(self) -> None:
        """Logs what the listeners have, once, at start."""
        for name, listener in self._listeners.items():
            state = listener.state
            _log.info(
                "tls_listener",
                listener=name,
                subject=java_name(state.chain[0].subject),
                days_left=int(listener.days_left()),
                protocols=",".join(state.settings.protocols),
                client_auth=state.settings.client_auth,
                kernel=_kernel(state),
                openssl=ssl.OPENSSL_VERSION,
            )

    def check(self, config: BrokerConfig) -> None:
        """Raises ConfigError if the listeners could not be reloaded with these configs."""
        problems = []
        for name, settings, blame in _wanted(config):
            listener = self._listeners[name]
            if name != HTTP and listener.differs(settings):  # the port has no dynamic configs
                try:
                    listener.prepare(settings)
                except TlsError as error:
                    problems.append(blame(error))
        if problems:
            raise ConfigError(problems)

    def update(self, config: BrokerConfig) -> None:
        """Takes up changed keys and changed files. From any thread."""
        with self._reloading:
            self._config = config
            self._look()

    def look_at_files(self) -> None:
        """Takes up changed files, and warns of certificates that expire soon."""
        with self._reloading:
            self._look()
            if self._now() - self._alerted >= _AGAIN:
                self._warn_of_expiry()

    def _look(self) -> None:
        for name, settings, blame in _wanted(self._config):
            listener = self._listeners[name]
            if not listener.is_due(settings):
                continue
            try:
                listener.reload(settings)
            except TlsError as error:
                problem = blame(error)
                _log.error(
                    "tls_reload_failed",
                    listener=name,
                    key=problem.key,
                    reason=problem.message,
                    action="new connections get the certificate from before",
                )
            else:
                _log.info(
                    "tls_reloaded",
                    listener=name,
                    subject=java_name(listener.state.chain[0].subject),
                    days_left=int(listener.days_left()),
                )

    def _warn_of_expiry(self) -> None:
        for name, listener in self._listeners.items():
            days = listener.days_left()
            if days < _WARN_DAYS:
                self._alerted = self._now()
                _log.warning(
                    "certificate_expires",
                    listener=name,
                    days_left=round(days, 1),
                    file=listener.state.settings.key_store.location or "in the configuration",
                    action="put a new one there; no restart is needed",
                )

    def register_metrics(self, metrics: Metrics) -> None:
        metrics.gauge(
            "landline_ssl_certificate_days_left",
            "Days until the first certificate of a listener's chain expires",
            lambda: {(name,): listener.days_left() for name, listener in self._listeners.items()},
            labels=("listener",),
        )
        handshakes = self.handshakes
        if handshakes is None:
            return
        metrics.gauge(
            "landline_ssl_handshakes_total",
            "TLS handshakes that succeeded",
            lambda: {(name,): float(handshakes.succeeded[name]) for name in handshakes.names},
            labels=("listener",),
        )
        metrics.gauge(
            "landline_ssl_handshakes_failed_total",
            "TLS handshakes that failed",
            lambda: {(name,): float(handshakes.failed[name]) for name in handshakes.names},
            labels=("listener",),
        )
        metrics.gauge(
            "landline_ssl_handshakes_in_progress",
            "TLS handshakes in progress",
            lambda: float(handshakes.count),
        )


def _kernel(state: TlsState) -> str:
    """Whether the kernel encrypts what this listener sends, and why not."""
    if not state.settings.in_kernel:
        return "off (landline.ssl.kernel.enable)"
    if kernel_has_tls():
        return "on"
    return "not in this kernel: load its module tls"


def kernel_has_tls() -> bool:
    """Whether the kernel has TLS sockets now."""
    try:
        with open("/proc/sys/net/ipv4/tcp_available_ulp", encoding="ascii") as file:  # noqa: PTH123
            return "tls" in file.read().split()
    except OSError:
        return False
