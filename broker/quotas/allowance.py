"""A part of a client's quota that one connection may use without asking.

Recording each request in the quota's windows costs 2 µs, more than anything else that security adds to a small
produce. A client that is far below its quota need not be recorded at once. So its connections get parts of what
is left, and what was used of them is recorded together. What is recorded and the parts that are out are never
more than the quota allows at once. As soon as a client comes near its quota, its parts are called back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

#: How long a part may be used. Samples last for a second, so use is recorded in the right one or the next.
VALID_NS: Final = 100_000_000


class Allowance:
    """What the requests of ``client_id`` on one connection may use before ``until_ns``, which is 0 once the part
    was called back.

    ``left`` of ``given`` is not used yet. Whoever uses it subtracts. If two threads do so at once, or one while
    the part is called back, one subtraction may be lost: that is one request. ``settle`` records what was used,
    and returns the rest.
    """

    __slots__ = ("_settle", "client_id", "given", "left", "until_ns")

    def __init__(
        self, client_id: str | None, given: float, until_ns: int, settle: Callable[[Allowance], None]
    ) -> None:
        self.client_id = client_id
        self.given = self.left = given
        self.until_ns = until_ns
        self._settle = settle

    def settle(self) -> None:
        """The second time it does nothing."""
        self._settle(self)

    def taken(self) -> float:
        """What was used since this was last asked."""
        left = self.left
        used, self.given = self.given - left, left
        return used
