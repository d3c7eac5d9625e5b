"""What one run showed, and its events: the launcher's steps and the whole run. Pure, except for the
clock's offset.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from compare.events import Event, Story, own_boot_id
from compare.members import Member
from compare.push import Pushed, counted
from compare.scenarios import Planned
from compare.settings import MASTER
from compare.watch import Sightings

CONTROLLER = "controller"
# A push is ended with its run, and spark-daemon.sh keeps its ssh for two seconds.
_CUT_SHORT = "ssh had not ended when the master was gone, or all served"


@dataclass(slots=True)
class RunRecord:
    """All times in microseconds since 1970; None: never. ``cpu_us`` counts until all served."""

    planned: Planned
    serving: list[Member]
    began_us: int = 0
    ended_us: int = 0
    first_ready_us: int | None = None
    all_ready_us: int | None = None
    fault_us: int | None = None
    recovered_us: int | None = None
    cpu_us: int | None = None
    actions: list[str] = field(default_factory=list)
    waited_us: int = 0
    helped_us: int | None = None
    helped: set[str] = field(default_factory=set)
    launches: list[Pushed] = field(default_factory=list)
    sightings: Sightings = field(default_factory=lambda: Sightings(()))
    boots: dict[str, list[tuple[int, str]]] = field(default_factory=dict)

    def note_boot(self, host: str, at_us: int, boot_id: str) -> None:
        """Records that the host has this boot id from now on; ignores an empty one."""
        if boot_id:
            self.boots.setdefault(host, []).append((at_us, boot_id))

    def note_help(self, at_us: int, members: Iterable[Member]) -> None:
        """Records that a person starts these members."""
        self.helped_us = at_us if self.helped_us is None else self.helped_us
        self.helped |= {member.name for member in members}

    def unaided_us(self) -> int | None:
        """The time from the fault to the recovery if the person had come at once: a lower bound,
        in microseconds.

        It is never below the time of members that needed nobody and served before the person came.
        """
        recovered_us = None if self.fault_us is None else _between(self.fault_us, self.recovered_us)
        if recovered_us is None or self.helped_us is None or self.fault_us is None:
            return recovered_us
        others = [
            self.sightings.next_after(member.name, self.fault_us)
            for member in self.serving
            if member.name not in self.helped
        ]
        theirs = [at_us - self.fault_us for at_us in others if at_us is not None and at_us <= self.helped_us]
        return max([recovered_us - self.waited_us, 0, *theirs])

    def boot_id(self, host: str, at_us: int) -> str:
        """The host's boot id at a time: the last one that had begun, or else the first one known."""
        lives = self.boots.get(host, [])
        begun = [boot_id for since, boot_id in lives if since <= at_us]
        return begun[-1] if begun else next((boot_id for _, boot_id in lives), "")

    def summary(self, comparison_id: str) -> dict[str, Any]:
        """The ``run`` object of docs/lifecycle.md."""
        commands, connections = counted(self.launches)
        planned = self.planned
        return {
            "comparison_id": comparison_id,
            "scenario": str(planned.scenario),
            "system": str(planned.system),
            "hosts": planned.hosts,
            "round": planned.round,
            "first_ready_us": _between(self.began_us, self.first_ready_us),
            "all_ready_us": _between(self.began_us, self.all_ready_us),
            "recovered_us": None if self.fault_us is None else _between(self.fault_us, self.recovered_us),
            "waited_us": self.waited_us,
            "unaided_us": self.unaided_us(),
            "person_acted": bool(self.actions),
            "actions": self.actions,
            "commands": commands,
            "connections": connections,
            "cpu_ms": round((self.cpu_us or 0) / 1000),
        }

    def events(self, run_id: str, comparison_id: str) -> list[Event]:
        """The launcher's events; the event of the whole run comes last."""
        events = [event for story in self._launch_stories(run_id) for event in story.events]
        planned = self.planned
        run = Story(
            *(run_id, f"{run_id}.run", CONTROLLER, "launcher", str(planned.system), str(planned.model)),
            own_boot_id(),
        )
        detail = "" if self._is_complete() else "not all that was to serve did"
        summary = self.summary(comparison_id)
        sent = sum(max(launch.bytes, 0) for launch in self.launches)
        run.add(
            "Run",
            self.began_us,
            self.ended_us,
            detail=detail,
            sent=sent,
            connections=summary["connections"],
            run=summary,
        )
        return [*events, *run.events]

    def _is_complete(self) -> bool:
        return self.all_ready_us is not None and (self.fault_us is None or self.recovered_us is not None)

    def _launch_stories(self, run_id: str) -> list[Story]:
        if not self.planned.model.is_push:
            return [self._watched(run_id, member) for member in self.serving]
        return [self._pushed(run_id, number, launch) for number, launch in enumerate(self.launches, 1)]

    def _story(self, run_id: str, name: str, host: str, number: int) -> Story:
        start_id = f"{run_id}.launch{number}.{name}"
        boot_id = self.boot_id(host, self.began_us)
        return Story(run_id, start_id, host, "launcher", name, str(self.planned.model), boot_id)

    def _watched(self, run_id: str, member: Member) -> Story:
        """For a host that starts by itself nothing is sent; the only event is that it serves."""
        story = self._story(run_id, member.name, member.host, 1)
        ready_us = self.sightings.next_after(member.name, self.began_us)
        self._add_ready(story, member, self.began_us, ready_us, sent=0)
        return story

    def _pushed(self, run_id: str, number: int, launch: Pushed) -> Story:
        member = launch.member
        story = self._story(run_id, member.name, MASTER, number)
        ended_us = launch.ended_us or self.ended_us
        opened_us = launch.opened_us
        if launch.connected:
            why = "" if opened_us else (launch.lines[-1] if launch.lines else "the master was gone")
            story.add("Connect", launch.began_us, opened_us or ended_us, detail=why, connections=1)
        if opened_us is None:
            return story
        code = launch.exit_code
        why = "" if code == 0 else (_CUT_SHORT if code is None else f"exit code {code}")
        story.add("Command", opened_us, ended_us, detail=why, sent=launch.bytes, connections=0)
        if member.serves:
            ready_us = self.sightings.next_after(member.name, launch.began_us)
            why = "" if ready_us else "given up"
            story.add("Await", ended_us, ready_us or self.ended_us, detail=why, sent=0, connections=0)
            self._add_ready(story, member, launch.began_us, ready_us, sent=launch.bytes)
        return story

    def _add_ready(
        self, story: Story, member: Member, began_us: int, ready_us: int | None, sent: int
    ) -> None:
        why = "" if ready_us else f"{member.name} was given up"
        connections = sum(max(event["connections"], 0) for event in story.events)
        story.add(
            "Ready", began_us, ready_us or self.ended_us, detail=why, sent=sent, connections=connections
        )


def _between(began_us: int, at_us: int | None) -> int | None:
    return None if at_us is None else max(0, at_us - began_us)
