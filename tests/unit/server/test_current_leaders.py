"""Produce and Fetch say who leads where this broker does not, and at which address (KIP-951)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.protocol import codec
from broker.protocol.api_keys import ApiKey
from broker.protocol.control_messages import MetadataUpdate, PartitionInfo
from broker.protocol.epochs import NO_LEADER
from broker.protocol.errors import Errors
from tests.support.serving_site import (
    DEAD,
    ELSEWHERE,
    EPOCH,
    HERE,
    LEADERLESS,
    ME,
    MORE,
    OF_THE_DEAD,
    OTHER,
    TOPIC,
    ServingSite,
)

OTHERS_ADDRESS = {"node_id": OTHER, "host": "out.example", "port": 9002, "rack": "r2"}


class Site(ServingSite):
    """A site whose answers are read for leaders and their addresses."""

    def told(
        self, key: ApiKey, version: int
    ) -> tuple[dict[int, tuple[Errors, int, int]], list[dict[str, Any]]]:
        """Error, leader and its epoch of each partition of the one answer, and the nodes."""
        (body,) = self.answers
        answer = codec.decode(key, version, "response", body)
        topic = answer.responses[0]
        found = {}
        for row in topic.partition_responses if key == ApiKey.PRODUCE else topic.partitions:
            index = row.index if key == ApiKey.PRODUCE else row.partition_index
            leader = getattr(row, "current_leader", None)
            told = (-1, -1) if leader is None else (leader.leader_id, leader.leader_epoch)
            found[index] = (Errors(row.error_code), *told)
        nodes = [
            {name: getattr(node, name) for name in OTHERS_ADDRESS}
            for node in getattr(answer, "node_endpoints", ())
        ]
        return found, nodes


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    made.close()


MOVED = (Errors.NOT_LEADER_OR_FOLLOWER, OTHER, EPOCH)


@pytest.mark.parametrize("partitions", [(ELSEWHERE,), (ELSEWHERE, MORE)], ids=["one", "two of one leader"])
def test_who_produces_to_a_follower_gets_the_leader_and_its_address_on_his_listener(
    site: Site, partitions: tuple[int, ...]
) -> None:
    site.produce(*partitions)
    assert site.told(ApiKey.PRODUCE, 11) == (dict.fromkeys(partitions, MOVED), [OTHERS_ADDRESS])


@pytest.mark.parametrize("partitions", [(ELSEWHERE,), (ELSEWHERE, MORE)], ids=["one", "two of one leader"])
def test_who_fetches_from_a_follower_gets_the_leader_and_its_address_on_his_listener(
    site: Site, partitions: tuple[int, ...]
) -> None:
    site.fetch(*partitions)
    assert site.told(ApiKey.FETCH, 17) == (dict.fromkeys(partitions, MOVED), [OTHERS_ADDRESS])


def test_before_the_versions_with_addresses_there_are_none(site: Site) -> None:
    site.fetch(ELSEWHERE, version=15)
    assert site.told(ApiKey.FETCH, 15) == ({ELSEWHERE: MOVED}, [])
    site.answers.clear()
    site.produce(ELSEWHERE, version=9)
    assert site.told(ApiKey.PRODUCE, 9) == ({ELSEWHERE: (Errors.NOT_LEADER_OR_FOLLOWER, -1, -1)}, [])


def test_a_partition_without_a_leader_and_a_dead_leader_have_no_address(site: Site) -> None:
    site.produce(LEADERLESS, OF_THE_DEAD)
    error = Errors.NOT_LEADER_OR_FOLLOWER
    told = {LEADERLESS: (error, NO_LEADER, EPOCH), OF_THE_DEAD: (error, DEAD, EPOCH)}
    assert site.told(ApiKey.PRODUCE, 11) == (told, [])


def test_a_leader_without_the_readers_listener_has_no_address_there(site: Site) -> None:
    site.fetch(ELSEWHERE, listener="HIDDEN")
    assert site.told(ApiKey.FETCH, 17) == ({ELSEWHERE: MOVED}, [])


def test_a_reader_with_an_older_epoch_is_sent_to_this_broker_again(site: Site) -> None:
    site.fetch(HERE, epoch=EPOCH - 1)
    me = {"node_id": ME, "host": "me.example", "port": 9001, "rack": None}
    assert site.told(ApiKey.FETCH, 17) == ({HERE: (Errors.FENCED_LEADER_EPOCH, ME, EPOCH)}, [me])


def test_a_replica_here_knows_the_leader_before_the_metadata_does(site: Site) -> None:
    site.partition.make_follower(site.role(OTHER, EPOCH + 1))
    site.produce(HERE)
    moved = (Errors.NOT_LEADER_OR_FOLLOWER, OTHER, EPOCH + 1)
    assert site.told(ApiKey.PRODUCE, 11) == ({HERE: moved}, [OTHERS_ADDRESS])


def test_a_produce_that_waits_while_the_leader_changes_gets_the_new_one(site: Site) -> None:
    site.produce(HERE)
    assert not site.answers
    site.partition.make_follower(site.role(OTHER, EPOCH + 1))
    site.replica_manager.wake_all(site.topic_partition)
    moved = (Errors.NOT_LEADER_OR_FOLLOWER, OTHER, EPOCH + 1)
    assert site.told(ApiKey.PRODUCE, 11) == ({HERE: moved}, [OTHERS_ADDRESS])


def test_a_fetch_that_waits_while_the_replica_is_taken_away_gets_the_leader(site: Site) -> None:
    site.fetch(HERE)
    assert not site.answers
    info = PartitionInfo(HERE, OTHER, EPOCH + 1, (OTHER,), (OTHER,))
    brokers = list(site.metadata_cache.snapshot.brokers.values())
    site.metadata_cache.update(MetadataUpdate(ME, brokers, {}, [(TOPIC, info)]))
    site.replica_manager.forget(site.topic_partition)
    moved = (Errors.NOT_LEADER_OR_FOLLOWER, OTHER, EPOCH + 1)
    assert site.told(ApiKey.FETCH, 17) == ({HERE: moved}, [OTHERS_ADDRESS])
