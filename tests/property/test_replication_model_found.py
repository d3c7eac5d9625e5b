"""What the search of ``test_replication_model`` has found once, step by step: each sequence is short and fixed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker.protocol.api_keys import ApiKey
from broker.protocol.control_messages import ControlResponse
from broker.protocol.errors import Errors
from tests.model.broker import TP
from tests.model.cluster import ModelCluster
from tests.model.wires import over_the_wire

pytestmark = pytest.mark.usefixtures("quiet")


@pytest.fixture(params=[False, True], ids=["clean", "unclean"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ModelCluster]:
    """Broker 1 leads, all are in sync; elections out of the ISR are forbidden, or allowed."""
    made = ModelCluster(tmp_path, unclean=request.param)
    yield made
    made.close()


def take_a_replica_from_a_broker_that_is_down(cluster: ModelCluster) -> None:
    cluster.lose_power(cluster.brokers[2], kept=0)
    cluster.reassign((1, 3))


def take_a_replica_in_the_last_act_of_a_controller(cluster: ModelCluster) -> None:
    """What would delete it is never sent; the next controller does not know that there ever was one."""
    cluster.reassign((1, 3))
    cluster.expire_session(cluster.brokers[1])


def make_the_topic_anew(cluster: ModelCluster) -> None:
    cluster.delete_topic()
    if cluster.office is not None:
        cluster.run_events(cluster.office)
    cluster.settle()
    cluster.create_topic()
    cluster.check()


def settle_and_check(cluster: ModelCluster) -> None:
    cluster.settle()
    cluster.check()
    cluster.check_rest()


@pytest.mark.parametrize(
    "take", [take_a_replica_from_a_broker_that_is_down, take_a_replica_in_the_last_act_of_a_controller]
)
def test_a_replica_left_behind_gives_place_to_the_new_topics(
    take: Callable[[ModelCluster], None], cluster: ModelCluster
) -> None:
    take(cluster)
    make_the_topic_anew(cluster)
    assert cluster.brokers[2].log is not None
    assert cluster.brokers[2].log.topic_id == cluster.store.present_topic_id(TP.topic)
    cluster.produce(cluster.brokers[1], -1)
    settle_and_check(cluster)


@pytest.mark.parametrize(
    "take", [take_a_replica_from_a_broker_that_is_down, take_a_replica_in_the_last_act_of_a_controller]
)
def test_the_new_topic_is_in_sync_again_after_a_follower_was_slow(
    take: Callable[[ModelCluster], None], cluster: ModelCluster
) -> None:
    take(cluster)
    make_the_topic_anew(cluster)
    cluster.fall_behind(cluster.brokers[1], agreed=False)
    settle_and_check(cluster)


def test_the_new_topic_survives_a_loss_of_power_where_a_replica_was_left_behind(
    cluster: ModelCluster,
) -> None:
    take_a_replica_in_the_last_act_of_a_controller(cluster)
    make_the_topic_anew(cluster)
    cluster.lose_power(cluster.brokers[2], kept=1)
    settle_and_check(cluster)


def test_what_a_leader_left_behind_had_committed_is_not_the_new_topics(cluster: ModelCluster) -> None:
    """Broker 1 never hears that it leads no more: to itself it leads still, with records of the old topic."""
    cluster.elect_controller(1)
    cluster.produce(cluster.brokers[1], -1, 2)
    cluster.commit()
    cluster.reassign((3, 2))
    assert cluster.office is not None
    for _ in range(9):
        cluster.deliver(cluster.office, 3)
    cluster.elect_controller(2)
    cluster.expire_session(cluster.brokers[2])
    cluster.elect_controller(3)
    for broker in cluster.brokers.values():
        cluster.expire_session(broker)
    make_the_topic_anew(cluster)
    settle_and_check(cluster)


def test_what_a_follower_left_behind_holds_is_not_the_new_topics(cluster: ModelCluster) -> None:
    take_a_replica_in_the_last_act_of_a_controller(cluster)
    for _ in range(2):
        cluster.produce(cluster.brokers[1], -1, 2)
        cluster.commit()
    assert cluster.brokers[2].values
    make_the_topic_anew(cluster)
    settle_and_check(cluster)


def test_a_replica_left_behind_follows_again_where_the_topic_is_the_same(cluster: ModelCluster) -> None:
    cluster.produce(cluster.brokers[1], -1, 2)
    cluster.commit()
    take_a_replica_in_the_last_act_of_a_controller(cluster)
    cluster.settle()
    cluster.reassign((1, 2, 3))
    settle_and_check(cluster)
    assert cluster.replicas == (1, 2, 3)


def test_what_a_leader_commits_in_its_last_moment_is_known_to_be_committed(cluster: ModelCluster) -> None:
    """The controller's two words reach it one after the other: that a member is gone, and that another leads."""
    one, two, three = cluster.brokers.values()
    cluster.produce(one, 1)
    cluster.replicate(two)
    cluster.replicate(two)
    cluster.kill(three)
    cluster.expire_session(three)
    assert cluster.office is not None
    cluster.run_events(cluster.office)
    cluster.shut_down(one)
    cluster.govern_undisturbed()
    assert one.log is not None
    assert one.log.high_watermark == 1
    cluster.check()
    settle_and_check(cluster)


def test_a_leader_that_was_gone_for_a_moment_learns_where_its_followers_are(cluster: ModelCluster) -> None:
    """Nobody saw it go: the followers' first fetches only end the sessions that it has forgotten."""
    one = cluster.brokers[1]
    cluster.produce(one, -1)
    cluster.settle()
    cluster.kill(one)
    cluster.restart(one)
    for _ in range(2):
        cluster.govern_undisturbed()
    settle_and_check(cluster)


def refuse_all(cluster: ModelCluster, broker_id: int) -> None:
    """The broker does not know this controller's registration yet: none of its requests is carried out."""
    assert cluster.office is not None
    refusal = ControlResponse(Errors.CLUSTER_AUTHORIZATION_FAILED)
    fields = {
        ApiKey.LEADER_AND_ISR: refusal.leader_and_isr_fields(),
        ApiKey.STOP_REPLICA: refusal.stop_replica_fields(),
        ApiKey.UPDATE_METADATA: refusal.update_metadata_fields(),
    }
    queue = cluster.office.channels.queues[broker_id]
    while queue:
        outgoing = queue.popleft()
        outgoing.on_response(over_the_wire(outgoing.api, outgoing.version, "response", fields[outgoing.api]))


def test_a_leader_that_did_not_hear_of_another_in_between_trusts_no_position_from_before(
    cluster: ModelCluster,
) -> None:
    """It leads, another does, it leads again: of its followers' logs it knows nothing any more."""
    one, two, three = cluster.brokers.values()
    cluster.fail_over(one)
    cluster.come_back(one, joins=True)
    cluster.elect_controller(3)
    cluster.settle()
    assert cluster.leader is two
    cluster.produce(two, -1, 2)
    for _ in range(2):
        cluster.replicate(three)
    assert three.values
    office = cluster.office
    assert office is not None
    cluster.govern(office, lambda: office.term.preferred.elect([TP]))
    cluster.run_events(office)
    refuse_all(cluster, 2)
    cluster.deliver_all(office)
    assert cluster.leader is one
    cluster.replicate(three)
    assert three.values == []
    cluster.shut_down(one)
    cluster.govern_undisturbed()
    assert cluster.leader is two
    assert two.leads
    cluster.check()
    settle_and_check(cluster)
