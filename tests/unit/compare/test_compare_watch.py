"""Who served when, and when a person comes."""

from __future__ import annotations

from compare.members import Member
from compare.person import Person, started
from compare.settings import PERSON_TRIES
from compare.watch import Question, Sightings, Watch
from rig.wait import wait_until

PATIENCE_US = 10_000_000


def member(host):
    return Member(f"broker-{host}", "broker", "1", host, "u", (), None, "", True, "")


def sightings(**changes):
    seen = Sightings(changes)
    for name, known in changes.items():
        for at_us, serves in known:
            seen.note(name, at_us, serves)
    return seen


def test_all_serve_since_the_last_of_them_does():
    seen = sightings(a=[(10, True)], b=[(20, True)])
    assert seen.all_since(["a", "b"]) == 20
    assert seen.first(["a", "b"]) == 10


def test_nobody_is_not_all():
    assert Sightings(()).all_since([]) is None


def test_one_that_ceased_is_not_ready_until_it_serves_again():
    seen = sightings(a=[(10, True)], b=[(20, True), (30, False)])
    assert seen.all_since(["a", "b"]) is None
    assert seen.ceased_after("b", 25)
    assert not seen.ceased_after("a", 25)
    seen.note("b", 40, True)
    assert seen.all_since(["a", "b"]) == 40
    assert seen.next_after("b", 25) == 40


def test_what_is_seen_twice_is_one_change():
    seen = sightings(a=[(5, False), (10, True), (20, True)])
    assert [change.at_us for change in seen.changes("a")] == [10]


def test_a_watch_notes_what_it_is_told_and_ends():
    serving = set()
    watch = Watch([Question(("a", "b"), lambda: set(serving), 0.001)])
    watch.start()
    serving.add("b")
    wait_until(lambda: watch.seen.serves("b"), what="b serves")
    watch.stop()
    assert not watch.seen.serves("a")


def test_a_person_comes_when_patience_is_over_and_not_before():
    person = Person(PATIENCE_US)
    person.look(0, [(member("h1"), True, False)])
    assert not person.wants_to_act(PATIENCE_US - 1, launching=False, launch_ended_us=0)
    assert person.wants_to_act(PATIENCE_US, launching=False, launch_ended_us=0)


def test_a_person_waits_for_a_launch_and_a_while_after_it():
    person = Person(PATIENCE_US)
    person.look(0, [(member("h1"), True, False)])
    assert not person.wants_to_act(PATIENCE_US, launching=True, launch_ended_us=0)
    assert not person.wants_to_act(PATIENCE_US + 5, launching=False, launch_ended_us=10)


def test_a_process_that_is_there_and_a_host_without_power_are_left_alone():
    person = Person(PATIENCE_US)
    person.look(0, [(member("h1"), True, False), (member("h2"), True, False)])
    person.look(1, [(member("h1"), True, True), (member("h2"), False, False)])
    assert not person.wants_to_act(10 * PATIENCE_US, launching=False, launch_ended_us=0)


def test_a_person_gives_up_after_some_tries():
    person = Person(PATIENCE_US)
    for _ in range(PERSON_TRIES):
        person.look(0, [(member("h1"), True, False)])
        assert person.wants_to_act(PATIENCE_US, launching=False, launch_ended_us=0)
        person.acts("did something")
    person.look(0, [(member("h1"), True, False)])
    assert not person.wants_to_act(PATIENCE_US, launching=False, launch_ended_us=0)
    assert len(person.actions) == PERSON_TRIES


def test_what_a_person_waited_counts_from_the_look_before_it_could_have_acted():
    person = Person(PATIENCE_US)
    person.look(100, [(member("h1"), True, True)])
    person.look(200, [(member("h1"), True, False)])
    person.acts("did something", PATIENCE_US, 0)
    assert person.waited_us == PATIENCE_US - 100
    person.look(PATIENCE_US + 1, [(member("h1"), True, False)], able=False)
    assert not person.wants_to_act(3 * PATIENCE_US, launching=False, launch_ended_us=0)
    person.look(3 * PATIENCE_US, [(member("h1"), True, False)])
    assert person.wants_to_act(3 * PATIENCE_US, launching=False, launch_ended_us=0)
    person.acts("came late", 3 * PATIENCE_US + 7, 3 * PATIENCE_US + 2)
    assert person.waited_us == PATIENCE_US - 100 + 5


def test_the_same_deed_has_the_same_words():
    two = [member("h2"), member("h1"), member("h2")]
    assert started(two, push=True, again=True) == "ran the push again for h1 h2"
    assert started(two, push=True, again=False) == "ran the push for h1 h2, late"
    assert started(two, push=False, again=True) == "started the units of h1 h2"
