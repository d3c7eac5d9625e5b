"""Brokers of both kinds with the same security: SASL, Kafka's AclAuthorizer, and users whom all tests know.

Each has a PLAINTEXT listener for the rig, whose clients may do nothing, and a SASL listener for everybody else
and for brokers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors
from broker.sasl.scram import ALGORITHMS, salted_password
from broker.sasl.scram_client import ScramTokens
from broker.security.acls import AclOperation, PatternType, Permission, ResourceType
from broker.zookeeper.client import ZooKeeperStore
from rig.brokers import HOST, BrokerProcess, unused_port
from rig.jvm import SHORT_LIVED_JVM
from rig.kafka_broker import KafkaBroker
from rig.landline_broker import LandlineBroker
from rig.raw_client import RawClient
from rig.wait import wait_until
from rig.zookeeper import ZooKeeperServer
from tests.support.peers import PeerKind

MODULES = "org.apache.kafka.common.security"
AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"
ADMIN, GUEST, OWNER, BROKER = "admin", "guest", "owner", "broker"
PASSWORDS = {name: f"{name}-secret" for name in (ADMIN, GUEST, OWNER, BROKER)}
SHA_256, SHA_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
SALT, ITERATIONS = b"0123456789abcdef", 4096
TINY_JVM = ("-Xmx256m", *SHORT_LIVED_JVM)
SESSION_MS = 30_000
START_TIMEOUT_S = 240.0
T = TypeVar("T")


class Acl(NamedTuple):
    """An ACL of the guest's, or of another principal's."""

    resource_type: ResourceType
    resource_name: str
    operation: AclOperation
    resource_pattern_type: PatternType = PatternType.LITERAL
    permission_type: Permission = Permission.ALLOW
    principal: str = f"User:{GUEST}"
    host: str = "*"


def jaas(module: str, users: Mapping[str, str] | None = None, login: str = BROKER) -> str:
    """The login module ``plain.Plain`` or ``scram.Scram``: this broker's own login, and PLAIN's users."""
    options = {"username": login, "password": PASSWORDS[login]}
    options |= {f"user_{name}": password for name, password in (users or {}).items()}
    written = " ".join(f'{key}="{value}"' for key, value in options.items())
    return f"{MODULES}.{module}LoginModule required {written};"


def security(port: int, sasl_port: int) -> dict[str, object]:
    """The properties that both kinds are given."""
    listener = "listener.name.sasl_plaintext"
    return {
        "listeners": f"PLAINTEXT://{HOST}:{port},SASL_PLAINTEXT://{HOST}:{sasl_port}",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        f"{listener}.plain.sasl.jaas.config": jaas("plain.Plain", PASSWORDS),
        f"{listener}.scram-sha-256.sasl.jaas.config": jaas("scram.Scram"),
        f"{listener}.scram-sha-512.sasl.jaas.config": jaas("scram.Scram"),
        "authorizer.class.name": AUTHORIZER,
        "super.users": f"User:{ADMIN};User:{BROKER}",
        "delegation.token.secret.key": "signs-tokens",
    }


@dataclass(frozen=True)
class SecuredBroker:
    """A broker with a SASL listener."""

    kind: PeerKind
    process: BrokerProcess
    sasl_port: int
    zk_connect: str

    def connect(self, from_host: str = "") -> RawClient:
        """A connection to the SASL listener that has not authenticated."""
        return RawClient(HOST, self.sasl_port, from_host=from_host)

    @contextmanager
    def login(self, user: str, from_host: str = "") -> Iterator[RawClient]:
        """A connection of this user, authenticated by PLAIN."""
        with self.connect(from_host) as client:
            log_in(client, user, PASSWORDS[user])
            yield client

    def confluent(self, user: str, mechanism: str = "PLAIN", password: str = "") -> dict[str, Any]:
        """Settings of librdkafka's clients."""
        return {
            "bootstrap.servers": f"{HOST}:{self.sasl_port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password or PASSWORDS[user],
        }


class Pair(NamedTuple):
    """A broker of each kind."""

    kafka: SecuredBroker
    landline: SecuredBroker

    def each(self, ask: Callable[[SecuredBroker], T]) -> tuple[T, T]:
        """What it returns for Kafka, and for Landline."""
        return ask(self.kafka), ask(self.landline)


