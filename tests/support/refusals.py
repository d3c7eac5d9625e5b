"""What a broker's log says of requests that it refused."""

from __future__ import annotations

from rig.landline_broker import LandlineStandalone
from rig.wait import wait_until


class Refusals:
    """The lines that the broker's log has gained about refused requests."""

    def __init__(self, broker: LandlineStandalone) -> None:
        self._broker = broker
        self._before = len(self._all())

    def lines(self) -> list[str]:
        return self._all()[self._before :]

    def expect(self, number: int = 1) -> list[str]:
        """Waits for that many lines, and takes no more."""
        wait_until(lambda: len(self.lines()) >= number, what=lambda: f"{number} of {self.lines()}")
        assert len(self.lines()) == number, self.lines()
        return self.lines()

    def _all(self) -> list[str]:
        return [line for line in self._broker.log_text().splitlines() if " request_refused " in line]
