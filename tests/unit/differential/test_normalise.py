"""Ids, ports and times of two brokers become equal; what they say by them does not."""

from __future__ import annotations

import pytest

from tests.differential.normalise import Normaliser
from tests.differential.plain import NO_ID

FIRST, SECOND = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"


@pytest.fixture
def normaliser() -> Normaliser:
    return Normaliser(9092, 1, ["/tmp/kafka-1"])


def test_an_id_that_appears_again_gets_the_same_number(normaliser) -> None:
    assert normaliser.normalise({"producer_id": 4000})["producer_id"] == "producer 0"
    assert normaliser.normalise({"producer_id": 5000})["producer_id"] == "producer 1"
    assert normaliser.normalise({"producer_id": 4000})["producer_id"] == "producer 0"
    assert normaliser.normalise({"producer_id": -1})["producer_id"] == -1


def test_a_member_is_known_by_the_uuid_in_its_id(normaliser) -> None:
    assert normaliser.normalise({"member_id": f"raw-{FIRST}"}) == {"member_id": "raw-UUID 0"}
    assert normaliser.normalise({"leader": f"raw-{SECOND}"}) == {"leader": "raw-UUID 1"}
    assert normaliser.normalise({"leader": f"raw-{FIRST}"}) == {"leader": "raw-UUID 0"}


def test_a_topics_id_is_called_by_its_name_and_its_life(normaliser) -> None:
    assert normaliser.normalise({"name": "t", "topic_id": FIRST})["topic_id"] == "id 1 of t"
    assert normaliser.normalise({"name": None, "topic_id": FIRST})["topic_id"] == "id 1 of t"
    assert normaliser.normalise({"name": "t", "topic_id": SECOND})["topic_id"] == "id 2 of t"


def test_no_id_and_an_unknown_id_are_told_apart(normaliser) -> None:
    assert normaliser.normalise({"topic_id": NO_ID}) == {"topic_id": "none"}
    assert normaliser.normalise({"topic_id": SECOND}) == {"topic_id": "an unknown id"}


def test_only_its_own_port_and_id_are_replaced(normaliser) -> None:
    own, other = {"node_id": 1, "port": 9092}, {"node_id": 2, "port": 9093}
    assert normaliser.normalise([own, other]) == [{"node_id": "its id", "port": "its port"}, other]


def test_a_text_or_a_time_is_only_there_or_not(normaliser) -> None:
    said = {"error_message": "No.", "throttle_time": 7}
    assert normaliser.normalise(said) == {"error_message": "a text", "throttle_time": "a time"}
    nothing = {"error_message": None, "throttle_time": 0}
    assert normaliser.normalise(nothing) == nothing
    assert normaliser.normalise({"error_message": ""}) == {"error_message": None}


def test_directories_are_called_by_one_name(normaliser) -> None:
    assert normaliser.normalise({"log_dir": "/tmp/kafka-1/data"}) == {"log_dir": "DIRECTORY/data"}
