"""The first broker of a roll is worse than the others by what they say themselves, and by nothing less."""

import pytest

from tests.support.deploy_code import load
from tests.unit.deploy.test_deploy_modules import broker as http_broker

canary = load("plugins/module_utils/canary.py")
module = load("plugins/modules/broker_canary.py")

METRICS = """
# HELP kafka_network_requestmetrics_requests_total Requests served
kafka_network_requestmetrics_requests_total{{request="PRODUCE"}} {produce}
kafka_network_requestmetrics_errors_total{{request="PRODUCE"}} {errors}
kafka_network_requestmetrics_localtimems_total{{request="PRODUCE"}} {ms}
kafka_server_replicamanager_underreplicatedpartitions 0.0
"""
BUCKET = 'kafka_network_requestmetrics_totaltimems_bucket{{le="{le}",request="{request}"}} {count}\n'


def row(partition, isr, replicas=(1, 2, 3)):
    return {"topic": "orders", "partition": partition, "replicas": list(replicas), "isr": list(isr)}


def look(*leading, produce=0.0, errors=0.0, ms=0.0, state="RunningAsBroker", process="a", restarts=0):
    metrics = METRICS.format(produce=produce, errors=errors, ms=ms)
    status = {"state": state, "leading": list(leading)}
    return canary.look_of(status, metrics, canary.Process(process, restarts))


def why(own, *others):
    return canary.why_worse(1, own, others)


FINE = [look(), look(), look(produce=100.0, ms=200.0)]


def test_one_that_is_as_the_others_is_not_worse():
    assert why(FINE, FINE, FINE) == []
    assert why(FINE) == why(FINE[:1]) == []


def test_one_that_ended_or_does_not_serve_is_worse():
    ended = [look(), look(process="", state="None"), look(process="b", restarts=1)]
    assert why(ended, FINE) == ["its process ended by itself while it was watched, 1 times"]
    assert why([look(), *[look(state="PendingControlledShutdown")] * 2], FINE) == [
        "it does not serve clients any more"
    ]
    assert why([look(), *[canary.look_of(None, "", canary.Process("a"))] * 2], FINE) == [
        "it does not serve clients any more"
    ]
    assert why([look(), look(), canary.look_of(None, "", canary.Process("a"))], FINE) == []


def test_one_that_somebody_restarted_is_judged_by_what_it_did_since_then():
    """A second deploy takes its turn on the host while the first one watches."""
    slow = [look(restarts=2), look(produce=100.0, ms=1e6, restarts=2)]
    assert why(slow, FINE) != []
    assert why([*slow, look(process="b"), look(process="b", produce=100.0, ms=200.0)], FINE) == []
    failing = look(process="b", state="PendingControlledShutdown")
    assert why([*slow, look(process="b"), failing, failing], FINE) == ["it does not serve clients any more"]


def test_one_that_left_an_isr_for_good_is_worse():
    others = [look(row(0, (1, 2, 3))), look(row(0, (2, 3))), look(row(0, (2, 3)))]
    assert why(FINE, others) == ["it has left the ISR of orders-0"]
    back = [look(row(0, (1, 2, 3))), look(row(0, (2, 3))), look(row(0, (1, 2, 3)))]
    assert why(FINE, back) == []
    before = [look(row(0, (2, 3)))] * 3
    assert why(FINE, before) == []


def test_one_whose_followers_fall_behind_is_worse_unless_others_miss_them_too():
    own = [look(row(7, (1, 2, 3))), look(row(7, (1, 2))), look(row(7, (1, 2)))]
    assert why(own, FINE) == ["orders-7, which it leads, lost followers that other leaders have"]
    others = [look(row(8, (1, 2, 3))), look(row(8, (1, 2))), look(row(8, (1, 2)))]
    assert why(own, others) == [], "broker 3 is down for all"


@pytest.mark.parametrize(
    ("errors", "of_others", "is_worse"),
    [(10, 0, True), (4, 0, False), (10, 5, False), (20, 5, True), (10, 200, False)],
)
def test_one_that_fails_more_of_its_requests_is_worse(errors, of_others, is_worse):
    own = [look(), look(), look(produce=400.0, errors=errors, ms=800.0)]
    others = [look(), look(), look(produce=400.0, errors=of_others, ms=800.0)]
    assert bool(why(own, others)) == is_worse
    if is_worse:
        assert f"{errors} of its 400 requests failed" in why(own, others)[0]


