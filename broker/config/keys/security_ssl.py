"""TLS. For now Landline serves only PLAINTEXT listeners, so these keys change nothing yet."""

from __future__ import annotations

from typing import Final

from broker.config.key import BOOLEAN, CLASS, LIST, LOW, MEDIUM, PASSWORD, PER_BROKER, REFUSED, STRING, Key
from broker.config.validators import one_of

# fmt: off
KEYS: Final = (
    Key("ssl.allow.dn.changes", BOOLEAN, False, LOW,
        doc="Whether a reloaded certificate may change its name."),
    Key("ssl.allow.san.changes", BOOLEAN, False, LOW,
        doc="Whether a reloaded certificate may change its alternative names."),
    Key("ssl.cipher.suites", LIST, (), MEDIUM, mode=PER_BROKER,
        doc="Cipher suites offered."),
    Key("ssl.client.auth", STRING, "none", MEDIUM,
        valid=one_of("required", "requested", "none"), mode=PER_BROKER, use=REFUSED,
        doc="Whether clients must present a certificate. Refused when set: clients would not be asked "
            "for one."),
    Key("ssl.enabled.protocols", LIST, ("TLSv1.2", "TLSv1.3"), MEDIUM, mode=PER_BROKER,
        doc="TLS versions offered."),
    Key("ssl.endpoint.identification.algorithm", STRING, "https", LOW, mode=PER_BROKER,
        doc="How a server's host name is verified."),
    Key("ssl.engine.factory.class", CLASS, None, LOW, mode=PER_BROKER,
        doc="Java class that creates TLS engines."),
    Key("ssl.key.password", PASSWORD, None, MEDIUM, mode=PER_BROKER,
        doc="Password of the private key."),
    Key("ssl.keymanager.algorithm", STRING, "SunX509", MEDIUM, mode=PER_BROKER,
        doc="Key manager of the JVM."),
    Key("ssl.keystore.certificate.chain", PASSWORD, None, MEDIUM, mode=PER_BROKER,
        doc="Certificate chain as PEM text."),
    Key("ssl.keystore.key", PASSWORD, None, MEDIUM, mode=PER_BROKER,
        doc="Private key as PEM text."),
    Key("ssl.keystore.location", STRING, None, MEDIUM, mode=PER_BROKER,
        doc="Key store file."),
    Key("ssl.keystore.password", PASSWORD, None, MEDIUM, mode=PER_BROKER,
        doc="Key store password."),
    Key("ssl.keystore.type", STRING, "JKS", MEDIUM, mode=PER_BROKER,
        doc="Key store type."),
    Key("ssl.principal.mapping.rules", STRING, "DEFAULT", LOW,
        doc="Rules that map certificate names to principals."),
    Key("ssl.protocol", STRING, "TLSv1.3", MEDIUM, mode=PER_BROKER,
        doc="TLS version of the context."),
    Key("ssl.provider", STRING, None, MEDIUM, mode=PER_BROKER,
        doc="Java security provider for TLS."),
    Key("ssl.secure.random.implementation", STRING, None, LOW, mode=PER_BROKER,
        doc="Random source for TLS."),
    Key("ssl.trustmanager.algorithm", STRING, "PKIX", MEDIUM, mode=PER_BROKER,
        doc="Trust manager of the JVM."),
    Key("ssl.truststore.certificates", PASSWORD, None, MEDIUM, mode=PER_BROKER,
        doc="Trusted certificates as PEM text."),
    Key("ssl.truststore.location", STRING, None, MEDIUM, mode=PER_BROKER,
        doc="Trust store file."),
    Key("ssl.truststore.password", PASSWORD, None, MEDIUM, mode=PER_BROKER,
        doc="Trust store password."),
    Key("ssl.truststore.type", STRING, "JKS", MEDIUM, mode=PER_BROKER,
        doc="Trust store type."),
)
# fmt: on
