"""Which hosts playbooks/reboot.yml reboots, in which order, how it knows a boot, and whether another run is at it."""

import pytest

from tests.support.deploy_code import load

reboot = load("plugins/filter/reboot.py")
info = load("plugins/modules/host_boot_info.py")

runs = load("plugins/filter/runs.py")

HOUR = 3600
MINE = "root@control (run 1a2b3c)"


def host(name, boot="b1", noted="", age_s=HOUR, needed=False):
    seen = {"boot_id": boot, "noted": noted, "age_s": age_s, "needed": needed}
    return {"inventory_hostname": name, "broker_boot_seen": seen}


def turns(*hosts, only_needed=False, upgrade=False):
    return [
        reboot.reboot_turn(
            hosts, each["inventory_hostname"], only_needed=only_needed, upgrade=upgrade, min_uptime_s=HOUR
        )
        for each in hosts
    ]


def test_a_new_round_is_of_all_hosts_but_those_that_have_just_been_rebooted():
    assert turns(host("a"), host("b", age_s=60)) == ["reboot", "nothing"]


def test_an_interrupted_round_goes_on_with_the_hosts_that_still_run_the_noted_boot():
    assert turns(host("done"), host("next", noted="b1"), host("last", noted="b1")) == [
        "nothing",
        "reboot",
        "reboot",
    ]


def test_a_host_that_was_rebooted_and_not_seen_back_is_waited_for_and_not_rebooted_again():
    assert turns(host("a", boot="b2", noted="b1", age_s=5), host("b", noted="b1")) == ["await", "reboot"]
    assert turns(host("a", boot="b2", noted="b1", needed=True), only_needed=True) == ["await"]


def test_of_hosts_that_say_whether_they_need_it_only_those_are_rebooted():
    assert turns(host("a", needed=True, age_s=5), host("b"), only_needed=True) == ["reboot", "nothing"]


def test_with_an_upgrade_it_is_known_in_the_turn_whether_a_host_needs_it():
    assert turns(host("a"), host("b"), only_needed=True, upgrade=True) == ["reboot", "reboot"]


@pytest.mark.parametrize(
    ("seen", "turn"),
    [
        ({"noted": "b1"}, "reboot"),
        ({"noted": "b1", "boot": "b2"}, "await"),
        ({}, "nothing"),
    ],
    ids=["it is as it was", "the other run waits for it", "the other run saw it back"],
)
def test_a_host_that_another_run_has_rebooted_since_it_was_chosen_is_not_rebooted_again(seen, turn):
    found = host("a", **seen)["broker_boot_seen"]
    assert reboot.reboot_still(found, "reboot", only_needed=False, dry_run=False) == turn


def test_in_its_turn_a_host_that_needs_no_reboot_any_more_is_left_alone_and_a_dry_run_shows_what_was_chosen():
    fresh, needing = host("a")["broker_boot_seen"], host("a", needed=True)["broker_boot_seen"]
    assert reboot.reboot_still(fresh, "reboot", only_needed=True, dry_run=False) == "nothing"
    assert reboot.reboot_still(needing, "reboot", only_needed=True, dry_run=False) == "reboot"
    assert reboot.reboot_still(fresh, "reboot", only_needed=False, dry_run=True) == "reboot"
    assert reboot.reboot_still(fresh, "nothing", only_needed=False, dry_run=True) == "nothing"


def test_a_host_that_was_not_reached_does_not_count():
    away = {"inventory_hostname": "away"}
    found = host("a")
    assert (
        reboot.reboot_turn([away, found], "a", only_needed=False, upgrade=False, min_uptime_s=0) == "reboot"
    )


def test_the_host_of_zookeepers_leader_comes_last_also_if_it_has_the_controller():
    leads = {"zookeeper_looked": {"mode": "leader"}, "broker_seen": {"place": "controller"}}
    follows = {"zookeeper_looked": {"mode": "follower"}, "broker_seen": {"place": "controller"}}
    assert [reboot.reboot_place(each) for each in (leads, follows, {})] == ["leader", "controller", "others"]


