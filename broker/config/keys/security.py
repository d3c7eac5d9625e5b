"""Authorization, principals and secrets. Keys that promise what Landline does not have are refused."""

from __future__ import annotations

from typing import Final

from broker.config.authorizer_class import AuthorizerClass
from broker.config.key import (
    BOOLEAN,
    CLASS,
    INT,
    LONG,
    LOW,
    MEDIUM,
    PASSWORD,
    PER_BROKER,
    REFUSED,
    STRING,
    USED,
    Key,
)
from broker.config.validators import at_least

# fmt: off
KEYS: Final = (
    Key("authorizer.class.name", STRING, "", LOW, valid=AuthorizerClass(), use=USED,
        doc="The authorizer, which decides who may do what. Empty: everybody may do everything."),
    Key("super.users", STRING, "", LOW, use=USED,
        doc="Principals that may do everything, separated by semicolons. The brokers' own principals belong "
            "here. Needs an authorizer."),
    Key("allow.everyone.if.no.acl.found", BOOLEAN, False, LOW, use=USED,
        doc="Whether everybody may use a resource for which there is no ACL."),
    Key("principal.builder.class", CLASS,
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder", MEDIUM,
        mode=PER_BROKER, use=REFUSED,
        doc="Java class that determines a connection's principal. Refused when set: principals come from "
            "SASL, or from certificates by ssl.principal.mapping.rules."),
    Key("security.providers", STRING, None, LOW,
        doc="Java security providers."),
    Key("delegation.token.secret.key", PASSWORD, None, MEDIUM, use=USED,
        doc="Secret that signs delegation tokens, the same on all brokers. Without it there are none."),
    Key("delegation.token.master.key", PASSWORD, None, MEDIUM, use=USED,
        doc="Old name of delegation.token.secret.key."),
    Key("delegation.token.expiry.check.interval.ms", LONG, 3_600_000, LOW, valid=at_least(1), use=USED,
        doc="How often expired delegation tokens are removed."),
    Key("delegation.token.expiry.time.ms", LONG, 86_400_000, MEDIUM, valid=at_least(1), use=USED,
        doc="How long a delegation token is valid before it must be renewed."),
    Key("delegation.token.max.lifetime.ms", LONG, 604_800_000, MEDIUM, valid=at_least(1), use=USED,
        doc="The maximum lifetime of a delegation token."),
    Key("password.encoder.secret", PASSWORD, None, MEDIUM, use=USED,
        doc="Secret that encodes passwords stored in ZooKeeper, those of dynamic configs. Without it they "
            "cannot be changed at run time."),
    Key("password.encoder.old.secret", PASSWORD, None, MEDIUM, use=USED,
        doc="The previous secret, while it is being changed."),
    Key("password.encoder.cipher.algorithm", STRING, "AES/CBC/PKCS5Padding", LOW, use=USED,
        doc="Cipher that encodes passwords stored in ZooKeeper, or AES/GCM/NoPadding."),
    Key("password.encoder.iterations", INT, 4096, LOW, valid=at_least(1024), use=USED,
        doc="Iterations for encoding passwords."),
    Key("password.encoder.key.length", INT, 128, LOW, valid=at_least(8), use=USED,
        doc="Key length for encoding passwords."),
    Key("password.encoder.keyfactory.algorithm", STRING, None, LOW, use=USED,
        doc="Key factory for encoding passwords."),
)
# fmt: on
