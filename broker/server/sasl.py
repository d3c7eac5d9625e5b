"""Makes what SASL needs from the configuration: what each listener offers, and the login to other brokers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from broker.config.broker_config import BrokerConfig
from broker.config.sasl import SaslListener
from broker.network.sasl import SaslListeners
from broker.sasl.client import ClientLogin
from broker.sasl.exchange import Exchange
from broker.sasl.login import Offer
from broker.server.scram_credentials import ScramCredentials
from broker.utils.clock import Clock
from broker.utils.timer import Timer


def make_sasl_listeners(
    config: BrokerConfig, credentials: ScramCredentials, timer: Timer, clock: Clock
) -> SaslListeners | None:
    """What the SASL listeners offer; None if there are none."""
    if not config.sasl.listeners:
        return None
    return SaslListeners(
        {name: _offer(listener, credentials) for name, listener in config.sasl.listeners.items()},
        timer.add,
        failure_delay_ms=config.int("connection.failed.authentication.delay.ms"),
        max_newcomers=config.int("landline.sasl.unauthenticated.max.count"),
        max_login_ms=config.int("landline.sasl.authentication.max.ms"),
        clock=clock,
    )


def make_client_login(config: BrokerConfig) -> ClientLogin | None:
    """How this broker logs in to others; None if their listener has no SASL."""
    login = config.sasl.between_brokers
    return None if login is None else ClientLogin(login.mechanism, login.user, login.password)


def _offer(listener: SaslListener, credentials: ScramCredentials) -> Offer:
    return Offer(
        {mechanism: _exchanges(mechanism, listener, credentials) for mechanism in listener.mechanisms},
        listener.max_session_ms,
        listener.max_receive_bytes,
    )


def _exchanges(
    mechanism: str, listener: SaslListener, credentials: ScramCredentials
) -> Callable[[], Exchange]:
    if mechanism == "PLAIN":
        from broker.sasl.plain import PlainUsers

        options = listener.jaas[mechanism].options
        users = {
            name.removeprefix("user_"): text for name, text in options.items() if name.startswith("user_")
        }
        return PlainUsers(users).exchange
    from broker.sasl.scram import ScramExchange

    return partial(ScramExchange, mechanism, lambda user, _by_token: credentials.find(mechanism, user))
