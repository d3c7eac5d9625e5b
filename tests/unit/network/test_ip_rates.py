"""How many connections an address may open a second (KIP-612)."""

from __future__ import annotations

import socket
import time

from broker.network.connection_quotas import ConnectionQuotas
from broker.network.ip_rates import HeldSockets, IpConnectionRates
from broker.quotas.rate import Windows
from tests.support.network import Api, frame, is_closed, make_server, read_answer


class ManualSeconds:
    """A clock in seconds that stands still."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_without_a_rate_nothing_is_counted() -> None:
    rates = IpConnectionRates()
    assert not rates.enabled
    assert [rates.throttle_ms("10.0.0.1", "PLAINTEXT") for _ in range(100)] == [0] * 100
    assert rates.accept_rates() == {}


def test_a_connection_too_many_does_not_count() -> None:
    clock = ManualSeconds()
    rates = IpConnectionRates(Windows(11, 1_000), clock)
    rates.update("10.0.0.1", 2)
    assert [rates.throttle_ms("10.0.0.1", "PLAINTEXT") for _ in range(20)] == [0] * 20
    assert rates.throttle_ms("10.0.0.1", "PLAINTEXT") == 500
    assert rates.throttle_ms("10.0.0.1", "PLAINTEXT") == 500
    assert rates.throttle_times() == {("PLAINTEXT",): 500}
    assert rates.throttle_ms("10.0.0.2", "PLAINTEXT") == 0
    clock.now_s += 0.5
    assert rates.throttle_ms("10.0.0.1", "PLAINTEXT") == 0
    assert rates.accept_rates() == {("10.0.0.1",): 2}


def test_an_addresss_own_rate_comes_before_that_of_all() -> None:
    rates = IpConnectionRates()
    rates.update(None, 5)
    rates.update("10.0.0.1", 1)
    assert (rates.rate_of("10.0.0.1"), rates.rate_of("10.0.0.2")) == (1, 5)
    rates.update("10.0.0.1", None)
    assert rates.rate_of("10.0.0.1") == 5
    rates.update(None, None)
    assert not rates.enabled


def test_the_throttle_time_is_no_longer_than_a_sample() -> None:
    rates = IpConnectionRates(clock_s=ManualSeconds())
    rates.update(None, 0)
    assert rates.throttle_ms("10.0.0.1", "PLAINTEXT") == 1_000


def test_addresses_without_end_are_not_all_kept() -> None:
    rates = IpConnectionRates(clock_s=ManualSeconds())
    rates.update(None, 1)
    for number in range(10_500):
        rates.throttle_ms(f"a{number}", "PLAINTEXT")
    assert len(rates._used) == 10_000


def test_a_held_connection_is_closed_when_its_time_has_come() -> None:
    clock = ManualSeconds()
    held = HeldSockets(clock)
    near, far = socket.socketpair()
    held.hold(near, 500)
    assert held.close_due() == 0.5
    clock.now_s += 0.5
    assert held.close_due() == 0
    assert is_closed(far)
    far.close()


def test_an_address_above_its_rate_is_let_in_and_then_closed_unheard() -> None:
    api, rates = Api(), IpConnectionRates()
    rates.update("127.0.0.1", 1)
    server = make_server(ConnectionQuotas(100, 100, {}, ip_rates=rates))
    server.bind()
    server.start(api)
    address = ("127.0.0.1", server.bound_ports["PLAINTEXT"])
    try:
        for number in range(10):
            with socket.create_connection(address, 10) as sock:
                sock.sendall(frame(number))
                assert read_answer(sock)[0] == number
        began = time.monotonic()
        with socket.create_connection(address, 10) as refused:
            refused.sendall(frame(99))
            assert is_closed(refused)
        assert 0.3 < time.monotonic() - began < 5
        assert 99 not in api.seen
        with socket.create_connection(address, 10, ("127.0.0.9", 0)) as other:
            other.sendall(frame(100))
            assert read_answer(other)[0] == 100
    finally:
        server.stop()
    assert server.quotas.total == 0
