"""A plan says what a deploy would do and how long it takes, and knows when it is out of date. No secret is in it."""

import copy
import json

import pytest

from tests.support.deploy_code import load
from tools import plan_table

planned = load("plugins/module_utils/planned_files.py")
turns = load("plugins/modules/unit_turns.py")
info = load("plugins/modules/planned_files_info.py")
plans = load("plugins/filter/deploy_plan.py")

AIM = {"between": "BROKER", "listeners": ["PLAINTEXT", "BROKER"]}
NO_NOTE = {"units": {}, "host_s": None, "install_s": None, "rest_s": None, "look_s": None}
SETTINGS = {"salt": "s", "release": "1.0", "unreached": [], "canary_s": 10, "plan_s": 10.0}


def looked(is_new=False, diff=(), **more):
    same = {"/etc/b.properties": "aa", "/etc/b.env": "bb", "running": "cc"}
    durations = {"start_s": 1.0, "turns_s": [], "host_s": [], "install_s": [], "rest_s": []}
    return {
        "is_new": is_new,
        "diff": list(diff),
        "wanted": dict(same),
        "found": dict(same),
        **durations,
        **more,
    }


def host(number, look, *, speaks="BROKER", **seen):
    unit = f"landline-broker@{number}.service"
    states = {"stopped": [], "outdated": [], "reloading": [], "place": "others", "installed": True}
    states |= {kind: [unit] for kind in seen}
    return {
        "inventory_hostname": f"h{number}",
        "broker_all": [{"id": number, "unit": unit, "config": "/etc/b.properties"}],
        "broker_built": {"release": "1.0"},
        "broker_seen": states,
        "broker_planned": {"results": [look]},
        "broker_would": {
            "results": [{"broker_one": unit, "rc": 75, "stderr": "broker may not stop:\n  why"}]
        },
        "broker_speaks_by": speaks,
        "broker_listens_by": AIM["listeners"],
    }


def plan_of(*hosts, servers=(), **settings):
    rows = plans.broker_actions(hosts, AIM)
    return json.loads(json.dumps(plans.deploy_plan(rows, list(servers), {**SETTINGS, **settings})))


@pytest.mark.parametrize(
    ("seen", "look", "action"),
    [
        ({}, {}, "unchanged"),
        ({}, {"diff": ["/etc/b.properties", "-a=1"]}, "files"),
        ({"reloading": 1}, {}, "live"),
        ({"outdated": 1}, {}, "restart"),
        ({"stopped": 1}, {}, "start"),
        ({"stopped": 1}, {"is_new": True}, "new"),
    ],
)
def test_each_broker_has_what_a_deploy_would_do_with_it(seen, look, action):
    (row,) = plan_of(host(1, looked(**look), **seen))["brokers"]
    assert row["action"] == action
    assert (row["allowed"] is not None) == (action == "restart")


def test_a_broker_that_may_not_stop_now_has_the_reason_in_a_line():
    plan = plan_of(host(1, looked(), outdated=1))
    assert plan["brokers"][0]["allowed"] == {"now": False, "why": "broker may not stop: why"}
    assert "1 would have to wait" in plan_table.summary(plan)
    assert plan_table.allowed(plan["brokers"][0]) == "not now: broker may not stop: why"


def test_measured_turns_make_the_estimate_and_else_starts_do():
    took = [[99.0, None], [8.0, None], [7.0, None], [9.0, None]]
    measured = {"turns_s": took, "host_s": [[2.0, None]], "rest_s": [[30.0, 10.0]]}
    plan = plan_of(host(1, looked(**measured), outdated=1), host(2, looked(**measured), outdated=1))
    assert plan["parts_s"]["roll"] == 2 * (8 + 2)
    assert plan["seconds"] == pytest.approx(3 + 20 + 30 + 10 + 10 * (1 + plans.SERVERS_OF_PLAN))
    assert plan["is_measured"]
    assert "as the last turns" in plan_table.summary(plan)
    slow = plan_of(host(1, looked(start_s=50.0), outdated=1))
    assert slow["brokers"][0]["seconds"] == 50 + plans.STOP_S + plans.TURN_OF_PLAN * 10
    assert "no turn was measured" in plan_table.summary(slow)


