"""Who controls, who leads, and what brokers are told, as brokers come and go: over both stores."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.config.endpoint import Endpoint
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors
from broker.utils.topic_partition import TopicPartition
from broker.zookeeper.session_end import SessionEnd, end_session
from broker.zookeeper.znodes import LeaderRecoveryState
from rig.wait import wait_until
from tests.support.controller_world import SETTINGS, T0, T1, active, alter, registration
from tests.support.fake_brokers import answer_leader_and_isr

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


def test_one_broker_is_elected_and_the_znodes_say_so(zk_world):
    one = active(zk_world.node(1))
    two = zk_world.node(2)
    wait_until(lambda: zk_world.brokers.live_brokers(1) == [1, 2], 30)
    assert zk_world.observer.controller_id() == 1
    assert zk_world.observer.controller_epoch()[0] == 1 == one.controller.epoch
    assert not two.controller.is_active
    assert one.gauge("activecontrollercount") == 1
    assert two.gauge("activecontrollercount") == 0


def test_another_broker_takes_over_at_once_when_the_controller_stops(zk_world):
    one = active(zk_world.node(1))
    two = zk_world.node(2)
    one.controller.shutdown()
    active(two)
    assert zk_world.observer.controller_id() == 2
    assert zk_world.observer.controller_epoch()[0] == 2
    assert one.active == [True, False]


def test_a_controller_whose_session_expired_resigns_and_may_be_elected_again(zk_world):
    one = active(zk_world.node(1))
    assert end_session(one.store.session, 30) is SessionEnd.ENDED
    wait_until(lambda: one.active == [True, False], 60)
    assert not one.controller.is_active
    wait_until(lambda: one.register() is None, 30, what="a new session")
    wait_until(lambda: one.active == [True, False, True], 30)
    assert zk_world.observer.controller_epoch()[0] == 2


def test_a_controller_that_was_overtaken_writes_nothing_and_resigns(zk_world):
    one = active(zk_world.node(1))
    zk_world.join(2)
    zk_world.create("t", {0: (1, 2)})
    before = zk_world.wait_leader(T0, 1)
    # Another controller came and went, unseen by this one, as after a long pause.
    epoch, version = zk_world.observer.controller_epoch()
    zk_world.observer.store.set("/controller_epoch", str(epoch + 1).encode(), version)
    zk_world.leave(2)
    wait_until(lambda: False in one.active, 30)
    # It found out before it wrote: the partition's next state is of the next term.
    wait_until(lambda: one.active[-1] is True, 30)
    state = wait_until(lambda: (s := zk_world.state(T0)) != before and s, 30)
    assert state.controller_epoch == epoch + 2
    assert state.isr == (1,)


def test_a_follower_takes_over_when_the_leader_dies_and_the_leader_comes_back(world):
    active(world.node(1))
    world.join(2, 3)
    world.create("t", {0: (2, 3)})
    world.wait_leader(T0, 2)
    world.leave(2)
    state = world.wait_leader(T0, 3)
    assert (state.isr, state.leader_epoch) == ((3,), 1)
    metadata = wait_until(lambda: (m := world.brokers.metadata(1, T0)).leader == 3 and m, 30)
    assert tuple(metadata.offline_replicas) == (2,)
    world.brokers.clear()
    world.join(2)
    told = wait_until(lambda: world.brokers.leader_and_isr(2, T0), 30)
    assert (told.leader, told.leader_epoch, told.is_new) == (3, state.leader_epoch, False)
    assert wait_until(lambda: world.brokers.metadata(2, T0), 30).leader == 3


def test_the_last_replica_stays_in_the_isr_and_leads_again(world):
    node = active(world.node(1))
    world.join(2)
    world.create("t", {0: (2,)})
    world.wait_leader(T0, 2)
    world.leave(2)
    state = world.wait_leader(T0, -1)
    assert state.isr == (2,)
    wait_until(lambda: node.gauge("offlinepartitionscount") == 1, 30)
    world.join(2)
    assert world.wait_leader(T0, 2).isr == (2,)
    wait_until(lambda: node.gauge("offlinepartitionscount") == 0, 30)


def test_replicas_that_die_together_may_each_lead_again(world):
    active(world.node(1))
    world.join(2, 3)
    world.create("t", {0: (2, 3)})
    world.wait_leader(T0, 2)
    world.leave(3, 2)
    state = world.wait_leader(T0, -1)
    # Whether one event saw both go or two events one each, the last of the ISR is not lost.
    survivor = state.isr[-1]
    world.join(survivor)
    assert world.wait_leader(T0, survivor).recovery_state is LeaderRecoveryState.RECOVERED


def test_a_replica_out_of_sync_leads_only_where_the_topic_allows_it(world):
    active(world.node(1))
    world.join(2, 3)
    world.create("safe", {0: (2, 3)})
    world.create("fast", {0: (2, 3)}, {"unclean.leader.election.enable": "true"})
    safe, fast = TopicPartition("safe", 0), TopicPartition("fast", 0)
    world.wait_leader(safe, 2)
    world.wait_leader(fast, 2)
    world.leave(3)
    wait_until(lambda: world.state(safe).isr == (2,) and world.state(fast).isr == (2,), 30)
    world.leave(2)
    world.wait_leader(safe, -1)
    world.wait_leader(fast, -1)
    world.join(3)
    state = world.wait_leader(fast, 3)
    assert (state.isr, state.recovery_state) == ((3,), LeaderRecoveryState.RECOVERING)
    assert world.state(safe).leader == -1
    world.join(2)
    assert world.wait_leader(safe, 2).isr == (2,)


def test_a_broker_that_registers_again_unseen_is_told_everything_anew(world):
    active(world.node(1))
    world.join(2)
    world.create("t", {0: (2, 1)})
    world.wait_leader(T0, 2)
    old_epoch = world.observer.broker(2).epoch
    world.brokers.clear()
    world.leave(2)
    world.join(2)
    new_epoch = world.observer.broker(2).epoch
    assert new_epoch > old_epoch
    told = wait_until(lambda: world.brokers.leader_and_isr(2, T0), 30)
    assert told.leader in {1, 2}
    requests = wait_until(lambda: world.brokers.requests(ApiKey.LEADER_AND_ISR, 2), 30)
    assert requests[-1].message.broker_epoch == new_epoch


def test_a_new_controller_finishes_what_the_old_one_left(zk_world):
    one = active(zk_world.node(1))
    two = zk_world.node(2)
    zk_world.create("t", {0: (1, 2)})
    zk_world.wait_leader(T0, 1)
    one.stop()
    active(two)
    state = zk_world.wait_leader(T0, 2)
    assert (state.isr, state.controller_epoch) == ((2,), 2)
    assert state.leader_epoch == 1, "elected in one step"
    told = wait_until(lambda: (t := zk_world.brokers.leader_and_isr(2, T0)) and t.leader == 2 and t, 30)
    assert told.leader_epoch == state.leader_epoch
    zk_world.nodes.remove(one)


def test_a_controller_whose_broker_is_taken_from_the_register_leaves_the_partitions_alone(world):
    node = active(world.node(1))
    world.create("t", {0: (1,)})
    state = world.wait_leader(T0, 1)
    world.leave(1)
    wait_until(lambda: node.active == [True, False], 30)
    wait_until(lambda: world.observer.controller_id() == -1, 30)
    assert world.state(T0) == state
    node.register()
    wait_until(lambda: node.active == [True, False, True], 30)
    assert world.state(T0) == state


def test_the_preferred_leader_leads_again_once_it_is_back_in_sync(world):
    node = active(world.node(1))
    world.join(2, 3)
    world.create("t", {0: (2, 3)})
    world.wait_leader(T0, 2)
    world.leave(2)
    world.wait_leader(T0, 3)
    world.join(2)
    wait_until(lambda: world.brokers.live_brokers(1) == [1, 2, 3], 30)
    state = world.state(T0)
    assert alter(node, T0, state, [3, 2]).topics[0].partitions[0].error_code == 0
    back = world.wait_leader(T0, 2)
    assert back.isr == (3, 2)
    assert back.leader_epoch == state.leader_epoch + 1


def test_an_imbalance_is_mended_by_the_check(zk_world):
    zk_world.settings = replace(SETTINGS, first_imbalance_check_ms=1, imbalance_check_interval_ms=50)
    node = active(zk_world.node(1))
    zk_world.join(2)
    zk_world.create("t", {0: (2, 1)})
    state = zk_world.wait_leader(T0, 2)
    zk_world.leave(2)
    zk_world.wait_leader(T0, 1)
    zk_world.join(2)
    wait_until(lambda: zk_world.brokers.live_brokers(1) == [1, 2], 30)
    alter(node, T0, zk_world.state(T0), [1, 2])
    assert zk_world.wait_leader(T0, 2).leader_epoch > state.leader_epoch


def test_a_broker_that_cannot_be_reached_gets_everything_in_order_later(world):
    active(world.node(1))
    world.brokers.down.add(2)
    world.join(2)
    world.create("t", {0: (2, 1)})
    world.wait_leader(T0, 2)
    wait_until(lambda: world.brokers.metadata(1, T0), 30)
    assert world.brokers.requests(broker_id=2) == []
    world.brokers.down.clear()
    told = wait_until(lambda: world.brokers.leader_and_isr(2, T0), 30)
    assert told.leader == 2
    apis = [r.api for r in world.brokers.requests(broker_id=2)]
    assert apis[0] is ApiKey.UPDATE_METADATA


def test_a_replica_whose_directory_failed_is_offline_though_its_broker_lives(world):

    active(world.node(1))
    world.join(2)

    def fail_on_two(message):
        mine = any(state.leader == 2 for topic in message.topic_states for state in topic.partition_states)
        return answer_leader_and_isr(message, Errors.KAFKA_STORAGE_ERROR if mine else 0)

    world.brokers.answers[ApiKey.LEADER_AND_ISR] = fail_on_two
    world.create("t", {0: (2,)})
    world.wait_leader(T0, -1)
    assert 2 in world.observer.brokers()


def test_a_broker_that_announces_a_failed_directory_is_asked_what_it_still_has(world):
    active(world.node(1))
    world.join(2)
    world.create("t", {0: (2, 1), 1: (2, 1)})
    world.wait_leader(T0, 2)
    world.wait_leader(T1, 2)

    def fail_the_first(message):
        mine = {
            (topic.topic_id, state.partition_index)
            for topic in message.topic_states
            for state in topic.partition_states
            if state.leader == 2 and state.partition_index == 0
        }
        answer = answer_leader_and_isr(message)
        for topic in answer["topics"]:
            for row in topic["partition_errors"]:
                if (topic["topic_id"], row["partition_index"]) in mine:
                    row["error_code"] = Errors.KAFKA_STORAGE_ERROR
        return answer

    for broker in (1, 2):
        wait_until(lambda broker=broker: world.brokers.leader_and_isr(broker, T1), 30)
    world.brokers.answers[ApiKey.LEADER_AND_ISR] = fail_the_first
    world.observer.create_log_dir_event(2)
    state = world.wait_leader(T0, 1)
    assert state.isr == (1,)
    assert world.state(T1).leader == 2
    wait_until(lambda: not world.observer.log_dir_events(), 30)


def test_a_full_leader_and_isr_goes_to_brokers_that_start(world):
    active(world.node(1))
    world.join(2)
    world.create("t", {0: (1, 2), 1: (2, 1)})
    world.wait_leader(T1, 2)
    wait_until(lambda: world.brokers.leader_and_isr(2, T1), 30)
    assert world.brokers.requests(ApiKey.LEADER_AND_ISR, 2)[-1].message.type_ == 1
    world.leave(2)
    world.wait_leader(T1, 1)
    world.brokers.clear()
    world.join(2)
    told = wait_until(lambda: world.brokers.requests(ApiKey.LEADER_AND_ISR, 2), 30)[0].message
    assert told.type_ == 2
    assert sum(len(topic.partition_states) for topic in told.topic_states) == 2


def test_changed_addresses_reach_everybody(zk_world):
    active(zk_world.node(1))
    zk_world.join(2)
    wait_until(lambda: zk_world.brokers.live_brokers(1) == [1, 2], 30)
    moved = replace(registration(2), endpoints=(Endpoint("elsewhere", 1, "PLAINTEXT"),))
    zk_world.observer.update_broker(moved)

    def told():
        last = zk_world.brokers.requests(ApiKey.UPDATE_METADATA, 1)[-1].message
        return {b.id_: b.endpoints[0].host for b in last.live_brokers}[2] == "elsewhere"

    wait_until(told, 30)