def test_the_age_of_a_boot_is_that_of_process_one_whatever_its_name():
    fields = " ".join(["0"] * 18)
    assert info.age_of_boot(f"1 (a ) name) S {fields} 250000 0", "5000.25 1.0\n", 100) == 2500.25


def test_a_note_has_the_boot_and_whose_it_is(tmp_path):
    note = tmp_path / "note"
    found = info.look(str(note), [])
    assert (found["noted"], found["holder"], found["run"]) == ("", "", {})
    for line, run in (("", {}), ('{"pid": 7}\n', {"pid": 7}), ("[7]\n", {}), ("{\n", {})):
        note.write_text(f"b1\n{MINE}\n{line}")
        found = info.look(str(note), [str(note)])
        assert (found["noted"], found["holder"], found["needed"]) == ("b1", MINE, True)
        assert found["run"] == run


def of_run(holder, run=None, permit=None):
    return {"broker_boot_seen": {"holder": holder, "run": run or {}}, "broker_permit_seen": permit}


RUN = {"machine": "control", "since": "2026-11-27 10:03:11Z", "pid": 4711}
PERMIT = {"holder": MINE, "broker": 2, "since_ms": 1795773900000, "remaining_ms": 712_000}


def rivals(state, *hosts, take_over=""):
    return reboot.reboot_rivals(hosts, take_over, lambda _: state)


def test_what_an_ended_run_left_is_gone_on_with_though_it_has_the_permit():
    left = rivals(runs.ENDED, of_run(MINE, RUN), of_run("", permit=PERMIT), {})
    assert left == {"ended": [MINE], "why": ""}
    assert rivals(runs.GOES_ON, of_run(""), {}) == {"ended": [], "why": ""}


@pytest.mark.parametrize("take_over", ["", "1a2b3c"])
def test_a_run_that_goes_on_keeps_another_away_whoever_says_that_it_is_over(take_over):
    found = rivals(runs.GOES_ON, of_run("", permit=PERMIT), of_run(MINE, RUN), take_over=take_over)
    assert found["ended"] == []
    assert found["why"] == (
        "root@control (run 1a2b3c) reboots hosts of these since 2026-11-27 10:03:11Z, from the machine control. "
        "It has the stop permit for broker 2 since 2026-11-27 10:05:00Z. "
        "It goes on, as process 4711 there. When it has ended, run this again"
    )
    between = rivals(runs.GOES_ON, of_run(MINE, RUN))
    assert "from the machine control. It goes on, as process 4711" in between["why"]


def test_a_run_elsewhere_may_go_on_while_it_has_the_permit_until_someone_says_that_it_does_not():
    hosts = (of_run(MINE, RUN, permit=PERMIT),)
    found = rivals(runs.ELSEWHERE, *hosts)
    assert found["ended"] == []
    assert (
        "for broker 2 since 2026-11-27 10:05:00Z. Whether it goes on is not seen from here." in found["why"]
    )
    assert "free in 712 s at most; -e reboot_take_over=1a2b3c does not wait" in found["why"]
    for name in ("1a2b3c", MINE):
        assert rivals(runs.ELSEWHERE, *hosts, take_over=name) == {"ended": [MINE], "why": ""}
    for name in ("2b3c", "1a2b3d", "c)"):
        assert rivals(runs.ELSEWHERE, *hosts, take_over=name) == found


def test_of_a_run_elsewhere_without_the_permit_nothing_is_taken_and_nothing_is_waited_for():
    for permit in (None, {**PERMIT, "holder": "another"}):
        assert rivals(runs.ELSEWHERE, of_run(MINE, RUN, permit=permit)) == {"ended": [], "why": ""}


@pytest.mark.parametrize("since_ms", [-1, 2**62])
def test_a_note_and_a_permit_of_an_earlier_release_or_by_hand_say_no_more_than_the_holder(since_ms):
    words = rivals(runs.ELSEWHERE, of_run(MINE, permit={**PERMIT, "since_ms": since_ms}))["why"]
    assert "(run 1a2b3c) reboots hosts of these. It has the stop permit for broker 2. Whether" in words