def test_a_turn_that_was_measured_over_a_slower_connection_counts_for_less_but_not_its_start():
    assert plans.typical([[23.0, 20.0]], 10.0, 0.0, fixed_s=3.0) == 13
    assert plans.typical([[23.0, 5.0]], 10.0, 0.0, fixed_s=3.0) == 43
    assert plans.typical([[20.0, 0.001]], 10.0, 0.0) == 100
    assert plans.typical([], 10.0, 7.0) == 7


def test_while_listeners_change_each_broker_restarts_more_than_once():
    once = plan_of(host(1, looked(turns_s=[[8.0, None]]), outdated=1))
    twice = plan_of(host(1, looked(turns_s=[[8.0, None]]), outdated=1, speaks="PLAINTEXT"))
    assert twice["brokers"][0]["seconds"] == 2 * once["brokers"][0]["seconds"] == 16


def test_the_table_has_all_brokers_and_lines_once_for_all_that_get_them(capsys, tmp_path):
    diff = ["/etc/landline/broker-{}.properties", "+num.partitions=2", "/e.env", "+LANDLINE_FINGERPRINT=ab"]
    hosts = [host(n, looked(diff=[line.format(n) for line in diff]), outdated=1) for n in (1, 2)]
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan_of(*hosts, host(3, looked()), unreached=["h4"])))
    assert plan_table.main([str(file)]) == 0
    said = capsys.readouterr().out
    assert said.count("+num.partitions=2") == 1
    assert "broker 1, broker 2\n" in said
    assert "FINGERPRINT" not in said
    assert "not reached" in said
    assert "2 restarts, about" in said
    assert plan_table.main([str(tmp_path / "nowhere")]) == 2


def test_a_plan_with_nothing_to_do_says_so_of_what_it_looked_at():
    (said,) = {plan_table.summary(plan_of(host(1, looked()))), plan_table.NOTHING}
    assert said.startswith("Nothing to do with brokers and ZooKeeper.")


def test_a_plan_is_up_to_date_until_a_host_or_the_inventory_says_something_else():
    plan = plan_of(host(1, looked(), outdated=1))
    assert plans.plan_differences(plan, copy.deepcopy(plan)) == []
    by_hand = looked(found={"/etc/b.properties": "ff", "/etc/b.env": "bb", "running": "cc"})
    assert plans.plan_differences(plan, plan_of(host(1, by_hand, outdated=1))) == [
        "broker 1 on h1: another /etc/b.properties on the host"
    ]
    wanted = {"/etc/b.properties": "ff", "/etc/b.env": "ee", "running": "dd"}
    edited = looked(wanted=wanted, diff=["/etc/b.properties", "+a=2"])
    assert plans.plan_differences(plan, plan_of(host(1, edited, outdated=1))) == [
        "broker 1 on h1: another /etc/b.properties that the inventory wants (+a=2)"
    ]
    restarted = looked(found={"/etc/b.properties": "aa", "/etc/b.env": "bb", "running": "ff"})
    assert plans.plan_differences(plan, plan_of(host(1, restarted, outdated=1))) == [
        "broker 1 on h1: another process that runs on the host"
    ]
    assert plans.plan_differences(plan, plan_of(host(1, looked(), reloading=1))) == [
        "broker 1 on h1: restart in the plan, and now live"
    ]


