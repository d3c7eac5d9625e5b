"""Histories as files: what goes in comes out, several files are one history, and the checker's command reads them."""

from __future__ import annotations

import io
import random
from pathlib import Path

import pytest
from rich.console import Console

from chaos.checker import main
from chaos.history import Acked, Event, Failed, History, Polled, Sent, Trouble
from chaos.history_file import (
    IDEMPOTENT,
    PLAIN,
    HistoryFormatError,
    HistoryWriter,
    read_history,
    write_history,
)
from tests.support.legal_histories import legal_history


def with_times(history: History) -> list[tuple[float, Event]]:
    return [(event.at_s, event) for event in history.events]


def run(*arguments: str) -> tuple[int, str]:
    console = Console(file=io.StringIO(), width=200)
    code = main(arguments, console)
    assert isinstance(console.file, io.StringIO)
    return code, console.file.getvalue()


@pytest.fixture
def legal() -> History:
    return legal_history(random.Random(7), steps=400)


def test_a_history_comes_back_as_it_was_written(legal: History, tmp_path: Path) -> None:
    legal.events += [Failed("p", 'an "odd"\nid é', "why not"), Trouble("c", "raised")]
    write_history(tmp_path / "h.jsonl", legal)
    again = read_history(tmp_path / "h.jsonl")
    assert with_times(again) == with_times(legal)
    assert again.idempotent == legal.idempotent


def test_files_of_several_processes_are_one_history_in_order_of_time(legal: History, tmp_path: Path) -> None:
    producing = [e for e in legal.events if isinstance(e, Sent | Acked | Failed)]
    rest = [e for e in legal.events if not isinstance(e, Sent | Acked | Failed)]
    write_history(tmp_path / "p.jsonl", History(producing, legal.idempotent))
    write_history(tmp_path / "c.jsonl", History(rest))
    again = read_history(tmp_path / "c.jsonl", tmp_path / "p.jsonl")
    assert with_times(again) == with_times(legal)
    assert again.idempotent == legal.idempotent


def test_only_idempotent_producers_are_held_to_their_promise(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path / "h.jsonl", {"a": IDEMPOTENT, "b": PLAIN}):
        pass
    assert read_history(tmp_path / "h.jsonl").idempotent == {"a"}


def test_what_was_flushed_is_there_while_the_writer_lives(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path / "h.jsonl") as writer:
        writer.add(Sent("p", "p-1"))
        assert read_history(tmp_path / "h.jsonl").events == []
        writer.flush()
        assert read_history(tmp_path / "h.jsonl").events == [Sent("p", "p-1")]


def test_a_last_line_that_its_process_did_not_end_is_left_out(legal: History, tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    write_history(path, legal)
    path.write_text(path.read_text()[:-5])
    assert read_history(path).events == legal.events[:-1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the first line is not a history's"),
        ('{"format":"other","version":1,"producers":{},"columns":{}}\n', "a file of"),
        ('{"format":"landline-history","version":9,"producers":{},"columns":{}}\n', "a file of"),
        (
            '{"format":"landline-history","version":1,"producers":{},"columns":{"Sent":["a"]}}\n',
            "has the columns",
        ),
        ('{"format":"landline-history","version":1,"producers":{},"columns":{}}\n["Nothing"]\n', "line 2"),
        (
            '{"format":"landline-history","version":1,"producers":{},"columns":{}}\n["Sent",1,2,3,4,5]\n',
            "line 2",
        ),
    ],
)
def test_a_file_that_is_no_history_is_refused_with_the_line(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    path.write_text(text)
    with pytest.raises(HistoryFormatError, match=message):
        read_history(path)
    code, shown = run(str(path))
    assert code == 2
    assert message in shown.replace("\n", " ")


def test_the_command_is_content_with_a_clean_history(legal: History, tmp_path: Path) -> None:
    write_history(tmp_path / "h.jsonl", legal)
    code, shown = run(str(tmp_path / "h.jsonl"))
    assert code == 0
    assert "no anomaly" in shown
    assert "Polled" in shown


def test_the_command_tells_kinds_and_stories_and_exits_with_1(legal: History, tmp_path: Path) -> None:
    last = [event for event in legal.events if isinstance(event, Polled)][-1]
    legal.events += [Polled(last.consumer, last.partition, last.offset, last.record_id, last.topic)] * 2
    legal.events.append(Trouble("m1", "gave up [once]"))
    write_history(tmp_path / "h.jsonl", legal)
    code, shown = run(str(tmp_path / "h.jsonl"), "--limit", "1")
    assert code == 1
    assert "nonmonotonic-poll" in shown
    assert f"{last.consumer} was handed offset {last.offset} after {last.offset}" in shown
    assert "... and 1 more" in shown
    assert "gave up [once]" in shown
