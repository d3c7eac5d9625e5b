"""Which broker may be stopped, and when it is back, over clusters made up for each rule."""

import pytest

from broker.server.stopping import stop_judge
from broker.server.stopping.stop_judge import ClusterSnapshot, OwnBroker, PartitionView, RegisteredBroker
from broker.utils.topic_partition import TopicPartition

ORDERS = TopicPartition("orders", 7)
CLUSTER = "c1"


def partition(replicas=(1, 2, 3), isr=None, leader=None, min_isr=2, of=ORDERS):
    isr = replicas if isr is None else isr
    return PartitionView(of, replicas, isr, isr[0] if leader is None else leader, min_isr)


def view(*partitions, live=(1, 2, 3), silent=(), controller=1, cluster_id=CLUSTER, says=None):
    """Brokers that live and answer, but for the silent ones; ``says``: whom each takes for the controller."""
    members = {
        n: RegisteredBroker(
            n,
            100 + n,
            n,
            f"h{n}:9092",
            silence="does not answer: timed out" if n in silent else None,
            cluster_id=None if n in silent else cluster_id,
            controller_id=None if n in silent else (says or {}).get(n, controller),
        )
        for n in live
    }
    return ClusterSnapshot(cluster_id, controller, members, partitions)


def forbids(view, broker_id=3):
    return stop_judge.in_words(stop_judge.why_not_stop(view, broker_id))


# --- several that stop together


def test_brokers_of_one_host_stop_together_while_the_others_are_enough():
    spread = partition(replicas=(1, 3, 5), isr=(1, 3, 5))
    assert stop_judge.why_not_stop(view(spread, live=(1, 2, 3, 4, 5)), 3, frozenset({3, 4})) == []


def test_brokers_of_one_host_with_two_replicas_of_a_partition_do_not_stop_together():
    view_of_both = view(partition(replicas=(1, 3, 4)), live=(1, 2, 3, 4))
    assert forbids(view_of_both) == ""
    (reason,) = stop_judge.why_not_stop(view_of_both, 3, frozenset({3, 4}))
    assert reason == (
        "orders-7 would have 1 in sync without brokers 3, 4, with min.insync.replicas=2: it waits for another replica"
    )


def test_who_does_not_know_a_broker_yet_is_named_and_who_was_not_asked_is_not():
    members = {
        n: RegisteredBroker(n, n, n, f"h{n}:9092", knows=knows)
        for n, knows in {1: frozenset({1, 2}), 2: frozenset({1, 2, 3}), 3: None}.items()
    }
    assert stop_judge.not_known(ClusterSnapshot(CLUSTER, 1, members, []), 3) == [
        "broker 1 does not know broker 3 yet"
    ]


# --- per partition


def test_a_broker_may_stop_while_enough_replicas_stay():
    assert forbids(view(partition())) == ""


def test_a_dead_replica_stops_nobody_while_min_insync_replicas_holds_without_it():
    four = partition(replicas=(1, 2, 3, 4), isr=(1, 2, 3))
    assert forbids(view(four)) == ""


def test_a_dead_replica_forbids_what_min_insync_replicas_needs_and_is_named():
    words = forbids(view(partition(isr=(1, 3)), live=(1, 3)))
    assert "orders-7 would have 1 in sync without broker 3, with min.insync.replicas=2" in words
    assert "replica 2 (not registered)" in words


def test_a_lagging_replica_is_named_as_out_of_sync():
    assert "replica 2 (out of sync)" in forbids(view(partition(isr=(1, 3))))


def test_a_replica_that_hangs_is_not_counted_on_though_it_is_registered():
    assert "replica 2 (does not answer: timed out)" in forbids(view(partition(), silent=(2,)))


def test_what_the_broker_does_not_hold_is_not_asked():
    """The view has this broker's partitions only: others may be short of replicas for good."""
    assert forbids(view()) == ""


def test_a_partition_of_one_replica_never_blocks():
    assert forbids(view(partition(replicas=(3,), min_isr=1), partition(replicas=(3,), min_isr=2))) == ""


def test_a_topic_that_asks_for_all_its_replicas_does_not_block_for_ever():
    assert forbids(view(partition(replicas=(1, 3), min_isr=2))) == ""
    assert "replica 1 (not registered)" in forbids(
        view(partition(replicas=(1, 3), isr=(1, 3), min_isr=2, leader=3), live=(2, 3), controller=2)
    )


def test_the_last_replica_in_sync_may_not_stop_whatever_min_insync_replicas_says():
    assert "would have 0 in sync" in forbids(view(partition(isr=(3,), min_isr=1)))


def test_where_min_insync_replicas_cannot_be_read_one_may_be_missing():
    assert forbids(view(partition(min_isr=0))) == ""
    assert "orders-7" in forbids(view(partition(isr=(1, 3), min_isr=0)))


def test_a_broker_out_of_an_isr_takes_nothing_from_it():
    assert forbids(view(partition(isr=(1, 2)))) == ""


@pytest.mark.parametrize("leader", [-1, 4])
def test_a_leaderless_partition_forbids_and_says_whom_it_waits_for(leader):
    words = forbids(view(partition(replicas=(3, 4), isr=(4,), leader=leader)))
    assert "orders-7 has no leader" in words
    assert "replica 4 (not registered)" in words