def test_a_plan_of_other_hosts_or_another_release_is_out_of_date():
    plan = plan_of(host(1, looked()))
    two = plan_of(host(1, looked()), host(2, looked()))
    assert plans.plan_differences(plan, two) == ["broker 2 on h2 is not in the plan"]
    assert plans.plan_differences(two, plan) == [
        "broker 2 on h2 is in the plan, and in the inventory no more"
    ]
    away = plan_of(host(1, looked()), unreached=["h2"])
    assert plans.plan_differences(away, two) == ["h2 was not reached then, and is now"]
    assert plans.plan_differences(two, away) == ["h2 was reached then, and is not now"]
    assert plans.plan_differences(plan, plan_of(host(1, looked()), release="2.0")) == [
        "the release to deploy was 1.0 and is 2.0"
    ]
    assert "no plan" in plans.plan_differences({}, plan)[0]


@pytest.mark.parametrize(
    "text",
    ["", "no JSON", "[]", '{"version": 1}', '{"version": 1, "salt": ""}', '{"version": 0, "salt": "s"}'],
)
def test_a_file_that_is_no_plan_of_this_version_has_no_salt(text):
    assert plans.plan_salt(text) == ""
    assert plans.plan_salt(json.dumps(plan_of(host(1, looked())))) == "s"


def test_a_run_by_a_plan_may_start_and_restart_its_brokers_alone():
    plan = plan_of(host(1, looked(), outdated=1), host(2, looked()), host(3, looked(), reloading=1))
    assert plans.planned_units(plan, "h1") == ["landline-broker@1.service"]
    assert plans.planned_units(plan, "h2") == plans.planned_units(plan, "h3") == []


def test_a_run_by_a_plan_prepares_the_hosts_of_new_brokers_alone():
    plan = plan_of(host(1, looked(), outdated=1), host(2, looked(is_new=True), stopped=1))
    assert plans.planned_units(plan, "h1", ["new"]) == []
    assert plans.planned_units(plan, "h2", ["new"]) == ["landline-broker@2.service"]


def server(state, members, **more):
    seen = {"id": 1, "state": state, "members": members, "enabled": True, **more}
    return {
        "inventory_hostname": "h1",
        "zookeeper_looked": seen,
        "zookeeper_planned_step": {"action": "none", "hosts": [], "why": "nothing to do"},
        "zookeeper_planned_members": {"1": "h1"},
    }


@pytest.mark.parametrize(
    ("state", "members", "wanted", "action"),
    [
        ("current", [1], ["h1"], "unchanged"),
        ("changed", [1], ["h1"], "restart"),
        ("current", [1, 2], ["h1"], "restart"),
        ("stopped", [1], ["h1"], "start"),
        ("stopped", [], ["h1"], "new"),
        ("current", [1], [], "leave"),
    ],
)
def test_each_server_of_zookeeper_has_what_a_deploy_would_do_with_it(state, members, wanted, action):
    (row,) = plans.server_actions([server(state, members)], wanted)
    assert row["action"] == action
    assert not row["refused"]


def test_steps_of_zookeeper_take_as_long_as_the_last_ones_and_servers_start_at_once():
    rows = [{"action": "restart", "turns_s": [[5.0, None]], "id": n} for n in (1, 2)]
    others = [
        {"action": "new", "turns_s": [], "id": 3},
        {"action": "start", "turns_s": [[4.0, None]], "id": 4},
    ]
    assert plans.servers_s(rows, 10.0) == 10
    assert plans.servers_s([*rows, *others], 10.0) == 10 + plans.SERVER_S
    assert plans.servers_s([{**rows[0], "action": "unchanged"}], 10.0) == 0


def test_a_plan_that_restarts_servers_is_measured_if_their_steps_are():
    measured = {"turns_s": [[8.0, None]], "host_s": [[2.0, None]], "rest_s": [[30.0, 10.0]]}
    brokers = host(1, looked(**measured), outdated=1)
    found = {"diff": [], "wanted": {}, "found": {}, "turns_s": [[6.0, 10.0]]}
    (row,) = plans.server_actions([server("changed", [1]) | {"zookeeper_planned": found}], ["h1"])
    plan = plan_of(brokers, servers=[row])
    assert (plan["parts_s"]["zookeeper"], plan["is_measured"]) == (6.0, True)
    assert "1 restart and 1 step of ZooKeeper, about" in plan_table.summary(plan)
    (row,) = plans.server_actions([server("changed", [1])], ["h1"])
    assert not plan_of(brokers, servers=[row])["is_measured"]


