"""The coordinator under real threads and the real timer: every request answered once, the group whole at the end."""

from __future__ import annotations

import queue
import threading
from typing import Any

from broker.config.broker_config import BrokerConfig
from broker.coordinator.group.group_coordinator import GroupCoordinator
from broker.coordinator.group.messages import JoinRequest, JoinResult, MemberIdentity, SyncRequest, SyncResult
from broker.protocol.errors import Errors
from broker.utils.clock import SYSTEM_CLOCK
from broker.utils.scheduler import KafkaScheduler
from broker.utils.timer import Timer
from rig.wait import wait_until
from tests.support.group_fakes import FakeAppender

GROUP = "g"
CLIENTS = 6
ROUNDS = 4
PATIENCE_S = 60


class SlowAppender(FakeAppender):
    """Answers from another thread, as a replicated log does."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()

    def __call__(self, **call: Any) -> None:
        answer, call["callback"] = (
            call["callback"],
            lambda responses: threading.Timer(0.002, answer, [responses]).start(),
        )
        with self.lock:
            super().__call__(**call)


class Client:
    """Joins and syncs like a consumer until it has been in ``ROUNDS`` generations, then leaves."""

    def __init__(self, coordinator: GroupCoordinator, name: str) -> None:
        self.coordinator = coordinator
        self.name = name
        self.answers: queue.Queue[Any] = queue.Queue()
        self.generations: list[int] = []
        self.assigned: list[tuple[int, bytes]] = []
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            self.live()
        except BaseException as error:  # told to the test's thread
            self.failure = error

    def live(self) -> None:
        member_id = ""
        while len(self.assigned) < ROUNDS:
            joined = self.join(member_id)
            member_id = "" if joined.error is Errors.UNKNOWN_MEMBER_ID else joined.member_id
            if joined.error is not Errors.NONE:
                continue
            self.generations.append(joined.generation_id)
            synced = self.sync(joined)
            if synced.error is Errors.NONE:
                self.assigned.append((joined.generation_id, synced.assignment))
                identity = MemberIdentity(member_id)
                # Members rejoin when they are told to, or to shake the others.
                if joined.leader_id != member_id:
                    self.coordinator.heartbeat(GROUP, identity, joined.generation_id)
        self.coordinator.leave(GROUP, [MemberIdentity(member_id)], lambda *answer: self.answers.put(answer))
        self.answers.get(timeout=PATIENCE_S)

    def join(self, member_id: str) -> JoinResult:
        metadata = (
            f"{self.name}-{len(self.generations)}".encode()
        )  # changes, so that each join is a rebalance
        self.coordinator.join(
            GROUP,
            JoinRequest(
                member_id,
                self.coordinator.new_member_id(self.name, None),
                None,
                self.name,
                "/127.0.0.1",
                20_000,
                20_000,
                "consumer",
                (("range", metadata),),
                self.answers.put,
                require_known_member_id=True,
            ),
        )
        return self.answers.get(timeout=PATIENCE_S)

    def sync(self, joined: JoinResult) -> SyncResult:
        given = {m.member_id: f"{joined.generation_id}:{m.member_id}".encode() for m in joined.members}
        self.coordinator.sync(
            GROUP,
            SyncRequest(
                joined.member_id, joined.generation_id, None, "consumer", "range", given, self.answers.put
            ),
        )
        return self.answers.get(timeout=PATIENCE_S)


def test_concurrent_members_are_all_answered_and_get_the_assignment_of_their_own_generation():
    timer, scheduler, appender = Timer("test"), KafkaScheduler(2), SlowAppender()
    scheduler.startup()
    config = BrokerConfig.from_properties(
        {"zookeeper.connect": "z:2181", "group.initial.rebalance.delay.ms": "50"}
    )
    coordinator = GroupCoordinator(
        config,
        1,
        appender,
        appender.log,
        lambda: 1,
        timer=timer,
        scheduler=scheduler,
        clock=SYSTEM_CLOCK,
    )
    try:
        coordinator.startup()
        coordinator.on_election(0, 0)
        wait_until(lambda: coordinator.list_groups((), ())[0] is Errors.NONE)
        clients = [Client(coordinator, f"client-{n}") for n in range(CLIENTS)]
        threads = [threading.Thread(target=client.run, daemon=True) for client in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert [client.failure for client in clients] == [None] * CLIENTS
        for client in clients:
            assert client.generations == sorted(client.generations)
            assert client.answers.empty()
            for generation, assignment in client.assigned:
                assert assignment.startswith(f"{generation}:{client.name}-".encode())
        assert wait_until(lambda: coordinator.describe(GROUP).state == "Empty")
    finally:
        coordinator.shutdown()
        scheduler.shutdown()
        timer.stop()
