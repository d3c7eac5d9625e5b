"""A channel to another broker logs in by SASL, again before its session ends, and tells why it cannot."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker.network.connection_quotas import ConnectionQuotas
from broker.network.request_channel import Request, Verdict
from broker.network.sasl import SaslListeners
from broker.network.socket_server import SocketServer
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors
from broker.replication.broker_channel import BrokerChannel, ChannelError
from broker.sasl.client import ClientLogin
from broker.utils.timer import Timer
from rig.wait import wait_until
from tests.support.network import make_server
from tests.support.sasl_frames import SCRAM, make_offer

SESSION_MS = 2_000


def serve(request: Request) -> Verdict:
    request.respond_fields({"throttle_time": 0, "error_code": Errors.NONE, "groups": []})
    return Verdict.SERVED


@pytest.fixture
def sasl() -> Iterator[SaslListeners]:
    timer = Timer("test")
    offers = {"SASL": make_offer(SESSION_MS)}
    yield SaslListeners(offers, timer.add, failure_delay_ms=10, max_newcomers=9, max_login_ms=5_000)
    timer.stop()


@pytest.fixture
def server(sasl: SaslListeners) -> Iterator[SocketServer]:
    server = make_server(ConnectionQuotas(100, 100, {}), listeners=("SASL",))
    server.bind()
    server.start(serve, sasl=sasl)
    yield server
    server.stop()


def channel(server: SocketServer, login: ClientLogin | None) -> BrokerChannel:
    port = server.bound_ports["SASL"]
    return BrokerChannel("127.0.0.1", port, client_id="test", request_timeout_ms=5_000, login=login)


def ask(channel: BrokerChannel) -> int:
    return int(channel.request(ApiKey.LIST_GROUPS, 3, {}).error_code)


@pytest.mark.parametrize("mechanism", ["PLAIN", SCRAM])
def test_it_logs_in_once_and_then_asks(server: SocketServer, sasl: SaslListeners, mechanism: str) -> None:
    one = channel(server, ClientLogin(mechanism, "alice", "alice-secret"))
    assert [ask(one), ask(one)] == [0, 0]
    assert (sasl.stats.successes, sasl.stats.re_successes) == (1, 0)
    one.close()


def test_it_logs_in_again_on_the_same_connection_before_the_session_ends(
    server: SocketServer, sasl: SaslListeners
) -> None:
    one = channel(server, ClientLogin("PLAIN", "alice", "alice-secret"))
    answers = set()

    def is_renewed_twice() -> bool:
        answers.add(ask(one))
        return sasl.stats.re_successes >= 2

    wait_until(is_renewed_twice, what="the login is renewed twice")
    assert answers == {Errors.NONE}
    assert sasl.stats.successes == 1
    assert sasl.stats.expired == 0
    one.close()


def test_a_lent_connection_is_logged_in(server: SocketServer, sasl: SaslListeners) -> None:
    one = channel(server, ClientLogin(SCRAM, "bob", "bob-secret"))
    with one.lent():
        assert sasl.stats.successes == 1
    assert not one.is_login_due
    assert ask(one) == 0
    one.close()


@pytest.mark.parametrize(
    ("login", "why"),
    [
        (ClientLogin("PLAIN", "alice", "wrong"), "SASL_AUTHENTICATION_FAILED for alice"),
        (ClientLogin(SCRAM, "alice", "wrong"), "SASL_AUTHENTICATION_FAILED for alice"),
        (ClientLogin("SCRAM-SHA-512", "alice", "x"), "it offers PLAIN, SCRAM-SHA-256"),
    ],
)
def test_a_refused_login_is_an_error_of_the_channel_without_the_password(
    server: SocketServer, login: ClientLogin, why: str
) -> None:
    one = channel(server, login)
    for work in (one.connect, lambda: ask(one)):
        with pytest.raises(ChannelError, match=why) as refusal:
            work()
        assert login.password not in str(refusal.value).replace(login.mechanism, "")
    assert "wrong" not in repr(login)
    one.close()


def test_without_a_login_the_broker_hangs_up(server: SocketServer) -> None:
    one = channel(server, None)
    with pytest.raises(ChannelError, match="closed the connection"):
        ask(one)
    one.close()
