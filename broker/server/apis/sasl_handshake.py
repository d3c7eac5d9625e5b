"""SaslHandshake where it is not expected: on a listener without SASL, or too soon after an authentication.

Elsewhere `network.logins` answers it.
"""

from __future__ import annotations

from typing import Any

from broker.network.request_channel import Request
from broker.protocol.errors import Errors
from broker.protocol.fields import Fields
from broker.server.apis.context import ApiContext


def handle(request: Request, _message: Any, ctx: ApiContext) -> Fields:
    return {"error_code": Errors.ILLEGAL_SASL_STATE, "mechanisms": []}
