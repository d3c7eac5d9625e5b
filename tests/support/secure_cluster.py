"""Two brokers, Landline's or Kafka's, that authenticate clients and each other by SASL over TLS, with ACLs.

``admin`` is a super user. ``alice`` may write, read and create topics that begin with ``alice-``, in groups
that begin so. ``bob`` may log in, and nothing else. All three have a password for SCRAM and PLAIN, and can get
an OAUTHBEARER token. A second listener knows ``alice`` and ``bob`` by their certificates.
"""

from __future__ import annotations

import base64
import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic
from joserfc import jwk, jwt

from broker.protocol.api_keys import ApiKey
from rig.brokers import HOST, BrokerProcess, Cluster, unused_port
from rig.kafka_broker import SMALL_JVM, KafkaBroker
from rig.landline_broker import COMMAND, REPOSITORY, LandlineBroker
from rig.raw_client import RawClient
from rig.wait import wait_until
from tests.support.certificates import Authority
from tests.support.kafka_jvm import OAUTH_URLS
from tests.support.peers import PeerKind

PASSWORDS = {"broker": "broker-secret", "admin": "admin-secret", "alice": "alice-secret", "bob": "bob-secret"}
WRONG = "not-the-password"
MODULES = "org.apache.kafka.common.security"
VALIDATOR = f"{MODULES}.oauthbearer.OAuthBearerValidatorCallbackHandler"
OAUTH_MODULE = f"{MODULES}.oauthbearer.OAuthBearerLoginModule required;"
KEY_ID = "k"


class SecureCluster:
    """The running brokers, and what their users have: passwords, tokens, certificates."""

    def __init__(self, kind: PeerKind, zk_connect: str, root: Path) -> None:
        self.root = root
        self._kind = kind
        self._zk_connect = zk_connect
        self._authority = Authority()
        self._key = jwk.ECKey.generate_key("P-256", {"kid": KEY_ID})
        self._ports = {(name, broker): unused_port() for name in ("SASL_SSL", "SSL") for broker in (1, 2)}
        self.ca = self._authority.write_pem(root / "ca.pem")
        for user in ("alice", "bob"):
            self._authority.issue(user, ()).write_pem(self.certificate(user))
        (root / "jwks.json").write_text(json.dumps({"keys": [self._key.as_dict(private=False)]}))
        self.brokers = Cluster({broker: self._broker(broker) for broker in (1, 2)}, zk_connect)

    @property
    def bootstrap(self) -> str:
        """The listeners with SASL_SSL."""
        return self._addresses("SASL_SSL")

    @property
    def mutual_bootstrap(self) -> str:
        """The listeners that ask for a certificate."""
        return self._addresses("SSL")

    def certificate(self, user: str) -> Path:
        """A PEM file: the user's key and certificate."""
        return self.root / f"{user}.pem"

    def token(self, user: str, valid_s: int = 3600) -> str:
        """A signed token for OAUTHBEARER."""
        now_s = int(time.time())
        claims = {"sub": user, "iat": now_s, "exp": now_s + valid_s}
        return str(jwt.encode({"alg": "ES256", "kid": KEY_ID}, claims, self._key))

    def forged_token(self, user: str) -> str:
        """A token whose signature is another one's."""
        head, claims, _ = self.token(user).split(".")
        signature = base64.urlsafe_b64encode(bytes(64)).rstrip(b"=").decode()
        return f"{head}.{claims}.{signature}"

    def prepare(self) -> None:
        """Gives the brokers' and the users' SCRAM credentials, before the first start."""
        for user, password in PASSWORDS.items():
            argv = [*COMMAND, "credentials", "set", "--zookeeper", self._zk_connect, "--user", user]
            subprocess.run(argv, cwd=REPOSITORY, input=f"{password}\n", text=True, check=True)

    def librdkafka(self, user: str, password: str | None = None) -> dict[str, object]:
        """The settings of a client of the rig: the tests take theirs from the documentation."""
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.ca),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": password or PASSWORDS[user],
        }

    def _addresses(self, listener: str) -> str:
        return ",".join(f"{HOST}:{self._ports[listener, broker]}" for broker in (1, 2))

    def _broker(self, broker_id: int) -> BrokerProcess:
        plain = unused_port()
        own = self._authority.issue(f"broker-{broker_id}").write_pem(self.root / f"broker-{broker_id}.pem")
        users = " ".join(f'user_{user}="{password}"' for user, password in PASSWORDS.items())
        scram = (
            f'{MODULES}.scram.ScramLoginModule required username="broker" password="{PASSWORDS["broker"]}";'
        )
        jwks = (self.root / "jwks.json").as_uri()
        protocols = {
            "PLAINTEXT": plain,
            **{name: self._ports[name, broker_id] for name in ("SASL_SSL", "SSL")},
        }
        config: dict[str, object] = {
            # PLAINTEXT is for the rig, which asks there what a broker knows.
            "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in protocols.items()),
            "security.inter.broker.protocol": "SASL_SSL",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN,OAUTHBEARER",
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": scram,
            "listener.name.sasl_ssl.plain.sasl.jaas.config": f"{MODULES}.plain.PlainLoginModule required {users};",
            "listener.name.sasl_ssl.oauthbearer.sasl.jaas.config": OAUTH_MODULE,
            "listener.name.sasl_ssl.oauthbearer.sasl.server.callback.handler.class": VALIDATOR,
            "sasl.oauthbearer.jwks.endpoint.url": jwks,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": own,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.ca,
            "listener.name.ssl.ssl.client.auth": "required",
            "ssl.principal.mapping.rules": "RULE:^CN=([a-z]+),.*$/$1/",
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": "User:broker;User:admin;User:ANONYMOUS",
            "delegation.token.secret.key": "signs-tokens",
            "offsets.topic.replication.factor": 2,
        }
        data = self.root / f"data-{broker_id}"
        if self._kind is PeerKind.LANDLINE:
            return LandlineBroker(broker_id, self._zk_connect, data, config, port=plain)
        jvm = (*SMALL_JVM, f"-D{OAUTH_URLS}={jwks}")
        return KafkaBroker(broker_id, self._zk_connect, data, config, jvm=jvm, port=plain)


