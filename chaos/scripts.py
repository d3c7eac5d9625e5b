"""Scenarios of several steps, each with its own load.

They cover unclean elections, the loss of the last member of an ISR, and a reassignment without
its controller.

A script returns when all should be well again. A step that does not happen in time raises, which is the
round's finding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors
from chaos.anomalies import AnomalyKind
from chaos.cluster import POLL_S, ClusterUnderTest
from chaos.coordination import PartitionView, UnknownError
from chaos.load import Load, LoadPlan
from rig.raw_client import RawClient
from rig.wait import wait_until

STEP_TIMEOUT_S = 60.0
ACKS = 100
NO_LEADER_S = 3.0
MAY_BE_LOST = frozenset(AnomalyKind) - {AnomalyKind.DIVERGED, AnomalyKind.PHANTOM, AnomalyKind.DUPLICATE}
"""What clients may see if an operator allowed unclean elections: the log goes back, but in all
replicas alike.
"""


class ScriptFailedError(AssertionError):
    """The cluster did what it must not do; the message says what."""


@dataclass(frozen=True, slots=True)
class Script:
    """A scenario in code, and its topics. ``forgiven`` are anomalies that the topics'
    configuration allows.
    """

    act: Callable[[ClusterUnderTest, Load], None]
    plan: LoadPlan
    replication_factor: int = 3
    topic_config: Mapping[str, str] = field(default_factory=dict)
    forgiven: frozenset[AnomalyKind] = frozenset()


def _unclean_election(cluster: ClusterUnderTest, load: Load) -> None:
    """The last member of the ISR loses its power, while a replica that lacks records is available. That
    replica must lead.
    """
    leader, others = _let_one_go_ahead(cluster, load)
    cluster.lab.faults.power_loss(cluster.host(leader))
    cluster.each(lambda each: cluster.systemctl(each, "start"), others)
    _await(cluster, load, lambda view: view.leader in others, "a replica that lacks records leads")
    load.await_progress(ACKS, STEP_TIMEOUT_S)
    cluster.lab.up()


def _no_unclean_election(cluster: ClusterUnderTest, load: Load) -> None:
    """As ``_unclean_election``, but no replica may lead until the last member of the ISR is back."""
    leader, others = _let_one_go_ahead(cluster, load)
    cluster.lab.faults.power_loss(cluster.host(leader))
    cluster.each(lambda each: cluster.systemctl(each, "start"), others)
    _await(cluster, load, lambda view: view.leader == -1, "the partition is offline")
    for each in others:
        cluster.await_serving(each)
    try:
        _await(cluster, load, lambda view: view.leader in others, "nobody", NO_LEADER_S)
    except TimeoutError:
        cluster.lab.up()
    else:
        raise ScriptFailedError(f"broker {_only(cluster, load).leader} leads, which was not in the ISR")


def _let_one_go_ahead(cluster: ClusterUnderTest, load: Load) -> tuple[int, tuple[int, ...]]:
    """Stops all replicas except the leader, which continues alone; returns the leader and the others."""
    before = _only(cluster, load)
    others = tuple(each for each in before.replicas if each != before.leader)
    cluster.each(lambda each: cluster.systemctl(each, "stop"), others)
    _await(cluster, load, lambda view: view.isr == (before.leader,), "the leader is alone in the ISR")
    load.await_progress(ACKS, STEP_TIMEOUT_S)
    return before.leader, others


def _last_of_isr(cluster: ClusterUnderTest, load: Load) -> None:
    """Two faults: all others leave the ISR while they are frozen, then its last member loses its power.

    The others have all acknowledged records. They must lead while it is off, and it must follow when it
    is back.
    """
    before = _only(cluster, load)
    others = tuple(each for each in before.replicas if each != before.leader)
    cluster.each(lambda each: cluster.signal(each, "STOP"), others)
    _await(cluster, load, lambda view: view.isr == (before.leader,), "the leader is alone in the ISR")
    cluster.lab.faults.power_loss(cluster.host(before.leader), lose_unsynced=cluster.has_data_disks)
    cluster.each(lambda each: cluster.signal(each, "CONT"), others)
    _await(cluster, load, lambda view: view.leader in others, "an eligible replica leads")
    load.await_progress(ACKS, STEP_TIMEOUT_S)
    cluster.lab.up()


def _reassignment(cluster: ClusterUnderTest, load: Load) -> None:
    """All partitions move, and the controller is killed as soon as it has accepted the request."""
    everybody = set(cluster.broker_ids)
    before = cluster.coordination.partitions(load.topics)
    wanted = {
        (view.topic, view.number): (view.replicas[-1], *sorted(everybody - set(view.replicas)))
        for view in before
    }
    controller = cluster.coordination.controller()
    _ask_to_reassign(cluster, controller, wanted)
    load.rebalance()
    cluster.signal(controller, "KILL")

    def moved() -> bool:
        try:
            views = cluster.coordination.partitions(load.topics)
        except UnknownError:
            return False
        return all(view.replicas == wanted[view.topic, view.number] for view in views)

    wait_until(moved, timeout=STEP_TIMEOUT_S, interval=POLL_S, what="every partition is where it was sent")


def _ask_to_reassign(
    cluster: ClusterUnderTest, controller: int, wanted: Mapping[tuple[str, int], tuple[int, ...]]
) -> None:
    topics = [
        {"name": topic, "partitions": [{"partition_index": number, "replicas": list(replicas)}]}
        for (topic, number), replicas in wanted.items()
    ]
    with RawClient(cluster.address(controller), cluster.product.port) as client:
        fields = {"topics": topics, "timeout": 30_000}
        answer = client.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, fields)
    codes = {answer.error_code, *(row.error_code for topic in answer.responses for row in topic.partitions)}
    if codes != {Errors.NONE}:
        raise ScriptFailedError(f"the controller, broker {controller}, refused to reassign: {codes}")


def _only(cluster: ClusterUnderTest, load: Load) -> PartitionView:
    return cluster.coordination.partitions(load.topics)[0]


def _await(
    cluster: ClusterUnderTest,
    load: Load,
    condition: Callable[[PartitionView], bool],
    what: str,
    timeout_s: float = STEP_TIMEOUT_S,
) -> None:
    """Waits until the load's only partition fulfils the condition."""
    wait_until(
        lambda: condition(_only(cluster, load)),
        timeout=timeout_s,
        interval=POLL_S,
        what=lambda: f"{what} ({_only(cluster, load)})",
    )


_ONE_PARTITION = LoadPlan(
    topics=1, partitions=1, producers_plain=1, producers_idempotent=1, records_per_s=200
)
_ALONE = {"min.insync.replicas": "1"}
SCRIPTS: Mapping[str, Script] = {
    "unclean election": Script(
        _unclean_election,
        # A lost marker would leave a transaction open for ever, as with Kafka, and nobody reads past it.
        replace(_ONE_PARTITION, producers_transactional=0),
        topic_config={**_ALONE, "unclean.leader.election.enable": "true"},
        forgiven=MAY_BE_LOST,
    ),
    "no unclean election": Script(
        _no_unclean_election,
        _ONE_PARTITION,
        topic_config={**_ALONE, "unclean.leader.election.enable": "false"},
    ),
    "last of an ISR loses power": Script(_last_of_isr, _ONE_PARTITION),
    "reassignment, controller killed": Script(
        _reassignment,
        LoadPlan(topics=2, partitions=3, group_consumers=3, records_per_s=400),
        replication_factor=2,
        topic_config=_ALONE,
    ),
}
