"""What `landline doctor` makes of what it saw: levels, the config to blame, and what to do first."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from broker.arguments import make_parser
from broker.config.endpoint import Endpoint
from broker.config.problems import ConfigError
from broker.log.free_space import FreeSpaceFloor, Space
from broker.server.doctor import host_judge
from broker.server.doctor.answers import (
    Answer,
    Dialled,
    Recognised,
    judge_bootstrap,
    judge_broker,
    judge_metadata,
)
from broker.server.doctor.ensemble_judge import (
    Asked,
    EnsembleMember,
    judge_acls,
    judge_ensemble,
    judge_missing_listener,
    judge_server,
    judge_session,
)
from broker.server.doctor.findings import Level, as_json, as_text, exit_code, fail, first_to_do, ok, warn
from broker.server.doctor.from_client import check, read_addresses
from broker.server.doctor.host_facts import _mounts
from broker.server.doctor.host_judge import ClockFacts, LogDirFacts, MemoryFacts, Mount, Owner, ProcessFacts
from broker.server.doctor.in_parallel import run_all
from broker.server.doctor_command import EXIT_USAGE, run
from broker.zookeeper.acl import Acl
from broker.zookeeper.znodes import BrokerRegistration

GIB = 1 << 30
FLOOR = FreeSpaceFloor(GIB, 5)
DISK = Mount("/data", "ext4", read_only=False)
GOOD_DIR = LogDirFacts("/data/b1", True, DISK, Space(100 * GIB, 50 * GIB, 1000), 999)
OWNER = Owner(999, "landline")
GOOD = Answer(
    "h2",
    9092,
    Dialled.ANSWERED,
    cluster_id="c",
    controller_id=1,
    brokers={1: ("h1", 9092)},
    identity=Recognised.SAME,
)


def levels(findings):
    return [finding.level for finding in findings]


# -- what is printed


def test_warnings_fail_nothing_and_the_first_failure_comes_before_them():
    good, odd, bad = ok("a", "fine"), warn("b", "odd", do="look"), fail("c", "bad", config="key", do="set it")
    assert (exit_code([good, odd]), exit_code([good, odd, bad])) == (0, 1)
    assert (first_to_do([good, odd, bad]), first_to_do([good, odd]), first_to_do([good])) == (bad, odd, None)
    assert as_text([good, odd, bad], colour=False).splitlines() == [
        "ok    a  fine",
        "warn  b  odd: look",
        "fail  c  bad (key): set it",
        "1 failed, 1 to look at. First: c: set it",
    ]
    assert as_text([good], colour=True).startswith("\033[32mok  \033[0m  a")
    assert json.loads(as_json([bad]))["checks"] == [
        {"check": "c", "level": "fail", "said": "bad", "config": "key", "do": "set it"}
    ]


def test_what_a_server_says_cannot_steer_the_terminal():
    shown = as_text([warn("a", "it said \033[2J\nfail  b  no\u202eway")], colour=False)
    assert len(shown.splitlines()) == 2
    assert not {"\033", "\u202e"} & set(shown)


# -- what a client meets


@pytest.mark.parametrize("dialled", [each for each in Dialled if each is not Dialled.ANSWERED])
def test_each_way_not_to_answer_names_the_entry_the_broker_and_what_to_do(dialled):
    found = judge_broker(2, replace(GOOD, dialled=dialled), "c", "client.properties")
    assert found.level is Level.FAIL
    assert found.said.startswith(f"advertised.listeners of broker 2 says h2:9092: {dialled.value}")
    assert found.config == "advertised.listeners in server.properties of broker 2"
    assert len(found.do) > 20


@pytest.mark.parametrize(
    ("answer", "level", "said"),
    [
        (GOOD, Level.OK, "as broker 2"),
        (replace(GOOD, cluster_id="other"), Level.FAIL, "another cluster answers: cluster id other, not c"),
        (replace(GOOD, identity=Recognised.OTHER, said="this is broker 3"), Level.FAIL, "this is broker 3"),
        (replace(GOOD, identity=Recognised.NOT_ALLOWED), Level.OK, "only a user with DescribeConfigs"),
        (replace(GOOD, identity=Recognised.UNKNOWN), Level.WARN, "not to which broker it is"),
    ],
)
def test_who_answers_is_judged(answer, level, said):
    found = judge_broker(2, answer, "c", "client.properties")
    assert (found.level, said in found.said) == (level, True), found


def test_one_bootstrap_address_that_works_is_enough():
    dead = replace(GOOD, host="h9", dialled=Dialled.REFUSED)
    assert levels(judge_bootstrap([dead, GOOD], "f")) == [Level.WARN, Level.OK]
    assert levels(judge_bootstrap([dead], "f")) == [Level.FAIL]
    mixed = judge_bootstrap([GOOD, replace(GOOD, cluster_id="d")], "f")
    assert levels(mixed) == [Level.OK, Level.OK, Level.FAIL]


def test_an_address_of_two_brokers_and_a_missing_controller_are_found():
    twice = replace(GOOD, brokers={1: ("h", 1), 2: ("h", 1), 3: ("h", 2)})
    assert "brokers 1 and 2 advertise the same address h:1" in judge_metadata(twice)[-1].said
    assert judge_metadata(replace(GOOD, controller_id=-1))[0].level is Level.FAIL
    assert judge_metadata(replace(GOOD, controller_id=7))[0].level is Level.WARN
    assert judge_metadata(replace(GOOD, brokers={}))[0].level is Level.FAIL
    assert levels(judge_metadata(GOOD)) == [Level.OK]


def test_bootstrap_addresses_are_read_as_kafka_writes_them():
    assert read_addresses("h1:1, [::1]:2,h1:1") == [("h1", 1), ("::1", 2)]
    for wrong in ("", "h1", "h1:x", ":9092", "h1:0", "h1:70000"):
        with pytest.raises(ConfigError):
            read_addresses(wrong)


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"security.protocol": "tls"}, "security.protocol"),
        ({"security.protocol": "SASL_SSL", "ssl.truststore.location": "/none"}, "ssl.truststore.location"),
        ({"security.protocol": "SASL_PLAINTEXT"}, "sasl.mechanism"),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}, "sasl.jaas.config"),
    ],
)
def test_wrong_client_settings_are_named_before_anything_is_dialled(settings, key):
    (found,) = check("h1:9092", settings, "client.properties", 5)
    assert (found.level, found.config) == (Level.FAIL, "client.properties")
    assert key in found.said


# -- a log directory


@pytest.mark.parametrize(
    ("changes", "level", "said"),
    [
        ({}, Level.OK, "50.0 of 100.0 GiB free, ext4 at /data"),
        ({"space": Space(100 * GIB, GIB // 2, 9)}, Level.FAIL, "produce is refused"),
        ({"space": Space(100 * GIB, 5 * GIB, 9)}, Level.WARN, "5.00 GiB free"),
        ({"space": Space(100 * GIB, 50 * GIB, 0)}, Level.FAIL, "no inode"),
        ({"mount": Mount("/", "ext4", False, "/data")}, Level.FAIL, "/data of /etc/fstab is not mounted"),
        ({"mount": Mount("/data", "ext4", True)}, Level.FAIL, "read-only"),
        ({"exists": False}, Level.WARN, "does not exist"),
        ({"uid": 0}, Level.FAIL, "belongs to uid 0, but the broker runs as landline"),
        ({"foreign": ("topic-0",)}, Level.FAIL, "topic-0 in it belong to another user"),
        ({"cluster_id": "other"}, Level.FAIL, "is of cluster other"),
        ({"broker_id": 7}, Level.FAIL, "broker.id=7, the properties have broker.id=1"),
        ({"damage": "damaged"}, Level.FAIL, "damaged"),
        ({"failure": "EIO"}, Level.FAIL, "the running broker does not use it: EIO"),
        ({"cluster_id": "c", "broker_id": 1}, Level.OK, "ext4"),
    ],
)
def test_a_log_directory_is_judged(changes, level, said):
    (found,) = host_judge.judge_log_dir(replace(GOOD_DIR, **changes), FLOOR, OWNER, (1, "c"))
    assert (found.level, said in found.said) == (level, True), found
    assert found.level is Level.OK or found.do


def test_what_is_not_known_is_not_judged():
    facts = replace(GOOD_DIR, uid=0, cluster_id="other", broker_id=7)
    assert levels(host_judge.judge_log_dir(facts, FLOOR, None, (None, None))) == [Level.OK]


def test_the_last_mount_of_a_point_counts_and_its_options_are_both_kinds():
    text = (
        "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/a rw\n"
        "23 22 8:2 / /my\\040data rw - ext4 /dev/b rw\n"
        "24 22 8:3 / /my\\040data rw master:2 - xfs /dev/c ro,x\n"
    )
    assert _mounts(text) == [("/", "ext4", False), ("/my data", "xfs", True)]


# -- the rest of a host


def test_clocks_are_compared_with_zookeepers():
    assert levels(host_judge.judge_clock(ClockFacts(True, 3.0, {1: 200, 2: -300}), 1)) == [Level.OK]
    assert levels(host_judge.judge_clock(ClockFacts(None, 0, {}), 1)) == [Level.OK]
    assert levels(host_judge.judge_clock(ClockFacts(False, 0, {}), 1)) == [Level.WARN]
    off = host_judge.judge_clock(ClockFacts(True, 3.0, {1: 5_000, 2: -90_000}), 1)
    assert levels(off) == [Level.WARN, Level.FAIL]
    assert "this broker's clock was 5.0 s ahead of ZooKeeper's" in off[0].said
    assert "the clock of broker 2 was 90.0 s behind" in off[1].said


@pytest.mark.parametrize(
    ("limit", "used", "level"),
    [(100_000, 50, Level.OK), (1024, 50, Level.WARN), (100_000, 95_000, Level.FAIL), (None, None, Level.OK)],
)
def test_open_files_are_judged_by_what_is_left(limit, used, level):
    assert host_judge.judge_open_files(limit, used, "u.service").level is level


def test_memory_is_judged_for_the_host_the_group_and_the_swap():
    assert levels(host_judge.judge_memory(MemoryFacts(8 * GIB, 4 * GIB))) == [Level.OK]
    tight = MemoryFacts(8 * GIB, 100 << 20, GIB, GIB - 1, 64 << 20)
    assert levels(host_judge.judge_memory(tight)) == [Level.WARN] * 3


def test_certificates_are_judged_by_the_days_left():
    found = [host_judge.judge_certificate("SSL", days, "f").level for days in (-1, 5, 90)]
    assert found == [Level.FAIL, Level.WARN, Level.OK]


def test_versions_that_differ_are_told():
    same = {1: {"inter.broker.protocol.version": "3.9-IV0"}, 2: {"inter.broker.protocol.version": "3.9-IV0"}}
    assert levels(host_judge.judge_versions("1", "1", "x", same)) == [Level.OK]
    mixed = {**same, 2: {"inter.broker.protocol.version": "3.8-IV0"}}
    assert levels(host_judge.judge_versions("2", "1", "x", mixed)) == [Level.WARN, Level.WARN]


@pytest.mark.parametrize(
    ("facts", "level"),
    [
        (ProcessFacts(5, state="RunningAsController"), Level.OK),
        (ProcessFacts(5, state="Starting"), Level.WARN),
        (ProcessFacts(5), Level.WARN),
        (ProcessFacts(5, is_asked=False), Level.OK),
        (ProcessFacts(None, "u", "failed"), Level.FAIL),
        (ProcessFacts(None, "u", "inactive"), Level.WARN),
        (ProcessFacts(None), Level.WARN),
    ],
)
def test_a_broker_that_was_stopped_is_told_from_one_that_failed(facts, level):
    assert host_judge.judge_process(facts).level is level


def test_a_port_is_the_brokers_or_nobodys():
    def level(*, accepts, running):
        return host_judge.judge_port("SSL", 1, accepts=accepts, running=running, config="listeners").level

    assert (level(accepts=True, running=True), level(accepts=False, running=False)) == (Level.OK, Level.OK)
    assert (level(accepts=True, running=False), level(accepts=False, running=True)) == (
        Level.FAIL,
        Level.FAIL,
    )


# -- ZooKeeper


def test_a_server_that_is_down_only_warns_while_the_others_serve():
    down = EnsembleMember(("z1", 2181), Dialled.REFUSED)
    assert judge_server(down, others_serve=True).level is Level.WARN
    assert judge_server(down, others_serve=False).level is Level.FAIL
    up = EnsembleMember(("z1", 2181), Dialled.ANSWERED, "Zookeeper version: 3.8", "leader", "3.8")
    assert judge_server(up, others_serve=False).level is Level.OK
    lonely = replace(up, mode="", said="This ZooKeeper instance is not currently serving requests")
    assert "no quorum" in judge_server(lonely, others_serve=False).said
    mute = replace(up, mode="", said="srvr is not executed because it is not in the whitelist.")
    assert judge_server(mute, others_serve=False).level is Level.WARN


def test_servers_of_two_ensembles_are_found():
    one = EnsembleMember(("z1", 2181), Dialled.ANSWERED, mode="leader")
    other = replace(one, address=("z2", 2181))
    assert judge_ensemble([one, replace(other, mode="follower")]) == []
    assert levels(judge_ensemble([one, other])) == [Level.FAIL]
    assert levels(judge_ensemble([replace(one, mode="standalone"), other])) == [Level.FAIL]
    assert judge_ensemble([replace(one, mode="standalone")]) == []


def test_a_session_without_chroot_cluster_or_controller_is_told():
    good = Asked(10, 1.0, "/c", True, "id", 1)
    assert levels(judge_session(good, sets_acls=False)) == [Level.OK, Level.OK]
    for worse, said in (
        (replace(good, exists=False), "the chroot /c does not exist"),
        (replace(good, controller_id=None), "has no controller"),
        ("no ZooKeeper at z1", "no ZooKeeper at z1"),
    ):
        failed = [each for each in judge_session(worse, sets_acls=False) if each.level is Level.FAIL]
        assert [said in each.said for each in failed] == [True]
    slow = judge_session(replace(good, read_ms=500, cluster_id=None), sets_acls=False)
    assert levels(slow) == [Level.WARN, Level.WARN]


def test_nodes_that_all_may_change_are_told_where_acls_are_wanted():
    open_node = {"/brokers/topics": (Acl("world", "anyone", "rwcda"),)}
    guarded = {"/brokers/topics": (Acl("sasl", "kafka", "rwcda"), Acl("world", "anyone", "r"))}
    assert levels(judge_acls(open_node, sets_acls=True)) == [Level.WARN]
    assert levels(judge_acls(open_node, sets_acls=False)) == [Level.OK]
    assert levels(judge_acls(guarded, sets_acls=True)) == [Level.OK]


def test_a_broker_without_the_inter_broker_listener_is_told():
    registration = BrokerRegistration(2, (Endpoint("h2", 9092, "PLAINTEXT"),))
    found = judge_missing_listener(2, "BROKER", registration)
    assert found.level is Level.FAIL
    assert "has no listener BROKER" in found.said
    assert "it has PLAINTEXT" in found.said


# -- the command


@pytest.mark.parametrize(
    "arguments", [[], ["f", "--bootstrap-server", "h:1"], ["f", "--command-config", "c"]]
)
def test_a_host_is_a_brokers_or_a_clients(arguments):
    said = []
    options = make_parser(Path()).parse_args(["doctor", *arguments])
    assert run(options, {}, said.append) == EXIT_USAGE
    assert "give a broker's FILE" in said[0]


# -- the deadline


def test_a_check_that_hangs_costs_only_its_own_answer():
    release = threading.Event()

    def fails():
        raise OSError("broken")

    try:
        began_s = time.monotonic()
        found = run_all({"good": lambda: 1, "hangs": release.wait, "fails": fails}, began_s + 2)
    finally:
        release.set()
    assert (found["good"], found["hangs"], str(found["fails"])) == (1, None, "broken")
