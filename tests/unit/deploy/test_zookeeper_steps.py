"""An ensemble that grows, shrinks, rolls and comes back, one step at a time, whatever dies on the way: in a model."""

import itertools
import random

import pytest

from tests.support.zookeeper_world import SETTINGS, World, add, ensemble, installed, steps

SIZES = [(1, 3), (3, 5), (5, 3), (3, 1), (1, 5), (5, 1), (5, 7), (7, 3)]


def ids(count):
    return range(1, count + 1)


def test_a_new_ensemble_starts_all_its_servers_at_once():
    world = World()
    add(world, 1, 2, 3)
    first = world.next_step({1, 2, 3})
    assert (first["action"], first["hosts"]) == ("start", ["h1", "h2", "h3"])


@pytest.mark.parametrize(("before", "after"), SIZES)
def test_an_ensemble_changes_its_size_and_keeps_its_tree(before, after):
    world = installed(*ids(before))
    add(world, *ids(after))
    tree = world.committed
    assert world.deploy(ids(after)) == "none", world.log
    assert world.committed > tree
    assert {node.id for node in world.nodes.values() if node.running} == set(ids(after))
    assert all(not node.enabled and node.zxid == 0 for node in world.nodes.values() if node.id > after)
    assert world.next_step(ids(after))["action"] == "none"


@pytest.mark.parametrize(("before", "after"), [(3, 5), (5, 3), (5, 7)])
def test_from_three_servers_on_zookeeper_serves_all_the_while(before, after):
    world = installed(*ids(before))
    add(world, *ids(after))
    while (step := world.next_step(ids(after)))["action"] != "none":
        assert len(step["hosts"]) == 1
        for _ in world.parts(step):
            world.settle()
            assert any(node.follows for node in world.nodes.values())


@pytest.mark.parametrize(("before", "after"), SIZES)
def test_a_play_that_dies_anywhere_while_hosts_crash_and_reboot_is_continued_and_loses_nothing(before, after):
    for seed in range(30):
        chance = random.Random(seed)
        world = installed(*ids(before))
        add(world, *ids(after))
        for _ in range(12):
            wanted = ids(chance.choice([before, after]))
            world.deploy(wanted, dies=lambda chance=chance: chance.random() < 0.3)
            for node in world.nodes.values():  # a loss of power, of any of them
                if node.running and chance.random() < 0.3:
                    node.running, node.follows = False, 0
            world.settle()
            for node in world.nodes.values():
                if node.enabled and not node.running and chance.random() < 0.7:
                    node.running, node.running_with, node.follows = True, node.configured, 0
                    node.running_lines = node.lines
                    world.settle()
        # Some states of several deaths are refused, with the tree kept; `World._write` fails where it is lost.
        if world.deploy(ids(after)) == "none":
            assert {node.id for node in world.nodes.values() if node.running} == set(ids(after))


@pytest.mark.parametrize(("before", "after"), SIZES)
def test_wherever_the_play_stands_no_two_halves_of_the_network_both_have_a_quorum(before, after):
    world = installed(*ids(before))
    add(world, *ids(after))
    while (step := world.next_step(ids(after)))["action"] != "none":
        for _ in world.parts(step):
            world.settle()
            lists = {node.running_with for node in world.nodes.values() if node.running}
            alive = frozenset(node.id for node in world.nodes.values() if node.running or node.enabled)
            assert not any(ensemble.can_part(a, b, alive) for a, b in itertools.combinations(lists, 2)), (
                world.log
            )


def lose_disk(node):
    node.running, node.follows, node.epoch, node.zxid = False, 0, 0, 0


def test_two_of_three_servers_without_their_disks_are_not_started():
    world = installed(1, 2, 3)
    lose_disk(world.nodes[2])
    lose_disk(world.nodes[3])
    world.settle()
    step = world.next_step({1, 2, 3})
    assert step["action"] == "refuse"
    assert "server 2 (h2), server 3 (h3) lost the tree" in step["why"]
    assert "zookeeper_trusted_id=1" in step["why"]
    assert world.deploy({1, 2, 3}, trusted=1) == "none"
    assert all(node.running for node in world.nodes.values())


