"""Exchanges that may block, as by reading files. Their answers are computed apart from the thread that asks.

That thread asks, is told to ask later (:class:`AskLater`), has the answer computed elsewhere, and asks again.
Pure: `network.logins` has the work done.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.sasl.exchange import Exchange, LoginIdentity


class AskLater(Exception):
    """There is no answer yet. ``compute``, called once on another thread, makes it; it raises nothing. Afterwards
    the same token gets its answer.
    """

    def __init__(self, compute: Callable[[], None]) -> None:
        super().__init__()
        self.compute = compute


class ApartExchange:
    """An exchange whose answers are those of ``inner``, computed on another thread. Kafka has no such class. See
    :class:`~broker.sasl.exchange.Exchange` for what callers may do.

    ``inner`` is only used in ``compute``. What it found out is shown here from the answer on.
    """

    def __init__(self, inner: Exchange) -> None:
        self.identity: LoginIdentity | None = None
        self.claimed = ""
        self._inner = inner
        self._computed: tuple[bytes, Exception | None] | None = None

    def answer(self, token: bytes) -> bytes:
        """Raises :class:`AskLater` the first time."""
        computed, self._computed = self._computed, None
        if computed is None:
            raise AskLater(lambda: self._compute(token))
        self.claimed = self._inner.claimed
        answer, error = computed
        if error is not None:
            raise error
        self.identity = self._inner.identity
        return answer

    def _compute(self, token: bytes) -> None:
        try:
            self._computed = self._inner.answer(token), None
        except Exception as error:  # whoever asks again gets it
            self._computed = b"", error
