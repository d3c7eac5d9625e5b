"""The audit log: a line for each denial, by the logger ``audit``.

A client may be denied as often as it asks. So the same denial has a line at most once a second, and all denials
together have 50 lines a second. What is left out is counted, and the next line has the count.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final

import structlog

from broker.network.request_channel import Request
from broker.protocol.api_keys import APIS
from broker.security.acls import AclOperation, ResourceType
from broker.utils.clock import SYSTEM_CLOCK, Clock
from broker.utils.line_budget import LineBudget

_log = structlog.get_logger("audit", log="audit")
_SAME_MS: Final = 1_000
_MOST_KNOWN: Final = 1024
_PER_SECOND: Final = 50
_AT_ONCE: Final = 100
_MOST_TEXT: Final = 256

_Denial = tuple[str, str, AclOperation, ResourceType, str, int]


class AuditLog:
    """The audit log of one broker. Thread-safe."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._budget = LineBudget(clock.monotonic_ms, per_second=_PER_SECOND, at_once=_AT_ONCE)
        self._lock = threading.Lock()  # lock order 83
        self._known: OrderedDict[_Denial, int] = OrderedDict()  # denials and when they had their last line
        self._repeated = 0

    def denied(
        self, request: Request, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> None:
        """Logs that the request's principal may not do this."""
        asker = request.connection
        name = name[:_MOST_TEXT]
        if not self._is_new(
            (asker.principal, asker.client_address, operation, resource_type, name, request.api_key)
        ):
            return
        left_out = self._budget.left_out()
        if left_out is None:
            return
        with self._lock:
            left_out += self._repeated
            self._repeated = 0
        _log.warning(
            "denied",
            principal=asker.principal[:_MOST_TEXT],
            host=asker.client_address,
            operation=operation.text,
            resource=f"{resource_type.text}:{name}",
            api=APIS[request.api_key].name,
            client_id=request.client_id,
            **({"left_out": left_out} if left_out else {}),
        )

    def _is_new(self, denial: _Denial) -> bool:
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            if now_ms - self._known.get(denial, now_ms - _SAME_MS) < _SAME_MS:
                self._repeated += 1
                return False
            self._known[denial] = now_ms
            self._known.move_to_end(denial)
            if len(self._known) > _MOST_KNOWN:
                self._known.popitem(last=False)
            return True
