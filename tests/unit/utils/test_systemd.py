"""sd_notify and the watchdog, against a real datagram socket."""

import os
import socket

import pytest

from broker.utils.systemd import Notifier, Watchdog, watchdog_interval_ms


@pytest.fixture
def manager(tmp_path):
    """systemd's end of the socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(str(tmp_path / "notify"))
        channel.settimeout(30)
        yield channel


@pytest.fixture
def notifier(manager):
    return Notifier.from_environment({"NOTIFY_SOCKET": manager.getsockname()})


def test_every_message_is_one_datagram_of_lines(manager, notifier):
    notifier.ready("Running\non 9092")
    assert manager.recv(1000) == b"READY=1\nSTATUS=Running on 9092"
    notifier.status("Fine")
    assert manager.recv(1000) == b"STATUS=Fine"
    notifier.busy("Recovering 3/9", 60_000)
    assert manager.recv(1000) == b"STATUS=Recovering 3/9\nEXTEND_TIMEOUT_USEC=60000000"
    notifier.stopping("Bye")
    assert manager.recv(1000) == b"STOPPING=1\nSTATUS=Bye"


def test_an_abstract_socket_works():
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        name = f"landline-test-{os.getpid()}"
        channel.bind(f"\0{name}")
        channel.settimeout(30)
        Notifier(f"@{name}").watchdog()
        assert channel.recv(100) == b"WATCHDOG=1"


def test_without_systemd_nothing_is_sent():
    notifier = Notifier.from_environment({})
    assert not notifier.enabled
    notifier.ready("Running")


def test_a_socket_that_is_gone_is_no_reason_to_fail(tmp_path):
    Notifier(str(tmp_path / "gone")).ready("Running")


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "10000000"}, 5000),
        ({"WATCHDOG_USEC": "10000000", "WATCHDOG_PID": "7"}, 5000),
        ({"WATCHDOG_USEC": "10000000", "WATCHDOG_PID": "8"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_the_watchdog_is_told_at_half_its_time(environment, expected):
    assert watchdog_interval_ms(environment, pid=7) == expected


def test_the_watchdog_speaks_only_while_the_broker_lives(manager, notifier):
    answers = iter([True, False, True])
    dead = []

    def is_alive():
        answer = next(answers, None)
        if answer is None:
            dead.append(True)
            raise RuntimeError("planned")
        return answer

    watchdog = Watchdog(notifier, 20, is_alive)
    watchdog.start()
    assert manager.recv(100) == b"WATCHDOG=1"
    assert manager.recv(100) == b"WATCHDOG=1"
    watchdog.stop()
    manager.setblocking(False)
    with pytest.raises(BlockingIOError):
        manager.recv(100)
