"""Models the person who is called when something that should run does not: when to act, and on what. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from compare.members import Member
from compare.settings import PERSON_TRIES


@dataclass(slots=True)
class Person:
    """A person who acts when a member's host is on but its process is missing.

    The person acts after this has lasted ``patience_us`` and when no launch is in progress. A process that
    exists but does not serve yet is left alone, and so is a host without power, because starting it again
    helps neither. ``waited_us`` is the total time of mere waiting, which a person who comes at once would
    have saved. It may be too high by up to two looks, but never too low.
    """

    patience_us: int
    absent_since: dict[str, int] = field(default_factory=dict)
    actions: list[str] = field(default_factory=list)
    tries: int = 0
    waited_us: int = 0
    _gone_since: dict[str, int] = field(default_factory=dict)
    _last_look_us: int | None = None
    _able_since: int | None = None

    def look(
        self, now_us: int, should_run: Iterable[tuple[Member, bool, bool]], *, able: bool = True
    ) -> None:
        """Records for each member whether its host is on, and whether its process exists.

        ``able``: whether anything could be started now.
        """
        before_us = now_us if self._last_look_us is None else self._last_look_us
        for member, on, present in should_run:
            if present or not on:
                self.absent_since.pop(member.name, None)
                self._gone_since.pop(member.name, None)
            else:
                self.absent_since.setdefault(member.name, now_us)
                self._gone_since.setdefault(member.name, before_us)
        if not able:
            self._able_since = None
        elif self._able_since is None:
            self._able_since = before_us
        self._last_look_us = now_us

    def wants_to_act(self, now_us: int, *, launching: bool, launch_ended_us: int) -> bool:
        """Whether the patience is over and the person can do something."""
        if launching or self.tries >= PERSON_TRIES or not self.absent_since or self._able_since is None:
            return False
        return now_us - max(min(self.absent_since.values()), launch_ended_us) >= self.patience_us

    def acts(self, action: str, now_us: int = 0, launch_ended_us: int = 0) -> None:
        """Records an action; with a time, adds the time that was waited for it."""
        if now_us and self._gone_since:
            waiting_since = max(min(self._gone_since.values()), self._able_since or 0, launch_ended_us)
            self.waited_us += max(0, now_us - waiting_since)
        self.tries += 1
        self.absent_since.clear()
        self._gone_since.clear()
        self.actions.append(action)


def started(members: Iterable[Member], *, push: bool, again: bool) -> str:
    """A description of the action, the same in all runs."""
    hosts = " ".join(sorted({member.host for member in members}))
    if not push:
        return f"started the units of {hosts}"
    return f"ran the push again for {hosts}" if again else f"ran the push for {hosts}, late"
