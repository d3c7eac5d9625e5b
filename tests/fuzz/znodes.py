"""What other brokers, tools and whoever else wrote into ZooKeeper.

The first byte chooses the znode. What a decoder lets pass must be what its annotations say, and must survive being
written again, for it goes into responses and other znodes.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from broker.config.broker_config import BrokerConfig, check_dynamic
from broker.config.problems import ConfigError
from broker.config.topic_config import check_topic_configs
from broker.quotas.entities import CONNECTION_RATE
from broker.sasl.exchange import LoginFailed
from broker.sasl.scram import ALGORITHMS, ScramExchange
from broker.security import acl_znodes
from broker.security.acls import AccessControlEntry, AclOperation, PatternType, Permission
from broker.server.moves.turn import MoveLease
from broker.server.moves.turn import decode_lease as decode_turn
from broker.server.moves.turn import encode_lease as encode_turn
from broker.server.quotas import QuotaManagers
from broker.server.scram_credentials import ScramCredentials
from broker.server.stopping.stop_permit import Lease, decode_lease, encode_lease
from broker.utils.topic_partition import TopicPartition
from broker.zookeeper import admin_requests, token_store, znodes
from broker.zookeeper.znodes import BadZnodeError
from tests.fuzz.target import Target
from tests.fuzz.typed import misfit
from tests.support.sasl_frames import CREDENTIALS, DECOYS

_TP: Final = TopicPartition("topic", 0)
_DEEP: Final = (b"[" * 3000 + b"]" * 3000, b'{"version":1e999}', b'{"version":1,"id":"\\ud800"}', b"")


@dataclass(frozen=True, slots=True)
class _Znode:
    """A decoder, what writes its value again, and content that it takes."""

    decode: Callable[[bytes], Any]
    encode: Callable[[Any], bytes] | None
    samples: tuple[bytes, ...]
    returns: Any = None

    def read(self, data: bytes) -> None:
        value = self.decode(data)
        hint = self.returns or typing.get_type_hints(_function(self.decode))["return"]
        wrong = misfit(value, hint)
        assert wrong is None, wrong
        if self.encode is not None:
            again = self.decode(self.encode(value))
            assert again == value, f"{value!r} is {again!r} when it has been written again"


def _function(decode: Any) -> Any:
    return decode.func if isinstance(decode, partial) else decode


def _at(decode: Callable[..., Any], path: str) -> Callable[[bytes], Any]:
    return partial(decode, path)


def _entry(host: str = "*") -> AccessControlEntry:
    return AccessControlEntry("User:alice", host, AclOperation.READ, Permission.ALLOW)


_BROKER: Final = (
    b'{"version":5,"host":"h","port":9092,"jmx_port":-1,"timestamp":"1","endpoints":["PLAINTEXT://h:9092"],'
    b'"rack":"a","features":{"f":{"min_version":1,"max_version":2}},'
    b'"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},'
    b'"landline_first_epoch":5,"landline_inter_broker_listener":"PLAINTEXT"}'
)
_TOPIC: Final = (
    b'{"version":3,"topic_id":"AAAAAAAAAAAAAAAAAAAAAQ","partitions":{"0":[1,2]},"adding_replicas":{}}'
)
_STATE: Final = (
    b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1],"leader_recovery_state":1,'
    b'"landline_epochs":{"in_sync":{"1":5},"eligible":{"2":4},"configs":"c"}}'
)
_TOKEN: Final = (
    b'{"version":3,"owner":"User%3Aalice","tokenRequester":"User%3Abob","renewers":["User%3Acarol"],'
    b'"issueTimestamp":1,"maxTimestamp":3,"expiryTimestamp":2,"tokenId":"abc"}'
)
_LEASE: Final = Lease("deploy", 1, 180_000, 5, {"topic": (0, 1)})
_ZNODES: Final[Sequence[_Znode]] = (
    _Znode(znodes.decode_cluster_id, znodes.encode_cluster_id, (b'{"version":"1","id":"x"}',)),
    _Znode(partial(znodes.decode_broker, 1), znodes.encode_broker, (_BROKER,)),
    _Znode(partial(znodes.decode_topic, "topic"), znodes.encode_topic, (_TOPIC,)),
    _Znode(
        lambda data: znodes.decode_state(_TP, data, 0), znodes.encode_state, (_STATE,), znodes.LeaderAndIsr
    ),
    _Znode(znodes.decode_controller, None, (b'{"version":1,"brokerid":1,"timestamp":"1"}',)),
    _Znode(
        _at(znodes.decode_config, "/config/topics/topic"),
        znodes.encode_config,
        (b'{"version":1,"config":{"retention.ms":"1"}}',),
    ),
    _Znode(
        _at(znodes.decode_config_change, "/config/changes/config_change_1"),
        znodes.encode_config_change,
        (
            b'{"version":2,"entity_path":"topics/topic"}',
            b'{"version":1,"entity_type":"topics","entity_name":"a"}',
        ),
    ),
    _Znode(
        _at(znodes.decode_log_dir_event, "/log_dir_event_notification/log_dir_event_1"),
        znodes.encode_log_dir_event,
        (b'{"version":1,"broker":1,"event":1}',),
    ),
    _Znode(znodes.decode_producer_id_block_end, None, (znodes.encode_producer_id_block(1, 0, 999),)),
    _Znode(
        _at(acl_znodes.decode_acls, "/kafka-acl/Topic/t"),
        acl_znodes.encode_acls,
        (acl_znodes.encode_acls([_entry(), _entry("10.0.0.1")]),),
    ),
    _Znode(
        partial(acl_znodes.decode_change, PatternType.LITERAL, "/kafka-acl-changes/acl_changes_1"),
        acl_znodes.encode_change,
        (b"Topic:orders", b"TRANSACTIONAL_ID:a:b"),
    ),
    _Znode(
        partial(acl_znodes.decode_change, PatternType.PREFIXED, "/kafka-acl-extended-changes/acl_changes_1"),
        acl_znodes.encode_change,
        (b'{"version":1,"resourceType":"Topic","name":"orders-","patternType":"PREFIXED"}',),
    ),
    _Znode(
        _at(token_store.decode_token, "/delegation_token/tokens/abc"), token_store.encode_token, (_TOKEN,)
    ),
    _Znode(
        admin_requests.decode_reassignment,
        admin_requests.encode_reassignment,
        (b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2]}]}',),
    ),
    _Znode(
        admin_requests.decode_preferred_election,
        None,
        (b'{"version":1,"partitions":[{"topic":"t","partition":0}]}',),
    ),
    _Znode(
        decode_lease,
        lambda lease: b"" if lease is None else encode_lease(lease),
        (encode_lease(_LEASE), b'{"holder":1}'),
    ),
    _Znode(
        decode_turn,
        lambda lease: b"" if lease is None else encode_turn(lease),
        (encode_turn(MoveLease("run", "drain --broker=1", 120_000, 5)), b'{"holder":1}'),
    ),
)


def _znode(data: bytes) -> None:
    if data:
        _ZNODES[data[0] % len(_ZNODES)].read(data[1:])


def _znode_seeds() -> Sequence[bytes]:
    return [
        bytes([number]) + sample
        for number, znode in enumerate(_ZNODES)
        for sample in (*znode.samples, *(_DEEP if number < 2 else _DEEP[:1]))
    ]


class _IpRates:
    def update(self, address: str | None, rate: int | None) -> None:
        assert address is None or address
        assert rate is None or 0 <= rate < 1 << 31, f"{rate} is no rate of connections"


_STATIC: Final = BrokerConfig.from_properties({"landline.standalone": "true", "log.dirs": "/d"})


def _configs(data: bytes) -> None:
    """The configs of a user, an address, a topic, and a broker: whatever they are, the broker goes on."""
    config = znodes.decode_config("/config/users/alice", data[1:])
    quotas = QuotaManagers(ip_rates=_IpRates())
    match data[0] % 4 if data else 0:
        case 0:
            for path in ("users/alice", "users/<default>/clients/a%2Fb", "clients/c"):
                quotas.apply(path, config)
            _take_credentials(config)
        case 1:
            quotas.apply("ips/192.0.2.1", config)
            quotas.apply("ips/<default>", config)
        case 2:
            good, _ = check_topic_configs(config)
            _STATIC.topic_log_config({name: config[name] for name in good})
        case _:
            values, problems = check_dynamic(config)
            assert set(values) | {problem.key for problem in problems} == set(config)
            _STATIC.with_dynamic({name: config[name] for name in values}).log_config()


def _take_credentials(config: Mapping[str, str]) -> None:
    """A user's credential, whatever it is, lets nobody in that knows nothing."""
    credentials = ScramCredentials()
    credentials.on_entity_config("users/alice", config)
    for mechanism in ALGORITHMS:
        find = partial(credentials.find, mechanism)
        exchange = ScramExchange(mechanism, lambda user, _by_token, find=find: find(user), DECOYS)  # type: ignore[misc]
        try:
            nonce = exchange.answer(b"n,,n=alice,r=abc").decode().split(",")[0]
            exchange.answer(f"c=biws,{nonce},p=AAAA".encode())
        except LoginFailed:
            pass
        assert exchange.identity is None


def _config_seeds() -> Sequence[bytes]:
    credential = next(iter(CREDENTIALS.values()))
    texts = (
        {"producer_byte_rate": "1024", "request_percentage": "0.5", "SCRAM-SHA-256": str(credential)},
        {CONNECTION_RATE: "5"},
        {"retention.ms": "1000", "cleanup.policy": "compact,delete", "segment.bytes": "1048576"},
        {"log.cleaner.threads": "2", "max.connections": "10", "listener.name.x.ssl.keystore.type": "PEM"},
    )
    large = ({"producer_byte_rate": "9" * 400}, {CONNECTION_RATE: "9" * 20})
    return [
        *(bytes([number]) + znodes.encode_config(text) for number, text in enumerate(texts)),
        *(bytes([number]) + znodes.encode_config(text) for number, text in enumerate(large)),
    ]


TARGETS: Sequence[Target] = (
    Target("znode", _znode, (BadZnodeError,), _znode_seeds),
    Target("config-znode", _configs, (BadZnodeError, ConfigError), _config_seeds),
)
