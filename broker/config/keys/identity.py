"""This broker's identity, and its connection to ZooKeeper."""

from __future__ import annotations

from typing import Final

from broker.config.key import BOOLEAN, HIGH, INT, LIST, LOW, MEDIUM, PASSWORD, REFUSED, STRING, USED, Key
from broker.config.validators import VERSION, at_least, list_of, one_of

# fmt: off
KEYS: Final = (
    Key("broker.id", INT, -1, HIGH, use=USED,
        doc="This broker's id. -1 gets one from ZooKeeper, above reserved.broker.max.id."),
    Key("broker.id.generation.enable", BOOLEAN, True, MEDIUM, use=USED,
        doc="Whether a broker without broker.id gets one from ZooKeeper. If false, broker.id must be set."),
    Key("reserved.broker.max.id", INT, 1000, MEDIUM, valid=at_least(0), use=USED,
        doc="The largest value that broker.id may have; generated ids are larger."),
    Key("broker.rack", STRING, None, MEDIUM, use=USED,
        doc="The broker's location (a rack, a zone, a host). Replicas are spread over racks."),
    Key("zookeeper.connect", STRING, None, HIGH, use=USED,
        doc="ZooKeeper servers as `host:port,host:port/chroot`. Required by `landline start`."),
    Key("zookeeper.session.timeout.ms", INT, 18000, HIGH, use=USED,
        doc="How long ZooKeeper hears nothing from a broker before the broker counts as dead."),
    Key("zookeeper.connection.timeout.ms", INT, None, HIGH,
        doc="How long a broker tries to connect before it gives up. Landline keeps trying."),
    Key("zookeeper.max.in.flight.requests", INT, 10, HIGH, valid=at_least(1),
        doc="How many requests are sent to ZooKeeper before the first is answered."),
    Key("zookeeper.set.acl", BOOLEAN, False, HIGH, use=USED,
        doc="Whether only brokers may change the znodes that this broker creates. All may read them, except "
            "credentials, broker configs and tokens. Needs credentials for ZooKeeper: a key store, "
            "landline.zookeeper.digest or landline.zookeeper.sasl.jaas.config."),
    Key("zookeeper.clientCnxnSocket", STRING, None, MEDIUM,
        doc="Java class of ZooKeeper's client socket. zookeeper.ssl.client.enable alone decides about TLS."),
    Key("zookeeper.ssl.client.enable", BOOLEAN, False, MEDIUM, use=USED,
        doc="Whether connections to ZooKeeper use TLS."),
    Key("zookeeper.ssl.cipher.suites", LIST, None, LOW, use=USED,
        doc="TLS to ZooKeeper: cipher suites, as ssl.cipher.suites."),
    Key("zookeeper.ssl.crl.enable", BOOLEAN, False, LOW, use=REFUSED,
        doc="TLS to ZooKeeper: check certificate revocation lists. Refused when set."),
    Key("zookeeper.ssl.enabled.protocols", LIST, None, LOW, use=USED, valid=list_of("TLSv1.2", "TLSv1.3"),
        doc="TLS to ZooKeeper: versions offered. If unset, zookeeper.ssl.protocol."),
    Key("zookeeper.ssl.endpoint.identification.algorithm", STRING, "HTTPS", LOW, use=USED,
        valid=one_of("https", "", ignore_case=True),
        doc="TLS to ZooKeeper: whether the server's certificate must be for the host in zookeeper.connect. "
            "`HTTPS` checks, an empty value does not."),
    Key("zookeeper.ssl.keystore.location", STRING, None, MEDIUM, use=USED,
        doc="TLS to ZooKeeper: key store file, PEM or PKCS#12. It is read again for each new connection."),
    Key("zookeeper.ssl.keystore.password", PASSWORD, None, MEDIUM, use=USED,
        doc="TLS to ZooKeeper: password of the key store, or of the key in a PEM file."),
    Key("zookeeper.ssl.keystore.type", STRING, None, MEDIUM, use=USED,
        valid=one_of("pem", "pkcs12", "jks", ignore_case=True),
        doc="TLS to ZooKeeper: key store type, as ssl.keystore.type. If unset, by the file's name: .pem or .p12."),
    Key("zookeeper.ssl.ocsp.enable", BOOLEAN, False, LOW, use=REFUSED,
        doc="TLS to ZooKeeper: check revocation by OCSP. Refused when set."),
    Key("zookeeper.ssl.protocol", STRING, "TLSv1.2", LOW, use=USED, valid=one_of("TLSv1.2", "TLSv1.3", "TLS"),
        doc="TLS to ZooKeeper: the version, unless zookeeper.ssl.enabled.protocols has some. `TLS`: both."),
    Key("landline.zookeeper.digest", PASSWORD, None, MEDIUM, use=USED,
        doc="`user:password` for ZooKeeper's authentication scheme `digest`. Kafka has no such key."),
    Key("landline.zookeeper.sasl.jaas.config", PASSWORD, None, MEDIUM, use=USED,
        doc="The login module of the `Client` section of Kafka's JAAS file, for SASL DIGEST-MD5: "
            '`org.apache.zookeeper.server.auth.DigestLoginModule required username="…" password="…";`. Needs '
            "the extra landline[zookeeper-sasl]."),
    Key("landline.zookeeper.jute.maxbuffer", INT, 0xFFFFF, LOW, valid=at_least(1024), use=USED,
        doc="The ZooKeeper servers' jute.maxbuffer: the largest request in bytes, and so about the largest znode. What "
            "is larger is refused with POLICY_VIOLATION: a server would close the connection. Kafka has no such key."),
    Key("zookeeper.ssl.truststore.location", STRING, None, MEDIUM, use=USED,
        doc="TLS to ZooKeeper: trust store file, PEM or PKCS#12. It is read again for each new connection. If "
            "unset, the CAs of the system."),
    Key("zookeeper.ssl.truststore.password", PASSWORD, None, MEDIUM, use=USED,
        doc="TLS to ZooKeeper: password of the trust store."),
    Key("zookeeper.ssl.truststore.type", STRING, None, MEDIUM, use=USED,
        valid=one_of("pem", "pkcs12", "jks", ignore_case=True),
        doc="TLS to ZooKeeper: trust store type, as ssl.truststore.type. If unset, by the file's name: .pem or .p12."),
    Key("zookeeper.metadata.migration.enable", BOOLEAN, False, HIGH, use=REFUSED,
        doc="Migration of the metadata from ZooKeeper to KRaft. Landline does not support it."),
    Key("zookeeper.metadata.migration.min.batch.size", INT, 200, MEDIUM, valid=at_least(1),
        doc="Batch size of the migration to KRaft."),
    Key("inter.broker.protocol.version", STRING, "3.9-IV0", MEDIUM, valid=VERSION, use=USED,
        doc="The version of the protocol between brokers. Landline uses 3.9's. Older versions are accepted "
            "down to 2.7 and do not change what is sent."),
)
# fmt: on