@contextmanager
def secure_cluster(kind: PeerKind, zk_connect: str, root: Path) -> Iterator[SecureCluster]:
    """Starts it, with alice's ACLs; no secret may be in the brokers' logs at the end."""
    made = SecureCluster(kind, zk_connect, root)
    made.prepare()
    with made.brokers:
        grant(made, "alice")
        yield made
        for broker in made.brokers.brokers.values():
            log = broker.log_text()
            assert "traceback=" not in log
            assert not [secret for secret in (*PASSWORDS.values(), WRONG, "signs-tokens") if secret in log]


def create_topics(cluster: SecureCluster, *topics: str) -> None:
    """Creates topics with two partitions on both brokers, as the administrator."""
    admin = AdminClient(cluster.librdkafka("admin"))
    for created in admin.create_topics([NewTopic(topic, 2, 2) for topic in topics]).values():
        created.result(30)

    def lead() -> bool:
        found = admin.list_topics(timeout=30).topics
        return all(each.leader >= 0 for topic in topics for each in found[topic].partitions.values())

    wait_until(lead, what="every partition has a leader")


def grant(cluster: SecureCluster, user: str) -> None:
    """What a user needs for topics and groups that begin with the user's name and a dash."""
    needed = {
        ResourceType.TOPIC: (AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE),
        ResourceType.GROUP: (AclOperation.READ,),
    }
    admin = AdminClient(cluster.librdkafka("admin"))
    acls = [
        AclBinding(
            kind,
            f"{user}-",
            ResourcePatternType.PREFIXED,
            f"User:{user}",
            "*",
            operation,
            AclPermissionType.ALLOW,
        )
        for kind, operations in needed.items()
        for operation in operations
    ]
    for future in admin.create_acls(acls).values():
        future.result(30)
    await_acls(cluster, f"User:{user}", len(acls))


def await_acls(cluster: SecureCluster, principal: str, count: int) -> None:
    """Waits until each broker knows of so many ACLs of the principal."""
    anything = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
    filters = {"resource_name_filter": None, "principal_filter": principal, "host_filter": None}

    def known(port: int) -> bool:
        with RawClient(HOST, port) as client:
            answer = client.ask(ApiKey.DESCRIBE_ACLS, 3, anything | filters)
        return sum(len(resource.acls) for resource in answer.resources) == count

    ports = [broker.port for broker in cluster.brokers.brokers.values()]
    wait_until(lambda: all(map(known, ports)), what=f"each broker has {count} ACLs of {principal}")
