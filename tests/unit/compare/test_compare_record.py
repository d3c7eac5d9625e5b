"""A run's record: its figures, what is counted, and the launcher's events."""

from __future__ import annotations

import json

import pytest
from rich.console import Console

from compare.events import EventsFile
from compare.members import Member
from compare.push import Pushed
from compare.record import RunRecord
from compare.scenarios import Model, Planned, Scenario, System
from compare.table import medians_table, seconds
from compare.watch import Sightings
from tests.support import lifecycle_schema

S = 1_000_000
BEGAN = 1_700_000_000 * S


def member(host, serves=True):
    role = "broker" if serves else "zookeeper"
    name = f"{role}-{host[1:]}"
    return Member(name, role, host[1:], host, "u", (), f"x@{host}", "true", serves, host)


def pushed(who, began_s, *, opened=True, code=0, lines=()):
    began = BEGAN + int(began_s * S)
    times = (began + S // 10, began + S // 5) if opened else (None, began + S // 5)
    return Pushed(who, began, *times, code, lines, 5000 if opened else -1)


def a_record(model=Model.PUSH_SEQUENTIAL, **changes):
    members = [member("h1"), member("h2")]
    seen = Sightings([m.name for m in members])
    seen.note("broker-1", BEGAN + 2 * S, True)
    seen.note("broker-2", BEGAN + 3 * S, True)
    record = RunRecord(
        Planned(7, Scenario.CRASH, System.LANDLINE, model, 2, 3),
        members,
        began_us=BEGAN,
        ended_us=BEGAN + 20 * S,
        first_ready_us=BEGAN + 2 * S,
        all_ready_us=BEGAN + 3 * S,
        fault_us=BEGAN + 4 * S,
        recovered_us=BEGAN + 16 * S,
        cpu_us=1_234_567,
        sightings=seen,
        boots={"h1": [(BEGAN - S, "boot-1"), (BEGAN + 10 * S, "boot-2")]},
    )
    for name, value in changes.items():
        setattr(record, name, value)
    return record


def steps(events, instance):
    return [(event["step"], event["outcome"]) for event in events if event["instance"] == instance]


def test_times_count_from_the_runs_beginning_and_recovery_from_the_fault():
    run = a_record().summary("c")
    assert set(run) == set(lifecycle_schema.RUN["properties"])
    assert (run["first_ready_us"], run["all_ready_us"], run["recovered_us"]) == (2 * S, 3 * S, 12 * S)
    assert (run["hosts"], run["round"], run["cpu_ms"]) == (2, 3, 1235)


@pytest.mark.parametrize(("fault", "recovered"), [(None, None), (BEGAN, None)])
def test_what_never_was_is_null(fault, recovered):
    run = a_record(fault_us=fault, recovered_us=recovered, all_ready_us=None).summary("c")
    assert (run["all_ready_us"], run["recovered_us"]) == (None, None)


def test_a_command_needs_an_open_connection_and_a_refused_one_counts():
    one, two = a_record().serving
    run = a_record(launches=[pushed(one, 0), pushed(two, 1, opened=False, code=255)]).summary("c")
    assert (run["commands"], run["connections"]) == (1, 2)


def test_a_person_that_acted_is_told_of():
    run = a_record(actions=["ran the push again for h2"]).summary("c")
    assert run["person_acted"]
    assert run["actions"] == ["ran the push again for h2"]
    assert not a_record().summary("c")["person_acted"]


def test_what_a_person_only_waited_is_taken_out_of_the_recovery():
    run = a_record(waited_us=9 * S, helped_us=BEGAN + 13 * S, helped={"broker-2"}).summary("c")
    assert (run["recovered_us"], run["waited_us"], run["unaided_us"]) == (12 * S, 9 * S, 3 * S)
    assert a_record().summary("c")["unaided_us"] == 12 * S
    assert a_record(fault_us=None).summary("c")["unaided_us"] is None


def test_without_its_wait_a_recovery_is_no_sooner_than_those_served_who_needed_nobody():
    record = a_record(fault_us=BEGAN, waited_us=15 * S, helped_us=BEGAN + 14 * S, helped={"broker-2"})
    record.sightings = Sightings(["broker-1", "broker-2"])
    record.sightings.note("broker-1", BEGAN + 5 * S, True)
    record.sightings.note("broker-2", BEGAN + 16 * S, True)
    assert record.summary("c")["unaided_us"] == 5 * S


def test_a_push_is_told_step_by_step():
    one, two = a_record().serving
    refused = pushed(two, 1, opened=False, code=255, lines=("broker-2: Connection refused",))
    events = a_record(launches=[pushed(one, 0), refused, pushed(two, 1.5)]).events("r", "c")
    good = [("Connect", "ok"), ("Command", "ok"), ("Await", "ok"), ("Ready", "ok")]
    assert steps(events, "broker-1") == good
    assert steps(events, "broker-2") == [("Connect", "failed"), *good]
    assert next(e for e in events if e["outcome"] == "failed")["detail"] == "broker-2: Connection refused"
    ready = next(e for e in events if e["step"] == "Ready")
    assert (ready["start_us"], ready["end_us"]) == (BEGAN, BEGAN + 2 * S)
    assert [event["bytes"] for event in events if event["instance"] == "broker-1"] == [-1, 5000, 0, 5000]
    assert (ready["bytes"], ready["connections"]) == (5000, 1)
    run = events[-1]
    assert (run["step"], run["bytes"], run["connections"]) == ("Run", 10_000, 3)
    assert {event["host"] for event in events[:-1]} == {"h1"}


def test_what_a_run_does_not_wait_for_is_not_awaited():
    zookeeper = member("h1", serves=False)
    events = a_record(launches=[pushed(zookeeper, 0)]).events("r", "c")
    assert steps(events, "zookeeper-1") == [("Connect", "ok"), ("Command", "ok")]


def test_of_a_host_that_starts_by_itself_only_its_readiness_is_told():
    record = a_record(model=Model.INDEPENDENT)
    events = record.events("r", "c")
    assert steps(events, "broker-2") == [("Ready", "ok")]
    assert record.summary("c")["commands"] == record.summary("c")["connections"] == 0


def test_one_that_never_served_failed():
    record = a_record(sightings=Sightings(["broker-1", "broker-2"]), all_ready_us=None)
    record.launches = [pushed(record.serving[0], 0)]
    events = record.events("r", "c")
    assert steps(events, "broker-1")[-2:] == [("Await", "failed"), ("Ready", "failed")]
    assert events[-1]["outcome"] == "failed"


def test_the_run_comes_last_and_has_its_figures():
    record = a_record()
    *_, run = record.events("r", "c")
    assert (run["step"], run["host"], run["role"], run["instance"]) == (
        "Run",
        "controller",
        "launcher",
        "landline",
    )
    assert run["run"] == record.summary("c")
    assert (run["start_us"], run["end_us"]) == (BEGAN, BEGAN + 20 * S)


def test_a_host_that_was_rebooted_has_another_boot_id_from_then_on():
    record = a_record()
    assert record.boot_id("h1", BEGAN) == "boot-1"
    assert record.boot_id("h1", BEGAN + 11 * S) == "boot-2"
    assert record.boot_id("h9", BEGAN) == ""


@pytest.mark.parametrize("model", [Model.INDEPENDENT, Model.PUSH_SEQUENTIAL])
@pytest.mark.parametrize("recovered_us", [None, BEGAN + 16 * S])
def test_every_event_is_of_the_published_schema(model, recovered_us):
    one, two = member("h1"), member("h2")
    launches = [pushed(one, 0), pushed(two, 1, opened=False, code=255)] if model.is_push else []
    record = a_record(model=model, launches=launches, recovered_us=recovered_us)
    assert lifecycle_schema.faults(record.events("r", "c")) == []


def test_every_event_has_an_id_of_its_own_and_is_kept_once(tmp_path):
    one, two = a_record().serving
    events = a_record(launches=[pushed(one, 0), pushed(two, 1), pushed(two, 5)]).events("r", "c")
    assert len({event["id"] for event in events}) == len(events)
    for event in events:
        assert event["id"] == f"{event['start_id']}:{event['seq']}"
    file = EventsFile(tmp_path / "events.jsonl")
    assert file.append(events) == len(events)
    assert file.append(events) == 0
    assert EventsFile(file.path).append(events) == 0
    assert [json.loads(line) for line in file.path.read_text().splitlines()] == events


def test_medians_stand_model_beside_model():
    runs = [
        event
        for model, all_ready in ((Model.PUSH_PARALLEL, 9), (Model.INDEPENDENT, 3), (Model.INDEPENDENT, 5))
        for event in a_record(model=model, all_ready_us=BEGAN + all_ready * S).events("r", "c")
    ]
    console = Console(width=160, file=None, record=True, quiet=False)
    with console.capture() as shown:
        console.print(medians_table(runs))
    rows = [line.split("│")[1:-1] for line in shown.get().splitlines() if "crash" in line]
    assert [row[3].strip() for row in rows] == ["independent", "push-parallel"]
    assert [row[6].strip() for row in rows] == ["4.00", "9.00"]


def test_a_median_says_how_often_it_never_was():
    assert seconds([S, 3 * S, None]) == "2.00 (1 never)"
    assert seconds([None]) == "-"