@pytest.mark.parametrize("wanted", [{1}, {1, 2, 3}])
def test_a_server_that_runs_and_was_not_set_up_by_the_role_is_refused(wanted):
    """Of its ensemble nothing is known: neither its process nor a configuration tells it."""
    world = World()
    add(world, *wanted)
    for number in wanted:
        node = world.nodes[number]
        node.running, node.epoch, node.zxid, node.running_with = True, 3, 7, frozenset({number})
        node.follows = number
    seen = [{**each, "members": []} for each in world.seen(frozenset(wanted))]
    step = steps.zookeeper_next_step(seen[:1], {each: f"h{each}" for each in wanted})
    assert step["action"] == "refuse"
    assert step["why"].startswith(
        "server 1 (h1): zookeeper.service runs there, and was not set up by this role"
    )
    assert "set broker_zookeeper_connect" in step["why"]


def test_servers_are_named_in_order_whichever_was_seen_first():
    world = installed(1, 2, 3)
    lose_disk(world.nodes[1])
    lose_disk(world.nodes[3])
    world.settle()
    world.nodes = dict(reversed(world.nodes.items()))
    assert "server 1 (h1), server 3 (h3) lost the tree" in world.next_step({1, 2, 3})["why"]


def test_where_disks_were_lost_the_server_with_the_tree_is_not_started_either():
    """The refusal says that nothing was."""
    world = installed(1, 2, 3)
    lose_disk(world.nodes[2])
    lose_disk(world.nodes[3])
    stop(world.nodes[1])
    assert world.deploy({1, 2, 3}) == "refuse"
    assert "nothing was started" in world.log[-1]
    assert not any(node.running for node in world.nodes.values())
    assert world.deploy({1, 2, 3}, trusted=1) == "none"


def test_one_of_three_servers_without_its_disk_is_filled_by_the_others():
    world = installed(1, 2, 3)
    lose_disk(world.nodes[2])
    world.settle()
    assert world.deploy({1, 2, 3}) == "none"
    assert world.nodes[2].zxid == world.committed


def test_empty_servers_do_not_start_while_the_one_that_may_have_the_tree_is_not_seen():
    world = installed(1, 2, 3)
    lose_disk(world.nodes[2])
    lose_disk(world.nodes[3])
    world.nodes[1].reachable = False
    step = world.next_step({1, 2, 3})
    assert step["action"] == "refuse"
    assert "server 1 (h1, not seen)" in step["why"]


def lose_log_disk(node, zxid):
    """What is left is an older snapshot."""
    node.running, node.follows, node.zxid, node.bare = False, 0, zxid, True


def stop(node):
    node.running, node.follows = False, 0


def test_servers_whose_log_disk_was_lost_do_not_outvote_one_that_is_not_seen():
    world = installed(1, 2, 3)
    lose_log_disk(world.nodes[1], 1)
    lose_log_disk(world.nodes[2], 2)
    stop(world.nodes[3])
    world.nodes[3].reachable = False
    step = world.next_step({1, 2, 3})
    assert step["action"] == "refuse"
    assert (
        "server 1 (h1), zxid 0x1, server 2 (h2), zxid 0x2 have snapshots without any transaction log"
        in step["why"]
    )
    assert "nothing was started" in step["why"]
    assert "zookeeper_trusted_id=2" in step["why"]


def test_two_of_three_servers_without_their_log_disks_are_not_started_before_somebody_says_so():
    """They might elect each other before the third one is up; and what only they had may be gone."""
    world = installed(1, 2, 3)
    lose_log_disk(world.nodes[1], 1)
    lose_log_disk(world.nodes[2], 2)
    stop(world.nodes[3])
    assert world.deploy({1, 2, 3}) == "refuse"
    assert not any(node.running for node in (world.nodes[1], world.nodes[2]))
    assert "zookeeper_trusted_id=3" in world.log[-1]
    assert world.deploy({1, 2, 3}, trusted=3) == "none", world.log
    assert {node.zxid for node in world.nodes.values()} == {world.committed}


def test_a_follower_that_was_just_filled_is_waited_for_while_no_leader_is_seen():
    """On the way from one server to three, in an election: nothing was written since, and the third is still empty."""
    world = installed(1, 2, 3)
    for node in world.nodes.values():
        node.follows = 0
    world.nodes[2].bare = True
    world.nodes[2].zxid = world.nodes[1].zxid
    lose_disk(world.nodes[3])
    step = world.next_step({1, 2, 3})
    assert step["action"] == "wait", step["why"]
    world.nodes[2].zxid -= 1
    assert world.next_step({1, 2, 3})["action"] == "refuse"


