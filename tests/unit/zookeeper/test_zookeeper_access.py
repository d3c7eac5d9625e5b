"""Who may use which znode, and how answers that OpenSSL holds are found."""

from __future__ import annotations

import socket

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, ConnectionDropped
from kazoo.protocol.connection import ConnectionHandler
from kazoo.retry import KazooRetry

from broker.zookeeper.access import ZooKeeperAccess
from broker.zookeeper.acl import Acl
from broker.zookeeper.kazoo_connection import KazooConnection
from broker.zookeeper.kazoo_handler import Handler

CREATOR, READERS = Acl("auth", "", "rwcda"), Acl("world", "anyone", "r")
OPEN = Acl("world", "anyone", "rwcda")


@pytest.mark.parametrize(
    ("path", "acls"),
    [
        ("/brokers/topics/t", (CREATOR, READERS)),
        ("/kafka-acl/Topic/t", (CREATOR, READERS)),
        ("/config/topics/t", (CREATOR, READERS)),
        ("/config/users", (CREATOR,)),
        ("/config/users/alice", (CREATOR,)),
        ("/config/brokers/1", (CREATOR,)),
        ("/delegation_token/tokens/abc", (CREATOR,)),
        ("/delegation_token/token_changes", (CREATOR, READERS)),
        ("/consumers", (OPEN,)),
        ("", (CREATOR, READERS)),
    ],
)
def test_znodes_are_readable_by_all_except_credentials_and_tokens(path: str, acls: tuple[Acl, ...]) -> None:
    assert ZooKeeperAccess(sets_acls=True).acls_of(path) == acls
    assert ZooKeeperAccess().acls_of(path) == (OPEN,)


def test_credentials_are_not_shown() -> None:
    assert "secret" not in repr(ZooKeeperAccess(digest="kafka:secret", sasl=("kafka", "secret")))


class HoldsAnswer(socket.socket):
    """A TLS socket: all bytes of the connection are read, and an answer is left."""

    def pending(self) -> int:
        return 5


def test_an_answer_that_openssl_holds_counts_as_ready() -> None:
    handler = Handler(1.0)
    with HoldsAnswer() as held, socket.socket() as other:
        assert handler.select([held, other], [], [], 10.0) == ([held], [], [])


def test_a_server_lost_during_a_later_log_in_is_not_a_wrong_password(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [None, AuthFailedError("Connection dropped in SASL")]

    def log_in(*_: object) -> None:
        answer = answers.pop(0)
        if answer is not None:
            raise answer

    monkeypatch.setattr(ConnectionHandler, "_authenticate_with_sasl", log_in)
    client = KazooClient(hosts="127.0.0.1:1", connection_retry=KazooRetry())
    connection = KazooConnection(client, ("kafka", "secret"))
    connection._authenticate_with_sasl("zk", 1.0)
    with pytest.raises(ConnectionDropped):
        connection._authenticate_with_sasl("zk", 1.0)
    answers.append(AuthFailedError("wrong password"))
    with pytest.raises(AuthFailedError):
        KazooConnection(client, ("kafka", "secret"))._authenticate_with_sasl("zk", 1.0)
