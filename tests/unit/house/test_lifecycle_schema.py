"""The contract of lifecycle events, docs/lifecycle.schema.json, holds for all that write, store or read them.

These parts are independent of one another, so each has its own code for the event's fields.
"""

from __future__ import annotations

import dataclasses
import json
import lzma
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from pyspark.sql.types import ArrayType, DataType, StructType

from broker.server.lifecycle import lifecycle_file
from broker.server.lifecycle.startup_steps import StepRecord
from compare import events as written
from compare import recorded
from compare.members import told_to_brokers
from compare.scenarios import Model, Scenario, System
from pipeline import comparison
from pipeline.lifecycle import CHECKS, EVENT_SCHEMA
from tests.support import lifecycle_events
from tests.support import lifecycle_schema as contract

PUBLISHED = contract.ROOT / "compare/results/events.jsonl.xz"


def test_the_contract_is_a_json_schema() -> None:
    Draft202012Validator.check_schema(contract.SCHEMA)


def test_a_missing_an_unknown_and_a_wrong_field_are_faults() -> None:
    event = contract.least_event()
    assert contract.faults([event]) == []
    without = {name: value for name, value in event.items() if name != "boot_id"}
    assert contract.faults([without]) == ["Bind: 'boot_id' is a required property"]
    assert "'colour' was unexpected" in contract.faults([{**event, "colour": "red"}])[0]
    assert "'1' is not of type 'integer'" in contract.faults([{**event, "bytes": "1"}])[0]
    assert "'crashed' is not one of" in contract.faults([{**event, "outcome": "crashed"}])[0]
    assert "is not start_id:seq" in contract.faults([{**event, "id": "another:1"}])[0]


def test_a_run_says_what_became_of_it() -> None:
    event = contract.least_event("Run")
    assert contract.faults([event]) == []
    del event["run"]
    assert contract.faults([event]) == ["Run: 'run' is a required property"]


def test_a_reader_takes_what_it_does_not_know_and_refuses_another_version() -> None:
    assert contract.is_readable({**contract.least_event(), "colour": "red"})
    assert not contract.is_readable({**contract.least_event(), "schema": contract.VERSION + 1})


def test_a_brokers_events_are_of_the_contract(tmp_path: Path) -> None:
    file = lifecycle_file.LifecycleFile(tmp_path)
    life = lifecycle_file.Lifecycle(file, lambda: 7, {})
    life.observe(StepRecord("start", "Bind", 1, 2, "failed", "port 9092 is in use"))
    life.end("start")
    life.end("stop")
    events = file.unpublished()
    assert [event["step"] for event in events] == ["Process", "Bind", "Ready", "Stopped"]
    assert contract.faults(events) == []


def test_what_a_launcher_tells_is_of_the_contract() -> None:
    story = written.Story("run-1", "run-1.launch1", "h1", "launcher", "broker-2", "push-parallel", "")
    story.add("Connect", 1_000, 2_000, sent=10, connections=1)
    story.add("Command", 2_000, 1_000, detail="exit code 1")
    story.add("Run", 1_000, 3_000, run=contract.least_event("Run")["run"])
    assert contract.faults(story.events) == []


def test_a_broker_tells_of_its_start_what_it_was_told(tmp_path: Path) -> None:
    told = dict(line.split("=") for line in told_to_brokers("run-1", "push-parallel"))
    file = lifecycle_file.LifecycleFile(tmp_path)
    lifecycle_file.Lifecycle(file, lambda: 7, told).end("start")
    assert {(event["run_id"], event["model"]) for event in file.unpublished()} == {("run-1", "push-parallel")}


def test_what_tests_make_up_is_of_the_contract() -> None:
    assert contract.faults(lifecycle_events.events()) == []


def test_what_was_published_can_still_be_read() -> None:
    events = [json.loads(line) for line in lzma.decompress(PUBLISHED.read_bytes()).splitlines()]
    names = ("role", "model", "kind", "step", "outcome")
    of_each_kind = {tuple(event[name] for name in names): event for event in events}.values()
    assert len(of_each_kind) > 100
    assert [event["id"] for event in of_each_kind if not contract.is_readable(event)] == []


def test_writers_and_readers_speak_of_the_same_version() -> None:
    assert {lifecycle_file.SCHEMA_VERSION, recorded.SCHEMA_VERSION} == {contract.VERSION}


def test_a_report_reads_the_fields_of_the_contract_and_no_other() -> None:
    step, whole = contract.least_event(), contract.least_event("Run")
    (run,) = recorded.runs_of([step, whole])
    (read,) = run.steps
    told = {"name": step["step"], **step}
    assert dataclasses.asdict(read) == {
        field.name: told[field.name] for field in dataclasses.fields(recorded.Step)
    }
    for field in dataclasses.fields(recorded.Run):
        if field.name != "steps":
            assert getattr(run, field.name) == {**whole, **whole["run"]}[field.name], field.name


def test_who_compares_has_the_names_of_the_contract() -> None:
    assert {*Model, "unknown"} == contract.values("model")
    assert {*recorded.MODELS} == {*Model}
    assert {*recorded.MEMBER_ROLES} < contract.values("role")
    assert {*Scenario} == contract.values("scenario", contract.RUN)
    assert {*System} == contract.values("system", contract.RUN)


def spark_columns(struct: StructType) -> dict[str, object]:
    return {field.name: (spark_name(field.dataType), field.nullable) for field in struct.fields}


def spark_name(data_type: DataType) -> object:
    if isinstance(data_type, StructType):
        return spark_columns(data_type)
    if isinstance(data_type, ArrayType):
        return ("array", spark_name(data_type.elementType), data_type.containsNull)
    return data_type.simpleString()


def contract_columns(of: dict) -> dict[str, object]:
    return {
        name: (contract_name(field), name not in of["required"] or "null" in field.get("type", ()))
        for name, field in of["properties"].items()
    }


def contract_name(field: dict) -> object:
    if "$ref" in field:
        return contract_columns(contract.RUN)
    if field["type"] == "array":
        return ("array", contract_name(field["items"]), False)
    if "integer" in field["type"]:
        return {"int32": "int", "int64": "bigint"}[field["format"]]
    return field["type"]


def test_the_lake_has_the_columns_of_the_contract() -> None:
    assert spark_columns(EVENT_SCHEMA) == contract_columns(contract.SCHEMA)


def test_the_lake_lets_in_what_the_contract_does() -> None:
    fields = contract.SCHEMA["properties"]
    words = {name: ", ".join(f"'{word}'" for word in fields[name]["enum"]) for name in ("kind", "outcome")}
    (needed,) = contract.SCHEMA["then"]["required"]
    when = contract.SCHEMA["if"]["properties"]["step"]["const"]
    assert set(CHECKS) == {
        f"schema = {contract.VERSION}",
        *(f"{name} IN ({of_it})" for name, of_it in words.items()),
        f"step <> '{when}' OR {needed} IS NOT NULL",
    }


def test_the_figures_are_made_of_fields_of_the_contract() -> None:
    known = contract.SCHEMA["properties"].keys() | contract.RUN["properties"].keys()
    assert {field.name for field in dataclasses.fields(comparison.Run)} <= known


@pytest.mark.parametrize("of", [contract.SCHEMA, contract.RUN], ids=["event", "run"])
def test_the_document_shows_the_contract(of: dict) -> None:
    assert contract.table(of) in (contract.ROOT / "docs/lifecycle.md").read_text(encoding="utf-8")
    for name, field in of["properties"].items():
        unexplained = [word for word in field.get("enum", ()) if f"`{word}`" not in field["description"]]
        assert unexplained == [], name
