import pytest

from lab import links, naming
from lab.links import Direction, LinkFault, LinkFaultKind

HOSTS = naming.hosts("lab", 3)


def cut(host, peer=None, direction=Direction.BOTH):
    return LinkFault(LinkFaultKind.CUT, host, peer, direction)


def lose(host, percent):
    return LinkFault(LinkFaultKind.LOSE, host, amount=percent)


def rules(*faults):
    """The rules of the ruleset by hook."""
    found, hook = {}, ""
    for line in links.ruleset(faults, HOSTS).splitlines():
        words = line.split()
        if words[:1] == ["chain"]:
            hook = words[1]
        elif words[:1] in (["iifname"], ["oifname"]):
            found.setdefault(hook, []).append(line.strip())
    return found


def test_without_faults_the_ruleset_only_removes_the_table():
    assert links.ruleset([], HOSTS) == f"table {links.TABLE}\ndelete table {links.TABLE}\n"


def test_a_cut_host_is_dropped_on_the_way_in_and_out():
    assert rules(cut("h1")) == {
        "prerouting": ['iifname "vb-lab-h1" drop'],
        "postrouting": ['oifname "vb-lab-h1" drop'],
    }


def test_a_cut_of_one_direction_lets_the_other_pass():
    assert rules(cut("h1", direction=Direction.OUT)) == {"prerouting": ['iifname "vb-lab-h1" drop']}
    assert rules(cut("h1", direction=Direction.IN)) == {"postrouting": ['oifname "vb-lab-h1" drop']}


def test_a_cut_between_two_hosts_names_both():
    assert rules(cut("h1", "h2", Direction.OUT)) == {
        "forward": ['iifname "vb-lab-h1" oifname "vb-lab-h2" drop']
    }
    assert len(rules(cut("h1", "h2"))["forward"]) == 2


def test_a_cut_from_the_controller_spares_the_other_hosts():
    assert rules(cut("h1", "controller")) == {
        "output": ['oifname "vb-lab-h1" drop'],
        "input": ['iifname "vb-lab-h1" drop'],
    }


@pytest.mark.parametrize(("percent", "in_a_thousand"), [(30, 300), (0.5, 5), (0.01, 1), (100, 1000)])
def test_a_loss_is_a_share_of_the_frames_in_both_directions(percent, in_a_thousand):
    found = rules(lose("h2", percent))
    assert found["prerouting"] == [f'iifname "vb-lab-h2" numgen random mod 1000 < {in_a_thousand} drop']
    assert len(found["postrouting"]) == 1


def test_a_second_loss_replaces_the_first_and_a_second_cut_does_not():
    faults = links.added(links.added((), lose("h1", 10)), lose("h1", 20))
    assert faults == (lose("h1", 20),)
    faults = links.added(links.added((), cut("h1", "h2")), cut("h1", "h3"))
    assert faults == (cut("h1", "h2"), cut("h1", "h3"))


def test_the_same_fault_twice_is_one():
    assert links.added((cut("h1"),), cut("h1")) == (cut("h1"),)


def test_healing_a_host_mends_what_others_were_cut_from_it_too():
    faults = (cut("h1"), cut("h2", "h1"), lose("h1", 5), cut("h2", "h3"))
    assert links.healed(faults, "h1") == (cut("h2", "h3"),)


def test_healing_a_pair_leaves_the_rest():
    faults = (cut("h1"), cut("h2", "h1"), cut("h1", "h3"))
    assert links.healed(faults, "h1", "h2") == (cut("h1"), cut("h1", "h3"))


def test_healing_nobody_in_particular_heals_all():
    assert links.healed((cut("h1"), lose("h2", 5)), None) == ()


def test_a_host_is_cut_off_only_when_the_controller_cannot_reach_it():
    assert links.is_cut_off([cut("h1")], "h1")
    assert links.is_cut_off([cut("h1", "controller", Direction.IN)], "h1")
    assert not links.is_cut_off([cut("h1", "h2")], "h1")
    assert not links.is_cut_off([cut("h2")], "h1")


def test_a_slow_cable_is_a_token_bucket_that_holds_a_whole_segment():
    argv = links.shaping("host0", 64)
    assert argv[argv.index("rate") + 1] == "64kbit"
    assert int(argv[argv.index("burst") + 1]) >= 16 * 1024


def test_a_fault_says_what_it_is():
    texts = [str(fault) for fault in (cut("h1"), cut("h1", "h2", Direction.IN), lose("h1", 5))]
    assert texts == ["cut", "cut h2 in", "loses 5 %"]
