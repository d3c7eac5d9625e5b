"""`landline rebalance`, `drain` and `fill` on four brokers, one of which joins late: ended anywhere, they go on."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from broker.protocol.errors import Errors
from broker.utils.topic_partition import TopicPartition
from rig.brokers import BrokerProcess, Cluster
from rig.landline_broker import LandlineBroker
from rig.topics import create_topic, delete_topics, isr_sizes
from rig.wait import wait_until
from rig.zookeeper import ZooKeeperServer
from tests.support.numbered_load import NumberedLoad, numbers_in
from tests.support.reassign import ask_to_move, moving, replicas

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(400)]

TOPIC, PARTITIONS = "moved", 8
FILLED_BYTES = 2_000_000
SLOW, FAST = "--throttle=50000", "--throttle=100000000"


@pytest.fixture(scope="module")
def cluster(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Brokers 1 to 3 with a megabyte in each partition; 4 has joined since."""
    root, connect = tmp_path_factory.mktemp("moves"), zookeeper.chroot()
    config: dict[str, object] = {
        "offsets.topic.num.partitions": 2,
        "offsets.topic.replication.factor": 3,
        "min.insync.replicas": 2,
        # A throttle lets a whole answer through: with 10 MB all would be copied before it is looked at.
        "replica.fetch.response.max.bytes": 250_000,
    }
    brokers = {
        number: LandlineBroker(number, connect, root / f"broker-{number}", config) for number in (1, 2, 3, 4)
    }
    cluster = Cluster(brokers, connect)
    try:
        for number in (1, 2, 3):
            brokers[number].start_nowait()
        for number in (1, 2, 3):
            brokers[number].wait_ready()
        create_topic(bootstrap(cluster), TOPIC, PARTITIONS, 3)
        write(cluster, FILLED_BYTES)
        brokers[4].start()
        yield cluster
    finally:
        cluster.close()


def bootstrap(cluster: Cluster) -> str:
    return ",".join(cluster.brokers[number].bootstrap for number in (1, 2, 3))


def controller(cluster: Cluster) -> BrokerProcess:
    """As broker 1 sees it."""
    return wait_until(lambda: cluster.brokers.get(cluster.brokers[1].view().controller_id), 60)


def moved_now(cluster: Cluster) -> dict:
    return moving(controller(cluster))


def write(cluster: Cluster, size: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap(cluster), "compression.type": "none"})
    for number in range(PARTITIONS * size // 50_000):
        producer.produce(TOPIC, bytes(50_000), partition=number % PARTITIONS)
        producer.poll(0)
    assert producer.flush(60) == 0


def argv(cluster: Cluster, command: str, *options: str, by: int = 1) -> list[str]:
    file = cluster.brokers[by].log_dir.with_name(f"broker-{by}.properties")
    return [sys.executable, "-m", "broker", command, str(file), *options]


def run(cluster: Cluster, command: str, *options: str, by: int = 1, code: int = 0) -> dict:
    words = argv(cluster, command, "--json", *options, by=by)
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout)


def throttles(cluster: Cluster) -> set[str]:
    """What is set of throttles, of topics and of the cluster."""
    admin = AdminClient({"bootstrap.servers": bootstrap(cluster)})
    resources = [ConfigResource(ResourceType.TOPIC, TOPIC), ConfigResource(ResourceType.BROKER, "1")]
    return {
        entry.name
        for future in admin.describe_configs(resources).values()
        for entry in future.result(30).values()
        if "throttled" in entry.name and not entry.is_default and entry.value
    }


def set_config_of(broker: int, cluster: Cluster) -> None:
    """Sets a dynamic config of this broker alone."""
    entry = ConfigEntry("background.threads", "9", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.BROKER, str(broker), incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap(cluster)})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)


def brokers_of(cluster: Cluster) -> list[int]:
    return sorted(n for ids in replicas(cluster.brokers[1], TOPIC).values() for n in ids)


