"""TLS. A listener's own values are those of ``listener.name.<listener>.<key>``."""

from __future__ import annotations

from typing import Final

from broker.config.key import (
    BOOLEAN,
    CLASS,
    LIST,
    LOW,
    MEDIUM,
    PASSWORD,
    PER_BROKER,
    REFUSED,
    STRING,
    USED,
    Key,
)
from broker.config.validators import list_of, one_of

_NO_JVM: Final = "Landline has no JVM, and OpenSSL no such choice."

# fmt: off
KEYS: Final = (
    Key("ssl.allow.dn.changes", BOOLEAN, False, LOW, use=USED,
        doc="Whether a reloaded certificate may have another subject than the one before."),
    Key("ssl.allow.san.changes", BOOLEAN, False, LOW, use=USED,
        doc="Whether a reloaded certificate may lack alternative names of the one before."),
    Key("ssl.cipher.suites", LIST, (), MEDIUM, mode=PER_BROKER, use=USED,
        doc="Cipher suites offered, by their IANA names, as Java has them, or OpenSSL's; if empty, OpenSSL's "
            "default. The three suites of TLS 1.3 are offered together or not at all."),
    Key("ssl.client.auth", STRING, "none", MEDIUM,
        valid=one_of("required", "requested", "none"), mode=PER_BROKER, use=USED,
        doc="Whether clients of SSL listeners must present a certificate of a CA in the trust store. Its "
            "subject is their principal (ssl.principal.mapping.rules); without one it is User:ANONYMOUS."),
    Key("ssl.enabled.protocols", LIST, ("TLSv1.2", "TLSv1.3"), MEDIUM, mode=PER_BROKER, use=USED,
        valid=list_of("TLSv1.2", "TLSv1.3"),
        doc="TLS versions offered. Older ones are refused."),
    Key("ssl.endpoint.identification.algorithm", STRING, "https", LOW, mode=PER_BROKER, use=USED,
        valid=one_of("https", "", ignore_case=True),
        doc="Whether a broker that connects to another one checks that the certificate is for the advertised "
            "host: `https` checks, an empty value does not."),
    Key("ssl.engine.factory.class", CLASS, None, LOW, mode=PER_BROKER, use=REFUSED,
        doc="Java class that creates TLS engines. Refused when set."),
    Key("ssl.key.password", PASSWORD, None, MEDIUM, mode=PER_BROKER, use=USED,
        doc="Password of an encrypted private key in a PEM file or in ssl.keystore.key."),
    Key("ssl.keymanager.algorithm", STRING, "SunX509", MEDIUM, mode=PER_BROKER,
        doc=f"Key manager of the JVM. {_NO_JVM}"),
    Key("ssl.keystore.certificate.chain", PASSWORD, None, MEDIUM, mode=PER_BROKER, use=USED,
        doc="Certificate chain as PEM text, the broker's own first. With ssl.keystore.key, instead of a file."),
    Key("ssl.keystore.key", PASSWORD, None, MEDIUM, mode=PER_BROKER, use=USED,
        doc="Private key as PEM text."),
    Key("ssl.keystore.location", STRING, None, MEDIUM, mode=PER_BROKER, use=USED,
        doc="Key store file: the private key and its certificates, the broker's own first. A changed file is "
            "used within 10 s for new connections, if it is good."),
    Key("ssl.keystore.password", PASSWORD, None, MEDIUM, mode=PER_BROKER, use=USED,
        doc="Key store password, of a PKCS#12 file."),
    Key("ssl.keystore.type", STRING, "JKS", MEDIUM, mode=PER_BROKER, use=USED,
        valid=one_of("pem", "pkcs12", "jks", ignore_case=True),
        doc="Key store type: PEM or PKCS12. JKS, Kafka's default, takes a PKCS#12 file, as Java does; a file in "
            "Java's own format is refused with the command that converts it."),
    Key("ssl.principal.mapping.rules", STRING, "DEFAULT", LOW, use=USED,
        doc="Rules that map the subject of a client's certificate to the name of its principal: "
            "`RULE:pattern/replacement/[LU]` and `DEFAULT`, separated by commas (KIP-371)."),
    Key("ssl.protocol", STRING, "TLSv1.3", MEDIUM, mode=PER_BROKER,
        valid=one_of("TLS", "TLSv1.2", "TLSv1.3"),
        doc="TLS version of Java's SSLContext. Here ssl.enabled.protocols decides alone."),
    Key("ssl.provider", STRING, None, MEDIUM, mode=PER_BROKER,
        doc=f"Java security provider for TLS. {_NO_JVM}"),
    Key("ssl.secure.random.implementation", STRING, None, LOW, mode=PER_BROKER,
        doc="Java's random source for TLS. OpenSSL has its own."),
    Key("ssl.trustmanager.algorithm", STRING, "PKIX", MEDIUM, mode=PER_BROKER,
        doc=f"Trust manager of the JVM. {_NO_JVM}"),
    Key("ssl.truststore.certificates", PASSWORD, None, MEDIUM, mode=PER_BROKER, use=USED,
        doc="Trusted certificates as PEM text, instead of a file."),
    Key("ssl.truststore.location", STRING, None, MEDIUM, mode=PER_BROKER, use=USED,
        doc="Trust store file: the certificates of the CAs whose clients and brokers are trusted. If unset, those "
            "of the system. A changed file is used within 10 s for new connections."),
    Key("ssl.truststore.password", PASSWORD, None, MEDIUM, mode=PER_BROKER, use=USED,
        doc="Trust store password, of a PKCS#12 file."),
    Key("ssl.truststore.type", STRING, "JKS", MEDIUM, mode=PER_BROKER, use=USED,
        valid=one_of("pem", "pkcs12", "jks", ignore_case=True),
        doc="Trust store type, as ssl.keystore.type."),
    Key("landline.ssl.kernel.enable", BOOLEAN, False, LOW, mode=PER_BROKER, use=USED,
        doc="Whether the kernel encrypts what is sent (kTLS), where it and OpenSSL can. Records then go out by "
            "sendfile, as without TLS. Needs the kernel module `tls`."),
)
# fmt: on
