"""What a client is answered whose request ZooKeeper did not carry out.

While a connection is lost, Kafka's handlers wait for it without a bound, and their clients time out. Landline's wait
for the session timeout (:mod:`broker.zookeeper.client`), and then answer just that: the client may try again.
"""

from __future__ import annotations

import time
from typing import Final

import structlog

from broker.protocol.errors import Errors, KafkaError
from broker.utils.line_budget import LineBudget
from broker.zookeeper.store import ConnectionLossError, SessionExpiredError, StoreError, TooLargeError

_log = structlog.get_logger(__name__)
_AWAY: Final = (ConnectionLossError, SessionExpiredError)
_lines = LineBudget(lambda: time.monotonic_ns() // 1_000_000, per_second=1, at_once=10)


def is_away(error: StoreError) -> bool:
    """Whether ZooKeeper could not be asked at all, so that asking it for more is useless."""
    return isinstance(error, _AWAY)


def refusal_of(error: StoreError, **request: object) -> KafkaError:
    """Kafka's error for the client, and a line for the operator, which tells of the ``request``. Of many lines in a
    second, one is logged.
    """
    refusal, do = _judged(error)
    left_out = _lines.left_out()
    if left_out is not None:
        more = {"left_out": left_out} if left_out else {}
        _log.warning(
            "request_not_carried_out",
            **request,
            reason=str(error),
            answered=refusal.error_code.name,
            do=do,
            **more,
        )
    return refusal


def _judged(error: StoreError) -> tuple[KafkaError, str]:
    """What is answered, and what the operator can do."""
    if is_away(error):
        return (
            KafkaError(Errors.REQUEST_TIMED_OUT, f"ZooKeeper did not answer, try again: {error}"),
            "the client may try again; see whether ZooKeeper's servers run and whether this host reaches them",
        )
    if isinstance(error, TooLargeError):
        # As Kafka's KRaft controller answers what is too large for one batch.
        return KafkaError(Errors.POLICY_VIOLATION, str(error)), "make it smaller, as the reason says"
    return KafkaError(Errors.UNKNOWN_SERVER_ERROR, str(error)), "mend what the reason names"
