"""One story for each rule of replication: it ends well, and badly when only that rule is broken.

The same rules are searched at random in ``test_replication_model``; a story goes straight to where the rule matters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.model.broker import TP
from tests.model.cluster import ModelCluster
from tests.support.mutations import MUTATIONS, mutated

pytestmark = pytest.mark.usefixtures("quiet")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ModelCluster]:
    """Broker 1 leads, all are in sync."""
    made = ModelCluster(tmp_path)
    yield made
    made.close()


def unreplicated_append(cluster: ModelCluster) -> None:
    """A producer with acks=all is heard by the leader only."""
    cluster.produce(cluster.brokers[1], -1)


def old_leader_with_a_tail_of_its_own(cluster: ModelCluster) -> None:
    """A leader dies with a record that nobody else has, and comes back when others stand at its offset."""
    one, two = cluster.brokers[1], cluster.brokers[2]
    cluster.produce(one, 1)
    cluster.fail_over(one)
    cluster.produce(two, -1, 2)
    cluster.commit()
    cluster.check()
    cluster.come_back(one, joins=True)


def deletion_ordered_by_a_controller_of_old(cluster: ModelCluster) -> None:
    """A topic is deleted and made anew under the next controller; the first one's StopReplica arrives after that."""
    cluster.delete_topic()
    assert cluster.office is not None
    first = cluster.office
    cluster.run_events(first)
    cluster.elect_controller(2)
    cluster.settle()
    cluster.create_topic()
    leader = cluster.leader
    assert leader is not None
    cluster.produce(leader, -1, 2)
    cluster.commit()
    cluster.check()
    assert cluster.ledger.acknowledged
    cluster.deliver_all(first)


def deletion_that_waited_for_a_broker(cluster: ModelCluster) -> None:
    """A controller waits for a broker, to delete a topic there, and is replaced. The next one deletes the
    topic, which is made anew; the broker starts once more, and the first one to give it orders is the one
    that still waits.
    """
    two = cluster.brokers[2]
    first = cluster.office
    assert first is not None
    cluster.fail_over(two)
    cluster.delete_topic()
    cluster.govern_undisturbed()
    cluster.elect_controller(3)
    cluster.settle()
    cluster.create_topic()
    cluster.produce(cluster.brokers[1], -1, 2)
    cluster.commit()
    cluster.check()
    assert cluster.ledger.acknowledged
    cluster.kill(two)
    cluster.restart(two)
    cluster.run_events(first)
    assert first.channels.queues[2]
    cluster.deliver_all(first)


def follower_behind_a_leader_that_does_not_know_what_is_committed(cluster: ModelCluster) -> None:
    """The next leader has not heard how far its predecessor had committed; a follower stands at what it does know."""
    one, two, three = cluster.brokers.values()
    cluster.fall_behind(three, agreed=True)
    cluster.replicate(three)  # up to what the other follower has heard of, but it has yet to say so
    cluster.produce(one, -1, 2)
    cluster.replicate(two)
    cluster.fetch_without_hearing(two)
    cluster.check()
    assert len(cluster.ledger.acknowledged) == 2
    cluster.fail_over(one)
    cluster.fetch_without_hearing(three)
    cluster.change_isr(two)


def shrink_that_the_controller_has_not_seen(cluster: ModelCluster) -> None:
    """The leader asks to drop a late follower; until the controller agrees, that one may be elected."""
    one, two, three = cluster.brokers.values()
    cluster.produce(one, -1)
    cluster.fall_behind(three, agreed=False)
    cluster.replicate(two)
    cluster.replicate(two)
    assert one.partition is not None
    one.partition.advance_high_watermark()


def isr_that_died_while_another_lives(cluster: ModelCluster) -> None:
    """Both members of the ISR die; the third replica lives and lacks what they committed."""
    one, two, three = cluster.brokers.values()
    cluster.fall_behind(three, agreed=True)
    cluster.produce(one, -1)
    cluster.replicate(two)
    cluster.replicate(two)
    cluster.check()
    assert cluster.ledger.acknowledged
    cluster.fail_over(two)
    cluster.fail_over(one)


def fetch_that_was_under_way_while_leaders_changed(cluster: ModelCluster) -> None:
    """A follower has truncated since it asked, and the leader whom it asked leads again."""
    one, two, three = cluster.brokers.values()
    cluster.fail_over(one)
    cluster.come_back(one, joins=True)
    assert cluster.leader is two
    cluster.produce(two, 1, 2)
    cluster.replicate(three)
    flight = cluster.send_fetch(three)
    assert flight is not None
    office = cluster.office
    assert office is not None
    cluster.govern(office, lambda: office.term.preferred.elect([TP]))
    cluster.govern_undisturbed()
    assert cluster.leader is one
    cluster.replicate(three)
    assert three.values == []
    cluster.fail_over(one)
    assert cluster.leader is two
    cluster.serve_fetch(flight)


def checkpoint_ahead_of_the_log(cluster: ModelCluster) -> None:
    """A follower wrote its high watermark, then lost power and with it records that were not synced."""
    two = cluster.brokers[2]
    cluster.produce(cluster.brokers[1], -1, 2)
    cluster.commit()
    cluster.commit()
    two.replicas.checkpoint_high_watermarks()
    assert two.logs.read_high_watermarks() == {TP: 2}
    cluster.lose_power(two, 0)
    cluster.restart(two)
    cluster.govern_undisturbed()


STORIES: dict[str, Callable[[ModelCluster], None]] = {
    "acknowledge-before-isr": unreplicated_append,
    "high-watermark-by-leader-alone": unreplicated_append,
    "skip-truncation": old_leader_with_a_tail_of_its_own,
    "ignore-stale-controller-epoch": deletion_ordered_by_a_controller_of_old,
    "forget-controller-epoch": deletion_that_waited_for_a_broker,
    "join-isr-before-epoch-start": follower_behind_a_leader_that_does_not_know_what_is_committed,
    "shrink-counts-at-once": shrink_that_the_controller_has_not_seen,
    "elect-out-of-isr": isr_that_died_while_another_lives,
    "serve-fenced-epochs": fetch_that_was_under_way_while_leaders_changed,
    "high-watermark-past-the-log": checkpoint_ahead_of_the_log,
}


@pytest.mark.parametrize("name", STORIES)
def test_story_ends_well_by_the_rules(name: str, cluster: ModelCluster) -> None:
    STORIES[name](cluster)
    cluster.check()
    cluster.settle()
    cluster.check()
    cluster.check_rest()


@pytest.mark.parametrize("name", STORIES)
def test_story_shows_the_broken_rule(name: str, cluster: ModelCluster) -> None:
    def told() -> None:
        STORIES[name](cluster)
        cluster.check()

    with mutated(MUTATIONS[name]), pytest.raises(AssertionError, match=r"committed is|past the end"):
        told()


def test_every_mutation_has_a_story() -> None:
    assert STORIES.keys() == MUTATIONS.keys()
