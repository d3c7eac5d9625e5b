"""How large an answer may grow that lists what there is: a few bytes can ask for all that peers ever left here.

One bound for all such APIs (``landline.answer.max.bytes``). Whoever makes an answer asks for the room of each element
before it is made of copies, and puts Kafka's error code in the place of what has none.
"""

from __future__ import annotations

from typing import Final

from broker.network.request_channel import Request
from broker.protocol.api_keys import APIS
from broker.protocol.errors import Errors
from broker.utils.refusal_log import log_refusal

SETTING: Final = "landline.answer.max.bytes"
# What a row counts beside its texts: it takes some 8 µs to make, so that no answer takes a handler for long.
ROW_BYTES: Final = 128


class AnswerBudget:
    """The room of one answer. ``alone`` is for what is too large for any answer, ``later`` for what found no room
    because of what came before it, and is answered when it is asked for alone.
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
        """NONE for an element that has its room now. One that finds too little left fills the answer: it and all after
        it are for ``later``, whatever their size.
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
        if not self._told:  # the first says it for the whole answer
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
    """The bytes of a text on the wire."""
    if text is None:
        return 0
    return len(text) if text.isascii() else len(text.encode())
