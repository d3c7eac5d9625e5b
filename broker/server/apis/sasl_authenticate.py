"""SaslAuthenticate where it is not expected: without a handshake, after an authentication, or without SASL.

Elsewhere `network.logins` answers it.
"""

from __future__ import annotations

from broker.network.request_channel import Request
from broker.protocol.errors import Errors
from broker.protocol.fields import Fields
from broker.protocol.requests import SaslAuthenticateRequest
from broker.server.apis.context import ApiContext

_UNEXPECTED = "SaslAuthenticate was not expected: it follows SaslHandshake, on a listener with SASL"


def handle(request: Request, _message: SaslAuthenticateRequest, ctx: ApiContext) -> Fields:
    return {"error_code": Errors.ILLEGAL_SASL_STATE, "error_message": _UNEXPECTED, "auth_bytes": b""}
