"""Tells of answers that end before all was sent because of the file that they are sent from, and not of the reader."""

from __future__ import annotations

import errno

from broker.network.request_channel import ConnectionInfo
from broker.utils.refusal_log import log_refusal


def tell_if_cut_off(error: OSError, reader: ConnectionInfo) -> None:
    """Logs why a response could not be sent, unless the reader has gone. Its connection is closed, and it would ask
    again and again.
    """
    # No socket says either, but OpenSSL has a number of its own that is EIO's.
    if type(error) is OSError and error.errno in (None, errno.EIO):
        log_refusal(
            "answer_cut_off",
            reader.client_address,
            str(error),
            listener=reader.listener_name,
            action="connection closed",
        )