def test_an_installation_takes_as_long_as_the_slowest_hosts_last_ones():
    hosts = [host(n, looked(install_s=[[took, None]]), outdated=1) for n, took in ((1, 12.0), (2, 14.0))]
    for each in hosts:
        each["broker_seen"]["installed"] = False
    assert plan_of(*hosts)["parts_s"]["install"] == 14
    never = host(3, looked(), outdated=1)
    never["broker_seen"]["installed"] = False
    assert plan_of(*hosts, never)["parts_s"]["install"] == plans.INSTALL_S


# -- files and notes


def test_a_diff_has_no_secret_and_says_when_one_changes():
    before = "a=1\nssl.keystore.password=old-secret\nb=old-secret\n"
    after = "a=2\nssl.keystore.password=new-secret\nb=old-secret\n"
    lines = planned.diff_of("/f", before, after)
    assert lines[0] == "/f"
    assert set(lines[1:]) == {
        "-a=1",
        "+a=2",
        f"-ssl.keystore.password={planned.MASKED}",
        f"+ssl.keystore.password={planned.CHANGED}",
    }
    assert "secret" not in "".join(lines).replace("password", "")
    assert planned.diff_of("/f", before, f"# comment\n{before}") == []
    assert planned.diff_of("/f", None, "a=1\n") == ["/f (new)", "+a=1"]


def test_of_the_brokers_environment_no_value_is_shown_whatever_it_is_called():
    before = "LANDLINE_FINGERPRINT=a\nDB_PASS=hunter2\nTZ=UTC\n"
    after = "LANDLINE_FINGERPRINT=b\nDB_PASS=hunter3\nTZ=UTC\nstray hunter4\n"
    assert planned.diff_of("/f", before, after, secret=True) == [
        "/f",
        "-LANDLINE_FINGERPRINT=a",
        f"-DB_PASS={planned.MASKED}",
        "+LANDLINE_FINGERPRINT=b",
        f"+DB_PASS={planned.CHANGED}",
        f"+{planned.MASKED}",
    ]


def test_digests_of_two_looks_can_be_compared_by_their_salt():
    assert planned.digest_of("a", "s") == planned.digest_of("a", "s")
    assert len({planned.digest_of("a", "s"), planned.digest_of("b", "s"), planned.digest_of("a", "t")}) == 3


def test_a_host_keeps_how_long_its_last_turns_took(tmp_path):
    notes = None
    for number in range(7):
        notes = turns.noted(notes, {**NO_NOTE, "units": {"u": number}, "host_s": number + 2.5, "look_s": 9.0})
    notes = turns.noted(notes, {**NO_NOTE, "rest_s": 40.0})
    assert notes == {
        "units": {"u": [[n, 9.0] for n in (2, 3, 4, 5, 6)]},
        "host": [[2.5, 9.0]] * 5,
        "install": [],
        "rest": [[40.0, None]],
    }
    longer = turns.noted(notes, {**NO_NOTE, "install_s": 12.0, "look_s": 9.0})
    assert longer["install"] == [[12.0, None]], "no look says how quick a host's disk is"
    assert turns.noted({"units": 3, "host": {}}, {**NO_NOTE, "host_s": 1.0})["host"] == [[1.0, None]]
    file = tmp_path / "turns.json"
    file.write_text(json.dumps(notes))
    assert info.durations(str(file), "u")["turns_s"][0] == [2, 9]
    for damaged in ("", "[]", '{"host": ["x"]}', '{"units": []}'):
        file.write_text(damaged)
        assert info.durations(str(file), "u") == {"turns_s": [], "host_s": [], "install_s": [], "rest_s": []}
