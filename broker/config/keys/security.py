"""Who may do what, and secrets. Authorization is accepted, not enforced, for now."""

from __future__ import annotations

from typing import Final

from broker.config.key import CLASS, INT, LONG, LOW, MEDIUM, PASSWORD, PER_BROKER, REFUSED, STRING, Key
from broker.config.validators import at_least

# fmt: off
KEYS: Final = (
    Key("authorizer.class.name", STRING, "", LOW, use=REFUSED,
        doc="Java class of the authorizer. Refused when set: records would be open to everybody behind a "
            "setting that says otherwise."),
    Key("principal.builder.class", CLASS,
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder", MEDIUM,
        mode=PER_BROKER, use=REFUSED,
        doc="Java class that names a connection's principal. Refused when set: connections have none."),
    Key("security.providers", STRING, None, LOW,
        doc="Java security providers."),
    Key("delegation.token.secret.key", PASSWORD, None, MEDIUM, use=REFUSED,
        doc="Secret that signs delegation tokens. Refused when set: there are none."),
    Key("delegation.token.master.key", PASSWORD, None, MEDIUM, use=REFUSED,
        doc="Older name of delegation.token.secret.key."),
    Key("delegation.token.expiry.check.interval.ms", LONG, 3_600_000, LOW, valid=at_least(1),
        doc="How often expired delegation tokens are looked for."),
    Key("delegation.token.expiry.time.ms", LONG, 86_400_000, MEDIUM, valid=at_least(1),
        doc="A delegation token's life until renewed."),
    Key("delegation.token.max.lifetime.ms", LONG, 604_800_000, MEDIUM, valid=at_least(1),
        doc="A delegation token's longest life."),
    Key("password.encoder.secret", PASSWORD, None, MEDIUM,
        doc="Secret that encodes passwords kept in ZooKeeper."),
    Key("password.encoder.old.secret", PASSWORD, None, MEDIUM,
        doc="The secret before it was changed."),
    Key("password.encoder.cipher.algorithm", STRING, "AES/CBC/PKCS5Padding", LOW,
        doc="Cipher that encodes passwords kept in ZooKeeper."),
    Key("password.encoder.iterations", INT, 4096, LOW, valid=at_least(1024),
        doc="Iterations for encoding passwords."),
    Key("password.encoder.key.length", INT, 128, LOW, valid=at_least(8),
        doc="Key length for encoding passwords."),
    Key("password.encoder.keyfactory.algorithm", STRING, None, LOW,
        doc="Key factory for encoding passwords."),
)
# fmt: on