def test_a_leader_that_noted_its_epoch_after_its_follower_is_still_the_truth():
    world = installed(1, 2, 3)
    for node in world.nodes.values():
        node.follows = 0
    first, second = world.nodes[1], world.nodes[2]
    first.mark = first.epoch, first.zxid
    stop(second)
    second.bare, second.zxid, second.epoch = True, first.zxid, first.epoch + 1
    lose_disk(world.nodes[3])
    assert world.next_step({1, 2, 3})["action"] == "start"


def test_a_leader_that_noted_its_epoch_before_its_first_follower_has_the_tree_is_waited_for():
    """On the way from one server to three. The mark is void already, and the second server is still empty."""
    world = installed(1)
    add(world, 1, 2, 3)
    while not world.node(2).running:
        for _ in world.parts(world.next_step({1, 2, 3})):
            pass
    first, second = world.nodes[1], world.nodes[2]
    assert first.running
    assert not second.zxid
    first.epoch += 1
    step = world.next_step({1, 2, 3})
    assert (step["action"], step["hosts"]) == ("wait", ["h1", "h2"]), step["why"]
    world.settle()
    assert world.deploy({1, 2, 3}) == "none", world.log
    assert all(node.zxid == world.committed for node in world.nodes.values())


def test_servers_of_an_election_that_is_not_under_way_are_not_waited_for():
    world = installed(1, 2, 3)
    for node in world.nodes.values():
        node.follows = 0
    lose_disk(world.nodes[3])
    lose_disk(world.nodes[2])
    assert world.next_step({1, 2, 3})["action"] == "refuse", "the second one does not run"
    world.nodes[2].running = True
    assert world.next_step({1, 2, 3})["action"] == "wait"
    world.nodes[2].running_with = frozenset({2, 3})
    assert world.next_step({1, 2, 3})["action"] == "refuse", "it does not count the first one's vote"


def test_an_election_that_the_newest_tree_has_no_part_in_is_told():
    world = installed(1, 2, 3, 4, 5)
    for node in world.nodes.values():
        node.follows = 0
    for number in (2, 3, 4):
        lose_disk(world.nodes[number])
    world.nodes[2].running = world.nodes[3].running = True
    assert world.next_step(ids(5))["action"] == "wait"
    stop(world.nodes[5])
    world.nodes[1].zxid -= 1
    assert world.next_step(ids(5))["action"] == "refuse"


def test_one_of_three_servers_without_its_log_disk_starts_when_the_others_serve():
    world = installed(1, 2, 3)
    for node in world.nodes.values():
        stop(node)
    lose_log_disk(world.nodes[3], 1)
    first = world.next_step({1, 2, 3})
    assert (first["action"], first["hosts"]) == ("start", ["h1", "h2"])
    assert world.deploy({1, 2, 3}) == "none", world.log
    assert world.nodes[3].zxid == world.committed


def test_with_the_operators_word_servers_without_log_disks_go_on_without_the_one_that_is_gone():
    world = installed(1, 2, 3)
    lose_log_disk(world.nodes[1], 1)
    lose_log_disk(world.nodes[2], 2)
    stop(world.nodes[3])
    world.nodes[3].reachable = False
    world.committed = 2  # what is newer is lost, and the operator knows
    assert world.deploy({1, 2, 3}, trusted=2) == "none", world.log
    assert world.nodes[1].zxid == world.committed > 2


def test_other_ports_of_servers_that_run_are_refused_before_anything_is_touched():
    world = installed(1, 2, 3)
    world.port = 2889
    step = world.next_step({1, 2, 3})
    assert step["action"] == "refuse"
    for number in (1, 2, 3):
        told = (
            f"server {number} (h{number}) listens at h{number}:2888:3888 and is to be at h{number}:2889:3888"
        )
        assert told in step["why"]
    assert "stop zookeeper.service on all hosts" in step["why"]
    world.nodes[2].reachable = False
    assert "server 2 (h2, not seen) listens at h2:2888:3888" in world.next_step({1, 2, 3})["why"]