@pytest.mark.parametrize(
    ("own_ms", "others_ms", "is_worse"),
    [
        (300.0, 2.0, True),
        (40.0, 2.0, False),
        (300.0, 120.0, False),
        (1200.0, None, True),
        (900.0, None, False),
    ],
)
def test_one_that_is_slower_by_far_is_worse(own_ms, others_ms, is_worse):
    own = [look(), look(), look(produce=100.0, ms=100 * own_ms)]
    others = [look(), look(), look(produce=100.0, ms=100 * others_ms) if others_ms is not None else look()]
    assert bool(why(own, others)) == is_worse
    if is_worse:
        assert f"its PRODUCE requests take {own_ms:.1f} ms on average" in why(own, others)[0]


@pytest.mark.parametrize(
    ("ms", "is_worse"),
    [
        ([0, 900, 1800, 2700], True),
        ([0, 2700, 2703, 2706], False),
        ([0, 2700, 2700, 2706], False),
        ([0, 2700], False),
    ],
)
def test_a_few_slow_requests_count_if_they_are_slow_all_the_time(ms, is_worse):
    own = [look(produce=3.0 * number, ms=took) for number, took in enumerate(ms)]
    assert why(own, FINE) == (
        ["its PRODUCE requests take 300.0 ms on average (the others' at most 2.0 ms)"] if is_worse else []
    )


def tail_of(looks, each, late, bound=268.435, request="PRODUCE"):
    """Looks between which so many requests end in 1 ms, and so many more in at most ``bound``."""
    found = []
    for number in range(looks):
        counts = {"1.04858": each, "134.218": each, str(bound): each + late, "+Inf": each + late}
        lines = [BUCKET.format(le=le, request=request, count=float(n * number)) for le, n in counts.items()]
        found.append(canary.look_of(canary.SERVES, "".join(lines), canary.Process("a")))
    return found


def test_one_of_a_hundred_that_is_slow_counts_if_it_is_so_all_the_time():
    others = tail_of(10, 100, 0)
    assert why(tail_of(10, 100, 3), others) == [
        "one of 100 of its PRODUCE requests takes 268.4 ms (the others' at most 1.0 ms)"
    ]
    assert why(tail_of(10, 1000, 3), others) == [], "three of a thousand"
    assert why(tail_of(10, 100, 3), tail_of(10, 100, 3)) == [], "the others' are as slow"
    assert why(tail_of(10, 20, 1), others) == [], "too few to say"
    assert why(tail_of(10, 100, 3, request="FETCH"), others) == [], "it waits for records"
    at_first = [tail_of(2, 100, 3)[0], *[tail_of(2, 100, 3)[1]] * 9]
    assert why(at_first, others) == [], "connections were new"


def test_one_of_a_hundred_that_takes_seconds_is_worse_whatever_others_say():
    assert why(tail_of(10, 100, 3, bound=2147.48)) == [
        "one of 100 of its PRODUCE requests takes 2147.5 ms (no other has enough of them)"
    ]
    assert why(tail_of(10, 100, 3)) == []


def test_what_a_broker_did_before_it_was_watched_does_not_count():
    own = [look(produce=1000.0, ms=1e6, errors=500), look(), look(produce=1100.0, ms=1e6 + 200, errors=500)]
    assert why(own, FINE) == []


def test_it_is_told_of_which_requests_there_were_enough_to_judge():
    assert canary.judged_by_time(FINE) == ["PRODUCE"]
    assert canary.judged_by_time([look(), look(produce=19.0)]) == []
    assert canary.judged_by_time([look(), look(produce=100.0), look(process="b")]) == []


def test_those_that_do_not_answer_are_not_compared():
    with http_broker({"state": "RunningAsBroker", "leading": []}) as url:
        params = {
            "broker": {"url": url, "unit": "nothing.service", "id": 1},
            "others": [url, "http://127.0.0.1:9"],
            "seconds": 0.2,
            "every_s": 0.1,
            "ca_file": None,
        }
        original, module.process_of = module.process_of, lambda _: canary.Process("a")
        try:
            own, beside = module.watch(params, "")
        finally:
            module.process_of = original
    assert len(own) >= module.LEAST
    assert [len(looks) for looks in beside] == [len(own)]
    assert canary.why_worse(1, own, beside) == []
