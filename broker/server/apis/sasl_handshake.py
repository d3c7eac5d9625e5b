"""SaslHandshake where it is not expected: on a listener without SASL, or too soon after an authentication.

Elsewhere `network.logins` answers it.
"""

from __future__ import annotations

from broker.network.request_channel import Request
from broker.protocol.errors import Errors
from broker.protocol.fields import Fields
from broker.protocol.requests import SaslHandshakeRequest
from broker.server.apis.context import ApiContext


def handle(request: Request, _message: SaslHandshakeRequest, ctx: ApiContext) -> Fields:
    return {"error_code": Errors.ILLEGAL_SASL_STATE, "mechanisms": []}
