"""SASL. The keys of logins by token are accepted and change nothing: there are none. So are those of Kerberos
about logins, which the Kerberos library renews itself.
"""

from __future__ import annotations

from typing import Final

from broker.config.key import (
    CLASS,
    DOUBLE,
    INT,
    LIST,
    LONG,
    LOW,
    MEDIUM,
    PASSWORD,
    PER_BROKER,
    REFUSED,
    SHORT,
    STRING,
    USED,
    Key,
)
from broker.config.validators import at_least

# fmt: off
KEYS: Final = (
    Key("sasl.enabled.mechanisms", LIST, ("GSSAPI",), MEDIUM, mode=PER_BROKER, use=USED,
        doc="SASL mechanisms that a listener offers: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, and GSSAPI, "
            "which needs the extra landline[gssapi]."),
    Key("sasl.mechanism.inter.broker.protocol", STRING, "GSSAPI", MEDIUM, mode=PER_BROKER, use=USED,
        doc="SASL mechanism between brokers: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or GSSAPI."),
    Key("sasl.jaas.config", PASSWORD, None, MEDIUM, mode=PER_BROKER, use=USED,
        doc="A login module with its options, in JAAS form. Of one mechanism of one listener if it is set as "
            "`listener.name.<listener>.<mechanism>.sasl.jaas.config`; as `sasl.jaas.config`, which Kafka's brokers "
            "ignore, of all mechanisms that the login module is for."),
    Key("sasl.client.callback.handler.class", CLASS, None, MEDIUM, use=REFUSED,
        doc="Java class of client callbacks. Refused when set: brokers log in by PLAIN, SCRAM "
            "or GSSAPI, which need none."),
    Key("sasl.server.callback.handler.class", CLASS, None, MEDIUM, use=USED,
        doc="Java class of server callbacks. Refused without a listener and a mechanism. "
            "`listener.name.<listener>.oauthbearer.sasl.server.callback.handler.class` may be Kafka's "
            "OAuthBearerValidatorCallbackHandler or OAuthBearerUnsecuredValidatorCallbackHandler."),
    Key("sasl.login.callback.handler.class", CLASS, None, MEDIUM, use=REFUSED,
        doc="Java class of login callbacks. Refused when set: brokers log in by PLAIN, SCRAM "
            "or GSSAPI, which need none."),
    Key("sasl.login.class", CLASS, None, MEDIUM, use=REFUSED,
        doc="Java class of the login. Refused when set."),
    Key("sasl.login.connect.timeout.ms", INT, None, LOW,
        doc="Connection timeout to the identity provider."),
    Key("sasl.login.read.timeout.ms", INT, None, LOW,
        doc="Read timeout to the identity provider."),
    Key("sasl.login.refresh.buffer.seconds", SHORT, 300, MEDIUM, mode=PER_BROKER,
        doc="How long before it expires a login is refreshed."),
    Key("sasl.login.refresh.min.period.seconds", SHORT, 60, MEDIUM, mode=PER_BROKER,
        doc="Shortest time between refreshes."),
    Key("sasl.login.refresh.window.factor", DOUBLE, 0.8, MEDIUM, mode=PER_BROKER,
        doc="Share of a login's lifetime after which it is refreshed."),
    Key("sasl.login.refresh.window.jitter", DOUBLE, 0.05, MEDIUM, mode=PER_BROKER,
        doc="Random share added to sasl.login.refresh.window.factor."),
    Key("sasl.login.retry.backoff.max.ms", LONG, 10000, LOW,
        doc="Longest wait between login attempts."),
    Key("sasl.login.retry.backoff.ms", LONG, 100, LOW,
        doc="First wait between login attempts."),
    Key("sasl.server.max.receive.size", INT, 524_288, MEDIUM, use=USED,
        doc="The largest frame from a client that is not authenticated yet."),
    Key("sasl.kerberos.kinit.cmd", STRING, "/usr/bin/kinit", MEDIUM, mode=PER_BROKER,
        doc="Path of kinit."),
    Key("sasl.kerberos.min.time.before.relogin", LONG, 60000, MEDIUM, mode=PER_BROKER,
        doc="Shortest time between Kerberos logins."),
    Key("sasl.kerberos.principal.to.local.rules", LIST, ("DEFAULT",), MEDIUM, mode=PER_BROKER, use=USED,
        doc="Rules that map Kerberos principals to users' names: DEFAULT, or "
            "RULE:[n:string](regexp)s/pattern/replacement/g, with /L or /U behind it for lower or upper case."),
    Key("sasl.kerberos.service.name", STRING, None, MEDIUM, mode=PER_BROKER, use=USED,
        doc="Kerberos service name of the brokers. Needed for GSSAPI between brokers."),
    Key("sasl.kerberos.ticket.renew.jitter", DOUBLE, 0.05, MEDIUM, mode=PER_BROKER,
        doc="Random share of the ticket renewal time."),
    Key("sasl.kerberos.ticket.renew.window.factor", DOUBLE, 0.8, MEDIUM, mode=PER_BROKER,
        doc="Share of a ticket's lifetime after which it is renewed."),
    Key("sasl.oauthbearer.clock.skew.seconds", INT, 30, LOW, use=USED,
        doc="Tolerated clock difference for tokens."),
    Key("sasl.oauthbearer.expected.audience", LIST, None, LOW, use=USED,
        doc="Accepted token audiences."),
    Key("sasl.oauthbearer.expected.issuer", STRING, None, LOW, use=USED,
        doc="Accepted token issuer."),
    Key("sasl.oauthbearer.jwks.endpoint.refresh.ms", LONG, 3_600_000, LOW, use=USED,
        doc="How often signing keys are fetched."),
    Key("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", LONG, 10000, LOW, use=USED,
        doc="Longest wait between attempts to fetch signing keys."),
    Key("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", LONG, 100, LOW, use=USED,
        doc="First wait between attempts to fetch signing keys."),
    Key("sasl.oauthbearer.jwks.endpoint.url", STRING, None, MEDIUM, use=USED,
        doc="URL of the keys that sign tokens, a JWKS: https, http or file."),
    Key("sasl.oauthbearer.scope.claim.name", STRING, "scope", LOW, use=USED,
        doc="Name of the scope claim."),
    Key("sasl.oauthbearer.sub.claim.name", STRING, "sub", LOW, use=USED,
        doc="Name of the subject claim."),
    Key("sasl.oauthbearer.token.endpoint.url", STRING, None, MEDIUM,
        doc="URL from which tokens are fetched."),
    Key("landline.sasl.unauthenticated.max.count", INT, 1000, LOW, valid=at_least(1), use=USED,
        doc="Connections to each SASL listener that are not authenticated yet. Further ones are closed. One "
            "address may have no more of them than there are free places."),
    Key("landline.sasl.authentication.max.ms", INT, 10_000, LOW, valid=at_least(1), use=USED,
        doc="How long an authentication may take. After that the connection is closed."),
)
# fmt: on
