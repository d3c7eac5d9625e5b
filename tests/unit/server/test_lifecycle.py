"""Lifecycle events of a broker: what they say, and the file that they are kept in."""

from __future__ import annotations

import json
import threading
import time
from itertools import pairwise
from pathlib import Path

import pytest

from broker.server.lifecycle import lifecycle_file as lifecycle
from broker.server.lifecycle.lifecycle_file import Lifecycle, LifecycleFile
from broker.server.lifecycle.startup_steps import StartupCancelled, StartupSteps

TOLD = {"LANDLINE_RUN_ID": "run-1", "LANDLINE_STARTED_BY": "push-parallel"}


@pytest.fixture
def file(tmp_path: Path) -> LifecycleFile:
    return LifecycleFile(tmp_path)


def started(file: LifecycleFile, environment: dict[str, str] | None = None) -> list[dict[str, object]]:
    events = Lifecycle(file, lambda: 7, TOLD if environment is None else environment)
    steps = StartupSteps(threading.Event(), lambda _text: None, events.observe)
    with steps.step("Scheduler"):
        pass
    with steps.step("Bind"):
        pass
    events.end("start")
    return file.unpublished()


def test_a_start_is_told_step_by_step_from_the_process_to_ready(file: LifecycleFile) -> None:
    events = started(file)
    assert [event["step"] for event in events] == ["Process", "Scheduler", "Bind", "Ready"]
    assert {event["kind"] for event in events} == {"start"}
    assert {event["outcome"] for event in events} == {"ok"}
    for earlier, later in pairwise(events[:-1]):
        assert earlier["end_mono_us"] <= later["start_mono_us"] <= later["end_mono_us"]
    assert events[-1]["start_us"] == pytest.approx(events[0]["start_us"], abs=1000)
    assert events[-1]["end_us"] == pytest.approx(time.time() * 1e6, abs=5e6)


def test_events_name_the_run_the_model_the_host_and_the_broker(file: LifecycleFile) -> None:
    event = started(file)[0]
    assert (event["run_id"], event["model"], event["role"], event["instance"]) == (
        "run-1",
        "push-parallel",
        "broker",
        "7",
    )
    assert event["host"]
    assert event["schema"] == lifecycle.SCHEMA_VERSION


@pytest.mark.parametrize(
    ("environment", "model"), [({"INVOCATION_ID": "f00"}, "independent"), ({}, "unknown")]
)
def test_who_started_it_is_guessed_when_nobody_says(
    file: LifecycleFile, environment: dict[str, str], model: str
) -> None:
    assert started(file, environment)[0]["model"] == model


def test_a_failed_step_says_why(file: LifecycleFile) -> None:
    events = Lifecycle(file, lambda: 7, TOLD)
    steps = StartupSteps(threading.Event(), lambda _text: None, events.observe)
    with pytest.raises(OSError, match="in use"), steps.step("Bind"):
        raise OSError("port 9092 is in use")
    events.end("start", outcome="failed", detail="port 9092 is in use")
    assert [(event["step"], event["outcome"], event["detail"]) for event in file.unpublished()[1:]] == [
        ("Bind", "failed", "port 9092 is in use"),
        ("Ready", "failed", "port 9092 is in use"),
    ]


def test_a_cancelled_step_is_not_a_failed_one(file: LifecycleFile) -> None:
    cancel = threading.Event()
    events = Lifecycle(file, lambda: 7, TOLD)
    steps = StartupSteps(cancel, lambda _text: None, events.observe)

    def stop_is_asked_for() -> None:
        cancel.set()
        raise StartupCancelled("stop was asked for")

    with pytest.raises(StartupCancelled), steps.step("LogManager"):
        stop_is_asked_for()
    events.end("start", outcome="cancelled")
    assert file.unpublished()[1]["outcome"] == "cancelled"


def test_a_stop_is_told_in_the_order_of_the_undoing(file: LifecycleFile) -> None:
    events = Lifecycle(file, lambda: 7, TOLD)
    steps = StartupSteps(threading.Event(), lambda _text: None, events.observe)
    steps.undo_by("Scheduler", lambda: None)
    steps.undo_by("SocketServer", lambda: None)
    events.end("start")
    began_ns = time.monotonic_ns()
    steps.undo_all()
    events.end("stop", began_ns)
    stop = [event["step"] for event in file.unpublished() if event["kind"] == "stop"]
    assert stop == ["SocketServer", "Scheduler", "Stopped"]


def test_published_events_are_not_given_again_and_later_ones_are(file: LifecycleFile) -> None:
    events = started(file)
    file.mark_published(str(events[1]["id"]))
    assert file.unpublished() == events[2:]
    file.mark_published(str(events[-1]["id"]))
    again = started(file)
    assert len(again) == 4
    assert {event["start_id"] for event in again}.isdisjoint({event["start_id"] for event in events})


def test_a_line_that_a_power_loss_cut_is_left_out(file: LifecycleFile) -> None:
    events = started(file)
    text = file.path.read_text()
    file.path.write_text(text[:-20])
    assert file.unpublished() == events[:-1]


def test_the_file_keeps_its_newer_half_when_it_grows_large(file: LifecycleFile) -> None:
    lines = [json.dumps({"id": f"old:{number}", "detail": "x" * 1000}) for number in range(5_000)]
    file.path.write_text("".join(f"{line}\n" for line in lines))
    events = started(file)
    assert [event["id"] for event in events[:2_500]] == [f"old:{number}" for number in range(2_500, 5_000)]
    assert [event["step"] for event in events[2_500:]] == ["Process", "Scheduler", "Bind", "Ready"]


def test_a_broker_does_not_fail_for_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "no-directory").touch()
    file = LifecycleFile(tmp_path / "no-directory")
    assert started(file) == []


def test_each_event_is_a_line_of_json(file: LifecycleFile) -> None:
    events = started(file)
    assert [json.loads(line) for line in file.path.read_text().splitlines()] == events
