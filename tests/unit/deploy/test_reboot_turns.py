"""Which hosts playbooks/reboot.yml reboots, in which order, and how it knows a boot."""

import pytest

from tests.support.deploy_code import load

reboot = load("plugins/filter/reboot.py")
info = load("plugins/modules/host_boot_info.py")

HOUR = 3600


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


def test_a_note_has_the_boot_and_who_holds_the_permit(tmp_path):
    note = tmp_path / "note"
    assert (info.look(str(note), [])["noted"], info.look(str(note), [])["holder"]) == ("", "")
    note.write_text("b1\nroot@control (run 1a2b3c)\n")
    found = info.look(str(note), [str(note)])
    assert (found["noted"], found["holder"], found["needed"]) == ("b1", "root@control (run 1a2b3c)", True)
