"""TCP does not pace what is sent to a peer on the same host."""

import socket
from pathlib import Path

import pytest

from broker.network import pacing

HAVE = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()


def control_after(name, local, peer):
    """The congestion control of an accepted connection that had this one."""
    if name not in HAVE:
        pytest.skip(f"this kernel has no {name}")
    with socket.socket() as listener:
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        with socket.create_connection(listener.getsockname()), listener.accept()[0] as accepted:
            pacing.stop_within_host(accepted, local, peer)
            return accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0").decode()


@pytest.mark.parametrize(("name", "after"), [("bbr", "reno"), ("reno", "reno"), ("cubic", "cubic")])
def test_a_peer_on_this_host_is_not_paced(name, after):
    assert control_after(name, "10.0.0.1", "10.0.0.1") == after


def test_a_peer_elsewhere_keeps_what_the_operator_has_set():
    assert control_after("bbr", "10.0.0.1", "10.0.0.2") == "bbr"
