"""Limits the size of responses that list what exists: a request of a few bytes can ask for everything
stored here.

All such APIs share one limit (``landline.answer.max.bytes``). A handler asks for the room of each element
before it copies the element's data, and puts Kafka's error code in place of an element that has no room.
"""

from __future__ import annotations

from typing import Final

from broker.network.request_channel import Request
from broker.protocol.api_keys import APIS
from broker.protocol.errors import Errors
from broker.utils.refusal_log import log_refusal

SETTING: Final = "landline.answer.max.bytes"
# Added per row to the size of its texts: a row takes about 8 µs to build, so this also limits the
# handler's time.
ROW_BYTES: Final = 128


class AnswerBudget:
    """The room of one response. ``alone`` is the error for an element that is too large for any response.
    ``later`` is the error for one that found no room after the earlier elements; requested alone, it fits.
    """

    def __init__(
        self,
        request: Request,
        most: int,
        alone: Errors = Errors.INVALID_REQUEST,
        later: Errors = Errors.INVALID_REQUEST,
    ) -> None:
        self._request = request
        self._most = most
        self._alone = alone
        self._later = later
        self._left = most
        self._told = False
        self.full = False

    def refusal(self, size: int, what: str) -> Errors:
        """NONE for an element that fits, whose room is then taken. The first one that does not fit fills the
        response: it and all later ones get ``later``, whatever their size.
        """
        if size > self._most:
            return self._refused(self._alone, f"{what} alone takes {size} bytes")
        if self.full or size > self._left:
            self.full = True
            taken = self._most - self._left
            return self._refused(self._later, f"{what} does not fit behind {taken} bytes")
        self._left -= size
        return Errors.NONE

    def _refused(self, error: Errors, reason: str) -> Errors:
        if not self._told:  # one log line for the whole response
            self._told = True
            log_refusal(
                "answer_too_large",
                self._request.connection.client_address,
                f"{APIS[self._request.api_key].name}: {reason[:200]}",
                client_id=self._request.client_id,
                most=self._most,
                setting=SETTING,
                action=f"answered {error.name}: ask for less at once, or raise the setting",
            )
        return error


def text_bytes(text: str | None) -> int:
    """The size of a text on the wire, in bytes."""
    if text is None:
        return 0
    return len(text) if text.isascii() else len(text.encode())
