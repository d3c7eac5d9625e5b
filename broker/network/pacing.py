"""Connections from the same host are not paced by TCP. ADR 40."""

from __future__ import annotations

import socket
from typing import Final

_PACING: Final = b"bbr"  # bbr2 and bbr3 have its name too
_NAME_BYTES: Final = 16  # TCP_CA_NAME_MAX
# Every kernel has it, and every process may use it.
_UNPACED: Final = b"reno"


def stop_within_host(sock: socket.socket, local_host: str, peer_host: str) -> None:
    """Takes another congestion control for an accepted connection if BBR would pace what is sent to a peer on this
    host, where no line is that could be full.

    Raises OSError.
    """
    if local_host != peer_host:
        return
    name = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, _NAME_BYTES)
    if name.startswith(_PACING):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, _UNPACED)
