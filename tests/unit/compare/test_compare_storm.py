"""What a storm reads of a controller's word, and what is kept of a storm."""

from __future__ import annotations

import json
import resource
import struct

import pytest
from click.testing import CliRunner

from broker.protocol import codec, framing
from broker.protocol.api_keys import ApiKey
from compare.simulation.storms import read_storms
from compare.storm.__main__ import keep, line_of, main
from compare.storm.listeners import Listeners
from compare.storm.storms import Storm

ZOOKEEPER = Storm("zookeeper", 1000, 2.5, 2.5)
CONTROLLER = Storm("controller", 1000, 13.25, 2.25, 1100, 33.0)


def update_metadata(brokers, broker_id=1, version=8, topics=()):
    """As a controller sends it, without its size."""
    endpoint = {"port": 9092, "host": "h", "listener": "PLAINTEXT", "security_protocol": 0}
    fields = {
        "controller_id": 0,
        "is_k_raft_controller": False,
        "controller_epoch": 1,
        "broker_epoch": 77,
        "topic_states": [{"topic_name": topic, "topic_id": None, "partition_states": []} for topic in topics],
        "live_brokers": [{"id_": n, "endpoints": [endpoint], "rack": None} for n in range(brokers)],
    }
    body = bytes(codec.encode(ApiKey.UPDATE_METADATA, version, "request", fields))
    client_id = f"controller-0-to-broker-{broker_id}"
    return framing.request_prefix(ApiKey.UPDATE_METADATA, version, 5, client_id, len(body))[4:] + body


@pytest.mark.parametrize("brokers", [0, 1, 126, 127, 128, 3000])
def test_a_listener_knows_how_many_live_brokers_it_was_told_of(brokers):
    listeners = Listeners(expected=1, wanted=brokers)
    listeners.take(update_metadata(brokers))
    assert listeners.told == 1
    more = Listeners(expected=1, wanted=brokers + 1)
    more.take(update_metadata(brokers))
    assert more.told == 0


def test_all_are_told_when_each_was_told_of_all_however_often():
    listeners = Listeners(expected=2, wanted=3)
    for broker_id, brokers in ((1, 2), (1, 3), (1, 3), (2, 2)):
        listeners.take(update_metadata(brokers, broker_id))
        assert not listeners.all_told.is_set()
    listeners.take(update_metadata(3, 2))
    assert listeners.all_told.is_set()
    assert listeners.requests == 5


def test_a_listeners_answer_is_one_that_the_controller_reads():
    answer = memoryview(Listeners(1, 1).take(update_metadata(1)))
    assert struct.unpack_from(">i", answer) == (5,)
    body = answer[framing.response_body_offset(ApiKey.UPDATE_METADATA, 8, answer) :]
    assert codec.decode(ApiKey.UPDATE_METADATA, 8, "response", body).error_code == 0


def test_what_no_storm_has_is_refused():
    with pytest.raises(ValueError, match="names 1 topics"):
        Listeners(1, 1).take(update_metadata(1, topics=["t"]))
    with pytest.raises(ValueError, match="API 6 in version 7"):
        Listeners(1, 1).take(update_metadata(1, version=7))


def test_storms_that_are_kept_are_read_by_the_simulation(tmp_path):
    path = tmp_path / "storms.json"
    assert read_storms(tmp_path).most == 0
    keep(path, ZOOKEEPER)
    keep(path, CONTROLLER)
    assert [record["members"] for record in json.loads(path.read_text())["storms"]] == [1000, 1000]
    assert read_storms(tmp_path).at(1000) == 15_750


def test_a_storm_is_told_in_one_line():
    assert line_of(ZOOKEEPER) == "1,000 sessions have their nodes after 2.50 s"
    assert line_of(CONTROLLER).startswith(
        "1,000 brokers were told of all 13.25 s after the last had registered"
    )


def test_more_connections_than_a_process_may_have_are_refused_before_anything_is_started(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (1024, 1024))

    def refuse(_which, _limits):
        raise ValueError("not allowed")

    monkeypatch.setattr(resource, "setrlimit", refuse)
    done = CliRunner().invoke(main, ["controller", "--brokers", "1000", "--connect", "127.0.0.1:1"])
    assert "2,128 open files are needed, 1,024 are allowed" in str(done.exception)


def test_a_connect_string_that_is_none_is_refused():
    done = CliRunner().invoke(main, ["zookeeper", "--sessions", "1", "--connect", "nowhere"])
    assert done.exit_code == 1
    assert "give HOST:PORT" in str(done.exception)
