"""Makes what each SASL listener offers, from the configuration and the users' credentials.

Imported only if there is such a listener: the hashes take time and memory.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from broker.config.broker_config import BrokerConfig
from broker.config.sasl import HANDLER, UNSECURED, SaslListener
from broker.network.login_thread import LoginThread
from broker.network.sasl import SaslListeners
from broker.sasl.credential import Known
from broker.sasl.decoys import Decoys
from broker.sasl.exchange import Exchange
from broker.sasl.login import Offer
from broker.server.delegation_tokens import DelegationTokens
from broker.server.scram_credentials import ScramCredentials
from broker.utils.clock import Clock
from broker.utils.scheduler import KafkaScheduler
from broker.utils.timer import Timer


def make_sasl_listeners(
    config: BrokerConfig,
    credentials: ScramCredentials,
    tokens: DelegationTokens | None,
    *,
    secret: bytes,
    timer: Timer,
    scheduler: KafkaScheduler,
    clock: Clock,
) -> SaslListeners:
    """What the SASL listeners offer. Starts to keep the keys for OAUTHBEARER. ``secret`` is the cluster's, for
    unknown SCRAM users.
    """
    parts = _Parts(credentials, tokens, Decoys(secret, credentials.forms), scheduler, clock)
    return SaslListeners(
        {name: _offer(listener, parts) for name, listener in config.sasl.listeners.items()},
        timer.add,
        failure_delay_ms=config.int("connection.failed.authentication.delay.ms"),
        max_newcomers=config.int("landline.sasl.unauthenticated.max.count"),
        max_login_ms=config.int("landline.sasl.authentication.max.ms"),
        apart=LoginThread() if any(each.kerberos for each in config.sasl.listeners.values()) else None,
        clock=clock,
    )


class _Parts(NamedTuple):
    credentials: ScramCredentials
    tokens: DelegationTokens | None
    decoys: Decoys
    scheduler: KafkaScheduler
    clock: Clock


def _offer(listener: SaslListener, parts: _Parts) -> Offer:
    return Offer(
        {mechanism: _exchanges(mechanism, listener, parts) for mechanism in listener.mechanisms},
        listener.max_session_ms,
        listener.max_receive_bytes,
    )


def _exchanges(mechanism: str, listener: SaslListener, parts: _Parts) -> Callable[[], Exchange]:
    if mechanism == "PLAIN":
        from broker.sasl.plain import PlainUsers

        options = listener.jaas[mechanism].options
        users = {
            name.removeprefix("user_"): text for name, text in options.items() if name.startswith("user_")
        }
        return PlainUsers(users).exchange
    if mechanism == "OAUTHBEARER":
        return _oauthbearer(listener, parts)
    if mechanism == "GSSAPI":
        from broker.server.kerberos import gssapi_exchanges

        assert listener.kerberos is not None
        return gssapi_exchanges(listener.kerberos)
    from broker.sasl.scram import ScramExchange

    def find(user: str, by_token: bool) -> Known | None:
        if by_token:
            return None if parts.tokens is None else parts.tokens.find(mechanism, user)
        return parts.credentials.find(mechanism, user)

    return partial(ScramExchange, mechanism, find, parts.decoys)


def _oauthbearer(listener: SaslListener, parts: _Parts) -> Callable[[], Exchange]:
    from broker.sasl.jwt_tokens import ClaimRules, SignedTokens, UnsecuredRules, UnsecuredTokens
    from broker.sasl.oauthbearer import OAuthBearerExchange
    from broker.server.jwks import JwksKeeper

    settings = listener.settings["OAUTHBEARER"]
    if settings[HANDLER] == UNSECURED:
        entry = listener.jaas.get("OAUTHBEARER")
        rules = UnsecuredRules.of(entry.options if entry else {})
        return partial(OAuthBearerExchange, UnsecuredTokens(rules, parts.clock.wall_ms).check)
    endpoint = "sasl.oauthbearer.jwks.endpoint"
    keeper = JwksKeeper(
        settings[f"{endpoint}.url"],
        refresh_ms=settings[f"{endpoint}.refresh.ms"],
        backoff_ms=settings[f"{endpoint}.retry.backoff.ms"],
        max_backoff_ms=settings[f"{endpoint}.retry.backoff.max.ms"],
    )
    keeper.startup(parts.scheduler)
    claims = ClaimRules(
        settings["sasl.oauthbearer.clock.skew.seconds"],
        tuple(settings["sasl.oauthbearer.expected.audience"] or ()),
        settings["sasl.oauthbearer.expected.issuer"] or None,
        settings["sasl.oauthbearer.scope.claim.name"],
        settings["sasl.oauthbearer.sub.claim.name"],
    )
    return partial(OAuthBearerExchange, SignedTokens(keeper.keys, claims, parts.clock.wall_ms).check)
