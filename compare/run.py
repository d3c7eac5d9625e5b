"""One run: start, fault, person, until all serve or the time is over. Its result is a :class:`RunRecord`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from compare import mishap
from compare.events import now_us
from compare.hosts import Hosts
from compare.launch import Launcher
from compare.members import Member
from compare.person import Person, started
from compare.record import RunRecord
from compare.scenarios import RULES, Fault, Planned, When
from compare.settings import MASTER, PACE, Pace
from compare.watch import Sightings, Watch


class OneRun:
    """The state of a run; used by one thread. Before it everything is stopped, after it everything
    may run.
    """

    def __init__(
        self,
        planned: Planned,
        members: Sequence[Member],
        hosts: Hosts,
        launcher: Launcher,
        watch: Watch,
        *,
        pace: Pace = PACE,
    ) -> None:
        self._planned = planned
        self._members = members
        self._hosts = hosts
        self._launcher = launcher
        self._watch = watch
        self._rule = RULES[planned.scenario]
        self._victim = self._rule.victim([m.host for m in members if m.serves]) if self._rule else ""
        self._pace = pace
        self._person = Person(int(pace.patience_s * 1e6))
        self._work: _Work | None = None
        self._held = [m for m in members if self._is(Fault.HELD_BACK) and m.host == self._victim]
        self._started = [member for member in members if member not in self._held]
        self._record = RunRecord(planned, [m for m in members if m.serves])
        self._power_back_us: int | None = None
        self._next_look_us = 0

    @property
    def seen(self) -> Sightings:
        return self._watch.seen

    def go(self) -> RunRecord:
        """Raises LabError when the lab fails."""
        record = self._record
        if self._rule and self._rule.when is When.BEFORE:
            mishap.inflict(self._hosts, self._rule.fault, self._victim, self._members)
        self._note_boots(self._hosts.names)
        cpu_before_us = self._hosts.cpu_us()
        record.began_us = now_us()
        if self._rule and self._rule.when is When.BEFORE:
            record.fault_us = record.began_us
        self._watch.start()
        try:
            if self._launcher.can_start():
                self._launcher.start(self._started)
            deadline_us = record.began_us + int(self._pace.run_limit_s * 1e6)
            while not self._is_over() and now_us() < deadline_us:
                self._step()
                if record.all_ready_us is not None and record.cpu_us is None:
                    record.cpu_us = self._hosts.cpu_us() - cpu_before_us
                time.sleep(0.01)
        finally:
            record.ended_us = now_us()
            self._watch.stop()
            self._launcher.finish()
            if self._work is not None:
                self._work.wait()
        if record.cpu_us is None:
            record.cpu_us = self._hosts.cpu_us() - cpu_before_us
        record.actions = self._person.actions
        record.waited_us = self._person.waited_us
        record.launches = self._launcher.launches()
        record.first_ready_us = self.seen.first(m.name for m in self._members if m.serves)
        record.sightings = self.seen
        return record

    def _is(self, fault: Fault) -> bool:
        return self._rule is not None and self._rule.fault is fault

    def _serving(self, members: Sequence[Member]) -> list[str]:
        return [member.name for member in members if member.serves]

    def _is_over(self) -> bool:
        """Whether all serve, and nothing of the scenario is still to come."""
        record, rule = self._record, self._rule
        if self._work is not None and not self._work.done():
            return False
        if record.all_ready_us is None:
            return False
        if rule is None:
            return True
        if rule.when is When.AFTER:
            return record.recovered_us is not None
        return True

    def _step(self) -> None:
        if self._work is not None and self._work.done():
            self._work.wait()
            self._work = None
        self._see()
        if self._work is None:
            self._do_what_is_due()
        if now_us() >= self._next_look_us:
            self._next_look_us = now_us() + int(self._pace.look_s * 1e6)
            self._call_the_person()

    def _see(self) -> None:
        """Records who serves now."""
        record, rule = self._record, self._rule
        since = self.seen.all_since(self._serving(self._started))
        lifted = rule is None or rule.fault is not Fault.NO_POWER or self._power_back_us is not None
        if record.all_ready_us is None:
            if since is not None and (lifted or (rule is not None and rule.when is When.AFTER)):
                record.all_ready_us = since
                if rule is not None and rule.when is not When.AFTER and record.fault_us is not None:
                    record.recovered_us = since
        elif record.fault_us is not None and record.recovered_us is None and lifted:
            hit = [m.name for m in self._members if m.serves and m.host == self._victim]
            went = self._is(Fault.HELD_BACK) or all(
                self.seen.ceased_after(name, record.fault_us) for name in hit
            )
            everyone = self.seen.all_since(self._serving(self._members))
            if went and everyone is not None and everyone > record.fault_us:
                record.recovered_us = everyone

    def _do_what_is_due(self) -> None:
        record, rule = self._record, self._rule
        if rule is None:
            return
        if record.fault_us is None:
            is_due = (
                record.all_ready_us is not None
                if rule.when is When.AFTER
                else now_us() - record.began_us >= self._pace.during_s * 1e6
            )
            if is_due:
                record.fault_us = now_us()
                if rule.fault is Fault.HELD_BACK:
                    self._add_host()
                else:
                    self._begin(self._inflict)
        elif (
            rule.fault is Fault.NO_POWER
            and self._power_back_us is None
            and now_us() - record.fault_us >= self._pace.outage_s * 1e6
        ):
            self._begin(self._power_back)

    def _inflict(self) -> None:
        assert self._rule is not None
        mishap.inflict(self._hosts, self._rule.fault, self._victim, self._members)
        self._note_boots([self._victim])

    def _power_back(self) -> None:
        mishap.power_back(self._hosts, self._victim)
        self._note_boots([self._victim])
        self._power_back_us = now_us()

    def _add_host(self) -> None:
        """The host starts by itself; for a push, a person has to enter it in the master's list and run
        the push.
        """
        self._started = list(self._members)
        self._launcher.start(self._held)
        if self._planned.model.is_push:
            self._person.acts(f"entered {self._victim} in the master's list and ran the push for it")

    def _call_the_person(self) -> None:
        busy_host = self._victim if self._work is not None else ""
        looks = []
        for member in self._started:
            on = member.host != busy_host and self._hosts.is_on(member.host)
            looks.append((member, on, on and bool(self._hosts.processes(member))))
        at_us = now_us()
        able = self._launcher.can_start() and busy_host != MASTER
        self._person.look(at_us, looks, able=able)
        launching, ended_us = self._launcher.busy, self._launcher.ended_us
        if not self._person.wants_to_act(at_us, launching=launching, launch_ended_us=ended_us):
            return
        missing = [m for m in self._started if m.name in self._person.absent_since]
        action = started(missing, push=self._planned.model.is_push, again=ended_us > 0)
        if self._is(Fault.NO_SSH) and self._planned.model.is_push:
            mishap.let_ssh_in(self._hosts, self._victim)
            action = f"started sshd on {self._victim}, {action}"
        self._person.acts(action, at_us, ended_us)
        self._record.note_help(at_us, missing)
        self._launcher.start(missing)

    def _note_boots(self, hosts: Sequence[str]) -> None:
        for host in hosts:
            self._record.note_boot(host, now_us(), self._hosts.boot_id(host))

    def _begin(self, do: Callable[[], None]) -> None:
        self._work = _Work(do)


class _Work:
    """An action that takes time, in a thread beside the watch."""

    def __init__(self, do: Callable[[], None]) -> None:
        self._do = do
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="fault", daemon=True)
        self._thread.start()

    def done(self) -> bool:
        return not self._thread.is_alive()

    def wait(self) -> None:
        """Waits, and raises the action's error."""
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self._do()
        except BaseException as error:
            self._error = error