def log_in(client: RawClient, user: str, password: str) -> None:
    """Authenticates by PLAIN."""
    shaken = client.ask(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
    assert shaken.error_code == Errors.NONE
    token = f"\0{user}\0{password}".encode()
    done = client.ask(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": token})
    assert done.error_code == Errors.NONE, done.error_message


def secured_broker(
    kind: PeerKind, broker_id: int, zk_connect: str, root: Path, config: Mapping[str, object] | None = None
) -> SecuredBroker:
    """A broker of the kind, not started."""
    port, sasl_port = unused_port(), unused_port()
    settings = {**security(port, sasl_port), **(config or {})}
    log_dir = root / f"{kind.value}-{broker_id}"
    process: BrokerProcess
    if kind is PeerKind.KAFKA:
        process = KafkaBroker(broker_id, zk_connect, log_dir, settings, jvm=TINY_JVM, port=port)
    else:
        process = LandlineBroker(broker_id, zk_connect, log_dir, settings, port=port)
    process.start_timeout_s = START_TIMEOUT_S
    return SecuredBroker(kind, process, sasl_port, zk_connect)


@contextmanager
def secured_pair(
    zookeeper: ZooKeeperServer,
    root: Path,
    config: Mapping[str, object] | None = None,
    *,
    in_one_cluster: bool = False,
) -> Iterator[Pair]:
    """A broker of each kind that serves, each in a cluster of its own, or both in one."""
    first = zookeeper.chroot("secured")
    chroots = (first, first if in_one_cluster else zookeeper.chroot("secured"))
    pair = Pair(
        secured_broker(PeerKind.KAFKA, 1, chroots[0], root, config),
        secured_broker(PeerKind.LANDLINE, 2, chroots[1], root, config),
    )
    with ExitStack() as stack:
        for each in pair:
            stack.callback(each.process.kill)
            each.process.start_nowait()
        for each in pair:
            each.process.wait_ready()
        yield pair
        assert "traceback=" not in pair.landline.process.log_text()


@contextmanager
def znodes_of(zk_connect: str) -> Iterator[ZooKeeperStore]:
    """A connection to the brokers' ZooKeeper."""
    store = ZooKeeperStore(zk_connect, SESSION_MS)
    store.connect(SESSION_MS, threading.Event())
    with closing(store):
        yield store


def create_acls(client: RawClient, acls: Sequence[Acl]) -> list[Errors]:
    """The result of each."""
    answer = client.ask(ApiKey.CREATE_ACLS, 3, {"creations": [acl._asdict() for acl in acls]})
    return [Errors(result.error_code) for result in answer.results]


def delete_acls(client: RawClient, principal: str | None = f"User:{GUEST}") -> int:
    """Deletes all ACLs of the principal; returns how many there were."""
    wanted = {
        "resource_type_filter": ResourceType.ANY,
        "resource_name_filter": None,
        "pattern_type_filter": PatternType.ANY,
        "principal_filter": principal,
        "host_filter": None,
        "operation": AclOperation.ANY,
        "permission_type": Permission.ANY,
    }
    (result,) = client.ask(ApiKey.DELETE_ACLS, 3, {"filters": [wanted]}).filter_results
    assert result.error_code == Errors.NONE, result.error_message
    return len(result.matching_acls)


def set_scram_user(broker: SecuredBroker, user: str, mechanism: str = SHA_256) -> None:
    """By the request that ``kafka-configs.sh`` sends; the same salt and iterations each time."""
    made = {
        "name": user,
        "mechanism": ALGORITHMS[mechanism].number,
        "iterations": ITERATIONS,
        "salt": SALT,
        "salted_password": salted_password(mechanism, PASSWORDS[user], SALT, ITERATIONS),
    }
    with broker.login(ADMIN) as admin:
        asked = {"deletions": [], "upsertions": [made]}
        (result,) = admin.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, asked).results
    assert result.error_code == Errors.NONE, result.error_message


def scram_login(client: RawClient, tokens: ScramTokens, mechanism: str = SHA_256) -> Errors:
    """Authenticates by SCRAM; returns the error of the last answer."""
    client.ask(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": mechanism})
    challenge = b""
    while (token := tokens.next(challenge)) is not None:
        answer = client.ask(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": token})
        if answer.error_code != Errors.NONE:
            return Errors(answer.error_code)
        challenge = answer.auth_bytes
    return Errors.NONE


def await_scram_login(broker: SecuredBroker, user: str, mechanism: str = SHA_256) -> None:
    """Waits until the broker knows the user: it takes up changes after they were answered."""

    def is_known() -> bool:
        with broker.connect() as client:
            tokens = ScramTokens(mechanism, user, PASSWORDS[user])
            return scram_login(client, tokens, mechanism) is Errors.NONE

    wait_until(is_known, 60, what=f"{broker.kind.value} knows {user}'s {mechanism}")