def test_many_reasons_are_told_in_few_words():
    bad = [partition(isr=(1, 3), of=TopicPartition("t", n)) for n in range(40)]
    words = forbids(view(*bad))
    assert words.count("t-") == 5
    assert words.endswith("and 35 more like these")


# --- the cluster


def test_a_broker_that_is_not_registered_may_always_be_restarted():
    """It crash-loops, or waits for what never comes: nobody counts on it."""
    sick = view(partition(isr=(1,), leader=-1), live=(1, 2), controller=-1)
    assert forbids(sick) == ""


def test_without_a_controller_nobody_is_stopped():
    assert "no controller" in forbids(view(partition(), controller=-1))


def test_a_controller_that_is_gone_or_hangs_forbids():
    assert "broker 9, is not registered" in forbids(view(partition(), controller=9))
    assert "broker 1, does not answer" in forbids(view(partition(min_isr=1), silent=(1,)))


def test_brokers_that_know_another_controller_forbid():
    assert "broker 2 takes broker 3 for the controller, ZooKeeper broker 1" in forbids(view(says={2: 3}))


def test_two_brokers_that_both_think_they_control_forbid_and_so_does_one_that_knows_of_none():
    """Though it shares nothing with who is to stop."""
    apart = partition(replicas=(1, 2), isr=(1, 2), min_isr=1)
    assert "broker 3 takes broker 3 for the controller" in forbids(view(apart, says={1: 1, 3: 3}))
    assert "broker 3 takes nobody for the controller" in forbids(view(apart, says={3: -1}))


def test_a_broker_that_answers_for_another_cluster_forbids():
    other = view(partition())
    members = {**other.members, 2: RegisteredBroker(2, 102, 2, "h2:9092", cluster_id="c9", controller_id=1)}
    mixed = ClusterSnapshot(CLUSTER, 1, members, other.partitions)
    assert "broker 2 answers for cluster c9, not c1" in forbids(mixed)


def test_the_cluster_is_the_one_whose_data_the_host_has():
    assert stop_judge.why_another_cluster(view(), OwnBroker(3, CLUSTER, None)) is None
    assert stop_judge.why_another_cluster(view(), OwnBroker(3, None, None)) is None
    assert "leads to cluster c1" in stop_judge.why_another_cluster(view(), OwnBroker(3, "c7", None))
    assert "leads to no cluster" in stop_judge.why_another_cluster(
        view(cluster_id=None), OwnBroker(3, "c7", None)
    )


def test_an_id_that_another_process_has_is_noticed():
    assert stop_judge.why_another_process(view(), OwnBroker(3, CLUSTER, 3)) is None
    assert stop_judge.why_another_process(view(), OwnBroker(4, CLUSTER, 3)) is None
    words = stop_judge.why_another_process(view(), OwnBroker(3, CLUSTER, 77))
    assert "another process" in words
    assert "h3:9092" in words


# --- back again


def never_out(_):
    return False


def test_a_broker_is_not_back_before_it_has_registered_anew():
    assert stop_judge.not_back(view(live=(1, 2)), 3, 50, never_out) is None
    assert stop_judge.not_back(view(), 3, 103, never_out) is None
    assert stop_judge.not_back(view(), 3, 50, never_out) == []


def test_a_broker_is_back_when_it_is_in_every_isr_that_it_was_in():
    apart = partition(isr=(1, 2))
    assert stop_judge.not_back(view(apart), 3, 50, lambda one: one == ORDERS) == []
    (words,) = stop_judge.not_back(view(apart), 3, 50, never_out)
    assert words == "orders-7 has broker 3 not back in its ISR [1, 2], leader 1"


def test_a_dead_replica_elsewhere_does_not_keep_a_broker_from_being_back():
    assert stop_judge.not_back(view(partition(isr=(1, 3)), live=(1, 3)), 3, 50, never_out) == []


# --- the listener by which it is to speak to the others


def listening(**listeners):
    """A view of brokers with these listeners."""
    members = {
        int(key[1:]): RegisteredBroker(
            int(key[1:]), 1, 1, f"h{key[1:]}:9092", listeners=frozenset(names.split())
        )
        for key, names in listeners.items()
    }
    return ClusterSnapshot(CLUSTER, 1, members, [])


def test_a_broker_speaks_to_the_others_by_a_listener_that_all_of_them_have():
    both = listening(b1="PLAINTEXT BROKER", b2="PLAINTEXT BROKER", b3="PLAINTEXT BROKER")
    assert stop_judge.why_cut_off(both, 3, "BROKER") is None
    assert stop_judge.why_cut_off(both, 3, "PLAINTEXT") is None


def test_a_listener_that_another_does_not_have_yet_is_refused_with_who_and_what_to_do():
    some = listening(b1="PLAINTEXT BROKER", b2="PLAINTEXT", b3="PLAINTEXT")
    words = stop_judge.why_cut_off(some, 3, "BROKER")
    assert "which they do not advertise: 2 (h2:9092). Give every broker this listener first" in words
    assert stop_judge.why_cut_off(some, 2, "BROKER") == words.replace("broker 3", "broker 2").replace(
        "2 (h2:9092)", "3 (h3:9092)"
    )


def test_its_own_listeners_are_what_a_roll_is_to_change():
    assert stop_judge.why_cut_off(listening(b1="BROKER", b3="PLAINTEXT"), 3, "BROKER") is None