def test_an_interrupted_rebalance_takes_its_moves_and_throttles_back(cluster: Cluster) -> None:
    before = replicas(cluster.brokers[1], TOPIC)
    process = subprocess.Popen(argv(cluster, "rebalance", SLOW))
    try:
        wait_until(lambda: moved_now(cluster), 60, what="something moves")
        assert len(throttles(cluster)) == 4
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    finally:
        process.kill()
        process.wait()
    assert moved_now(cluster) == {}
    wait_until(lambda: throttles(cluster) == set(), 10, what="no throttle is set")
    assert {p: set(ids) for p, ids in replicas(cluster.brokers[1], TOPIC).items()} == {
        p: set(ids) for p, ids in before.items()
    }


def test_one_that_is_paused_from_elsewhere_ends_and_says_so_and_nothing_is_left_of_it(
    cluster: Cluster,
) -> None:
    before = replicas(cluster.brokers[1], TOPIC)
    process = subprocess.Popen(
        argv(cluster, "rebalance", SLOW), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        wait_until(lambda: moved_now(cluster), 60, what="something moves")
        run(cluster, "rebalance", "--pause", by=2)
        said, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode not in {0, 75}
    assert "has taken the moves and the throttles back. Run it again to go on" in said
    assert moved_now(cluster) == {}
    wait_until(lambda: throttles(cluster) == set(), 10, what="no throttle is set")
    assert {p: set(ids) for p, ids in replicas(cluster.brokers[1], TOPIC).items()} == {
        p: set(ids) for p, ids in before.items()
    }
    assert run(cluster, "rebalance", "--pause", by=2)["changed"] is False


def test_a_second_one_is_refused_by_the_first_ones_name_until_that_has_ended(cluster: Cluster) -> None:
    named = "--holder=alice@control (run 1a2b3c)"
    noted = {"machine": "control", "pid": 7}
    process = subprocess.Popen(
        argv(cluster, "rebalance", "--throttle=1000", named, f"--run={json.dumps(noted)}")
    )
    try:
        wait_until(lambda: moved_now(cluster), 60, what="something moves")
        for command, by in (("drain", 2), ("fill", 3), ("rebalance", 1)):
            options = () if command == "rebalance" else ("--broker=1",)
            words = argv(cluster, command, *options, by=by)
            done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
            assert done.returncode == 1
            assert f"{command}: alice@control (run 1a2b3c) moves partitions since " in done.stderr
            assert "by `rebalance`" in done.stderr
        told = run(cluster, "rebalance", "--who", by=2)
        assert (told["holder"], told["run"]) == ("alice@control (run 1a2b3c)", noted)
        lines = run(cluster, "drain", "--broker=4", "--dry-run")["plan"]["lines"]
        assert "alice@control (run 1a2b3c) moves partitions since " in lines[-1]
        assert len(throttles(cluster)) == 4
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    finally:
        process.kill()
        process.wait()
    assert run(cluster, "rebalance", "--pause", by=2)["changed"] is False


def test_one_that_is_killed_goes_on_beside_somebody_elses_move_and_a_dead_broker_until_all_have_their_share(
    cluster: Cluster,
) -> None:
    planned = run(cluster, "rebalance", "--dry-run", SLOW)["plan"]
    assert planned["replicas"] >= 6
    assert planned["bytes"] >= 6 * FILLED_BYTES
    create_topic(bootstrap(cluster), "loaded", 1, 3)
    with NumberedLoad(bootstrap(cluster), "loaded", 1) as load:
        wait_until(lambda: len(load.acked) > 100, 60)
        # As the rounds of one play: the killed one's turn is over later.
        mine = "--holder=mine"
        process = subprocess.Popen(argv(cluster, "rebalance", SLOW, mine))
        try:
            wait_until(lambda: moved_now(cluster), 60, what="something moves")
        finally:
            process.kill()
            process.wait()
        ours = moved_now(cluster)
        assert ours
        assert len(throttles(cluster)) == 4
        foreign = TopicPartition("loaded", 0)
        before = replicas(cluster.brokers[1], "loaded")[0]
        wanted = (*before, *({1, 2, 3, 4} - set(before)))
        assert ask_to_move(controller(cluster), {foreign: wanted}) == {foreign: Errors.NONE}
        # What a broker that is down is to have cannot come into sync.
        cluster.brokers[4].kill()
        wait_until(lambda: 4 not in cluster.brokers[1].view().ports, 60, what="its session has ended")
        following = "--holder=the next one"
        done = run(cluster, "rebalance", FAST, following, "--take-over=mine", "--within=3", code=75)
        assert "broker 4 does not run" in done["left"]["words"]
        cluster.brokers[4].start()
        done = run(cluster, "rebalance", FAST, following, "--held", "--within=120")
    assert done["done"]
    assert done["changed"]
    assert throttles(cluster) == set()
    wait_until(lambda: moved_now(cluster) == {}, 60, what="the other move is done as well")
    assert load.failed == []
    assert load.acked <= numbers_in(bootstrap(cluster), "loaded", 1)
    assert brokers_of(cluster).count(4) >= PARTITIONS * 3 // 4 - 1
    assert set(replicas(cluster.brokers[1], "loaded")[0]) == set(wanted), "as somebody else wanted it"
    run(cluster, "rebalance", FAST)  # with what the other move has changed
    again = run(cluster, "rebalance", FAST)
    assert (again["done"], again["changed"], again["plan"]["lines"]) == (True, False, [])


def test_a_broker_that_is_filled_anew_is_throttled_until_it_is_in_sync(cluster: Cluster) -> None:
    victim = cluster.brokers[3]
    victim.stop()
    shutil.rmtree(victim.log_dir)
    create_topic(bootstrap(cluster), "here", 1, 2)
    (line,) = run(cluster, "fill", "--broker=3", "--prepare", "--dry-run", SLOW)["plan"]["lines"]
    assert re.match(r"[1-9]\d* replicas, [\d.]+ [KM]iB to copy, about ", line)
    assert throttles(cluster) == set()
    run(cluster, "fill", "--broker=3", "--prepare", SLOW)
    assert throttles(cluster) == {
        "follower.replication.throttled.replicas",
        "follower.replication.throttled.rate",
        "leader.replication.throttled.rate",
    }
    victim.start()
    assert run(cluster, "fill", "--broker=3", SLOW, "--within=2", code=75)["left"]["replicas"]
    assert run(cluster, "fill", "--broker=3", FAST)["done"]
    assert throttles(cluster) == set()
    assert set(isr_sizes(bootstrap(cluster), TOPIC).values()) == {3}
    assert not run(cluster, "fill", "--broker=3", FAST)["changed"]


def test_an_empty_broker_in_place_of_the_only_one_with_the_records_is_refused(cluster: Cluster) -> None:
    create_topic(bootstrap(cluster), "alone", 4, 1)
    cluster.brokers[4].stop()
    words = argv(cluster, "fill", "--broker=4", "--prepare")
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    finally:
        cluster.brokers[4].start()
    assert done.returncode == 1
    assert "only broker 4 has all records of alone-" in done.stderr
    assert throttles(cluster) == set()


def test_a_drained_broker_is_empty_and_the_last_ones_that_a_topic_needs_are_not_drained(
    cluster: Cluster,
) -> None:
    delete_topics(bootstrap(cluster), ["loaded"])
    assert run(cluster, "drain", "--broker=4", FAST)["changed"]
    verified = argv(cluster, "drain", "--broker=4", "--verify")
    wait_until(lambda: subprocess.run(verified, check=False).returncode == 0, 90, interval=1, what="is empty")
    assert brokers_of(cluster).count(4) == 0
    assert not run(cluster, "drain", "--broker=4", FAST)["changed"]
    set_config_of(4, cluster)
    forgotten = argv(cluster, "drain", "--broker=4", "--forget")
    assert subprocess.run(forgotten, check=False).returncode == 75, "it runs"
    cluster.brokers[4].stop()
    assert "removed the dynamic configs of broker 4" in subprocess.check_output(forgotten, text=True)
    assert subprocess.check_output(forgotten, text=True) == "nothing is on 4\n"
    words = argv(cluster, "drain", "--broker=3")
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "2 brokers would remain (1, 2), and topics have more replicas: " in done.stderr