def test_an_ensemble_that_was_stopped_starts_with_other_ports():
    world = installed(1, 2, 3)
    world.port = 2889
    for node in world.nodes.values():
        stop(node)
    assert world.deploy({1, 2, 3}) == "none", world.log
    assert all(node.follows for node in world.nodes.values())


def test_a_server_that_is_stopped_may_come_back_at_another_address():
    """As the host does that takes the place of one that is gone."""
    world = installed(1, 2, 3)
    stop(world.nodes[3])
    lose_disk(world.nodes[3])
    world.settle()
    world.line = lambda number: f"{'new' if number == 3 else 'h'}{number}:2888:3888"
    assert world.deploy({1, 2, 3}) == "none", world.log
    assert world.nodes[3].zxid == world.committed


def test_ports_that_were_set_back_are_no_change():
    world = installed(1, 2, 3)
    world.port = 2889
    stop(world.nodes[1])
    world.nodes[1].running, world.nodes[1].lines = True, {n: world.line(n) for n in (1, 2, 3)}
    world.nodes[1].running_lines = world.nodes[1].lines
    world.settle()
    assert not world.nodes[1].follows
    world.port = 2888
    assert world.deploy({1, 2, 3}) == "none", world.log
    assert world.nodes[1].follows


def test_a_roll_restarts_followers_first_and_the_leader_last():
    world = installed(1, 2, 3)
    leader = next(node.id for node in world.nodes.values() if node.follows == node.id)
    for node in world.nodes.values():
        node.settings = "old"
    order = []
    while (step := world.next_step({1, 2, 3}))["action"] != "none":
        order += step["hosts"]
        for _ in world.parts(step):
            world.settle()
    assert len(order) == 3
    assert order[-1] == f"h{leader}"


def test_a_roll_that_would_cost_the_quorum_is_refused():
    world = installed(1, 2, 3)
    for node in world.nodes.values():
        node.settings = "old"
    world.nodes[2].running = world.nodes[2].reachable = False
    world.settle()
    step = world.next_step({1, 2, 3})
    assert step["action"] == "refuse"
    assert "Not serving: server 2 (h2, not seen)" in step["why"]


def test_followers_whose_leader_is_not_seen_are_left_as_they_are():
    world = installed(1, 2, 3)
    leader = next(node for node in world.nodes.values() if node.follows == node.id)
    leader.reachable = False
    assert world.next_step({1, 2, 3})["action"] == "none"
    for node in world.nodes.values():
        node.settings = "old"
    step = world.next_step({1, 2, 3})
    assert step["action"] == "refuse"
    assert f"server {leader.id} (h{leader.id}, not seen)" in step["why"]


def test_four_of_five_servers_roll_while_one_is_down():
    world = installed(1, 2, 3, 4, 5)
    for node in world.nodes.values():
        node.settings = "old"
    world.nodes[4].running = world.nodes[4].reachable = False
    world.settle()
    assert world.deploy({1, 2, 3, 4, 5}) == "none", world.log
    assert [node.id for node in world.nodes.values() if node.settings == "old"] == [4]


def test_an_ensemble_that_was_all_off_starts_with_new_settings():
    world = installed(1, 2, 3)
    for node in world.nodes.values():
        node.running, node.follows, node.settings = False, 0, "old"
    assert world.deploy({1, 2, 3}) == "none", world.log
    assert all(node.running and node.settings == SETTINGS for node in world.nodes.values())


def test_a_server_with_a_tree_of_its_own_may_not_join():
    world = installed(1, 2, 3)
    world.node(4).zxid = 99
    add(world, 5)
    step = world.next_step(ids(5))
    assert step["action"] == "refuse"
    assert "server 4 (h4) is to join, but has a tree of its own" in step["why"]


def test_two_ensembles_beside_each_other_are_told():
    world = installed(1)
    for number in (2, 3):
        node = world.node(number)
        node.running, node.running_with, node.zxid = True, frozenset({2, 3}), 5
        node.running_lines = {each: world.line(each) for each in (2, 3)}
    world.nodes[3].follows = world.nodes[2].follows = 2
    step = world.next_step(ids(3))
    assert step["action"] == "refuse"
    assert "two ensembles" in step["why"]
