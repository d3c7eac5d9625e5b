"""The report: which starts are drawn, that its figures are comparison.json's, and that any comparison makes a page."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from compare.figures import comparison_of, read_comparison
from compare.recorded import Run, Step, Unreadable, read_runs, runs_of
from compare.report.__main__ import main
from compare.report.charts.style import COLOURS, DARK
from compare.report.faults import faults_of
from compare.report.inputs import read_inputs
from compare.report.page import write_report
from compare.report.publication import BEGIN, END, with_answer
from compare.report.selection import MOST_PROCESSES, median_round, shown_and_others, timeline
from compare.report.wording import with_interval
from compare.simulation.study import study
from tests.support.comparison_samples import Sample, comparison, events, write

ONE_ROUND = Sample(
    rounds=1, hosts=(2,), scenarios=("cold-start", "crash"), models=("independent", "push-sequential")
)


def a_run(number=1, all_ready=1000, steps=(), **more):
    fixed = {"first_ready_us": 10, "recovered_us": None, "person_acted": False, "start_us": 5_000_000}
    named = {"run_id": f"r{number}", "system": "landline", "model": "independent", "scenario": "cold-start"}
    return Run(
        **{**named, **fixed, "hosts": 3, "round": number, "all_ready_us": all_ready, "steps": steps, **more}
    )


def a_step(name, begin_ms, end_ms, role="broker", instance="1", **more):
    begin, end = (5_000_000 + 1000 * moment for moment in (begin_ms, end_ms))
    fixed = {"host": "h1", "kind": "start", "outcome": "ok", "detail": ""}
    return Step(
        **{
            **fixed,
            "role": role,
            "instance": instance,
            "name": name,
            "start_us": begin,
            "end_us": end,
            **more,
        }
    )


class Seen(HTMLParser):
    """What a page has: its headings, the text of it, the addresses it names, its cells by table."""

    def __init__(self, text):
        super().__init__()
        self.headings, self.addresses, self.texts, self.images, self.tables = [], [], [], [], 0
        self.captions = 0
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        self.addresses += [given[name] for name in ("src", "srcset", "href", "action") if given.get(name)]
        self.images += [given] if tag == "img" else []
        self.tables += tag == "table"
        self.captions += tag == "caption"

    def handle_data(self, data):
        self.texts.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    directory = tmp_path_factory.mktemp("report")
    source = write(directory / "in", ONE_ROUND)
    inputs = read_inputs(source)
    page = write_report(inputs, study(inputs.runs, 30), directory / "out")
    return inputs, page, page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("times", "chosen"),
    [([30, 10, 20], 3), ([40, 10, 20, 30], 3), ([None, 10, 20], 3), ([None, None, 10], 1), ([10, 10, 10], 2)],
)
def test_the_median_round_is_drawn_and_never_counts_as_longest(times, chosen):
    runs = [a_run(number, time) for number, time in enumerate(times, start=1)]
    assert median_round(runs).round == chosen


def test_each_way_is_drawn_on_its_most_hosts_and_others_are_folded():
    runs = runs_of(events(Sample(rounds=3)))
    shown, others = shown_and_others(runs, "cold-start")
    assert [(run.system, run.model, run.hosts) for run in shown] == [
        (system, model, 4)
        for system in ("landline", "spark")
        for model in ("independent", "push-parallel", "push-sequential")
    ]
    assert [run.hosts for run in others] == [2] * 6
    assert not {run.run_id for run in shown} & {run.run_id for run in others}


def test_a_timeline_has_a_line_a_process_with_its_launch_above():
    run = a_run(
        steps=(
            a_step("Connect", 10, 60, "launcher", "broker-1"),
            a_step("Command", 60, 90, "launcher", "broker-1"),
            a_step("Ready", 10, 300, "launcher", "broker-1"),
            a_step("Process", 90, 200),
            a_step("Bind", 200, 290),
            a_step("Ready", 90, 290),
            a_step("Stopped", 400, 500, kind="stop"),
            a_step("Election", 0, 50, "zookeeper", "2"),
        )
    )
    shown = timeline(run)
    assert [line.process for line in shown.lines] == ["zookeeper-2", "broker-1"]
    broker = shown.lines[1]
    assert [(bar.name, bar.begin_ms, bar.end_ms) for bar in broker.launch] == [
        ("Connect", 10, 60),
        ("Command", 60, 90),
    ]
    assert [bar.name for bar in broker.own] == ["Process", "Bind"]
    assert broker.ready_ms == (290,)
    assert shown.end_ms == 290


def test_a_master_s_own_steps_and_its_launch_are_one_line():
    run = a_run(
        system="spark",
        steps=(
            a_step("Command", 0, 90, "launcher", "spark-master"),
            a_step("Process", 90, 200, "spark-master", "h1"),
            a_step("Process", 90, 300, "spark-worker", "h1"),
            a_step("Connect", 20, 50, "launcher", "spark-worker-h1"),
        ),
    )
    assert [line.process for line in timeline(run).lines] == ["spark-master", "spark-worker-h1"]


def test_lines_are_sorted_by_number_and_too_many_are_counted():
    steps = tuple(a_step("Process", 0, 5, instance=str(number)) for number in range(30, 0, -1))
    shown = timeline(a_run(steps=steps))
    assert [line.process for line in shown.lines[:3]] == ["broker-1", "broker-2", "broker-3"]
    assert (len(shown.lines), shown.left_out) == (MOST_PROCESSES, 30 - MOST_PROCESSES)


def test_a_process_that_never_served_has_no_diamond():
    shown = timeline(a_run(steps=(a_step("Process", 0, 5), a_step("Ready", 0, 9, outcome="failed"))))
    assert shown.lines[0].ready_ms == ()


def test_copies_of_an_event_count_once_in_any_order(tmp_path):
    made_up = events(ONE_ROUND)
    path = tmp_path / "events.jsonl"
    path.write_text("".join(json.dumps(event) + "\n" for event in [*reversed(made_up), *made_up[:50]]))
    assert read_runs(path) == runs_of(made_up)


@pytest.mark.parametrize("line", ["{", "[]", "{}", '{"schema": 2}'])
def test_a_line_that_is_no_event_of_this_schema_is_refused_with_its_number(tmp_path, line):
    path = tmp_path / "events.jsonl"
    path.write_text(json.dumps(events(ONE_ROUND)[0]) + f"\n{line}\n")
    with pytest.raises(Unreadable, match=r"events\.jsonl, line 2: "):
        read_runs(path)


def test_fields_of_a_later_writer_are_ignored():
    content = comparison(events(ONE_ROUND))
    content["later"] = 1
    content["groups"][0]["later"] = content["steps"][0]["later"] = 1
    content["groups"][0]["figures"]["all_ready_ms"]["later"] = 1
    assert comparison_of(content) == comparison_of(comparison(events(ONE_ROUND)))


@pytest.mark.parametrize("damage", [{"schema": 2}, {"groups": [{}]}, {"groups": None}])
def test_a_comparison_that_is_none_is_refused(tmp_path, damage):
    path = tmp_path / "comparison.json"
    path.write_text(json.dumps({**comparison(events(ONE_ROUND)), **damage}))
    with pytest.raises(Unreadable, match=r"comparison\.json: not a comparison"):
        read_comparison(path)


def test_every_figure_of_the_page_is_comparison_json_s(made):
    inputs, _, page = made
    text = Seen(page).text
    for group in inputs.comparison.groups:
        for name in (
            ("first_ready_ms", "all_ready_ms", "cpu_ms")
            if group.scenario == "cold-start"
            else ("recovered_ms",)
        ):
            assert with_interval(group.figures[name]) in text, (group, name)
        for action, times in group.actions.items():
            assert f"{action} ({times} time)" in text
    for step in inputs.comparison.steps:
        assert f"{step.median_ms:.1f}" in text
    for name, value in inputs.facts():
        assert f"{name} {value}" in text


def test_a_figure_that_changes_changes_on_the_page(made, tmp_path):
    inputs, _, page = made
    content = comparison(events(ONE_ROUND))
    group = next(group for group in content["groups"] if group["scenario"] == "crash")
    group["figures"]["recovered_ms"]["median"] = 87_654.0
    changed = replace(inputs, comparison=comparison_of(content), runs=inputs.runs[:1])
    again = write_report(changed, study([], 1), tmp_path).read_text(encoding="utf-8")
    assert "87.7 s" in Seen(again).text
    assert "87.7 s" not in Seen(page).text


def test_the_page_loads_nothing_from_anywhere(made):
    seen = Seen(made[2])
    assert seen.addresses
    assert all(address.startswith(("data:", "#")) for address in seen.addresses)
    assert not re.search(r"url\((?!#)|@import|<script", made[2])
    for address in seen.addresses:
        if address.startswith("data:image/svg+xml"):
            svg = base64.b64decode(address.split(",")[1]).decode()
            assert not re.findall(r'(?:href|src)="(?!#)[^"]*"|url\((?!#)', svg)


def test_the_page_is_told_in_order_to_who_hears_it(made):
    seen = Seen(made[2])
    assert seen.headings[0] == 1
    assert seen.headings.count(1) == 1
    assert all(after <= before + 1 for before, after in zip(seen.headings, seen.headings[1:], strict=False))
    assert seen.images
    assert all(len(image["alt"]) > 30 for image in seen.images)
    assert seen.tables == seen.captions > 3


def test_a_picture_lies_beside_the_page_for_each_way_and_chart(made):
    names = {path.stem for path in made[1].parent.glob("*.png")}
    assert names == {
        *("start-landline-independent", "start-landline-push-sequential"),
        *("start-spark-independent", "start-spark-push-sequential"),
        *("cold-starts", "faults", "growth-measured", "growth-simulated"),
    }


def test_the_page_has_each_model_s_colour_as_its_pictures_do(made):
    for model, colour in COLOURS.items():
        assert f"--{model}: {colour};" in made[2]
        assert f"--{model}: {DARK[colour]};" in made[2]


def test_faults_are_told_by_way_with_persons_and_commands(made):
    (fault,) = faults_of(made[0].comparison, "landline")
    assert fault.title == "A killed process"
    alone, pushed = fault.rows
    assert (alone.person, alone.actions, alone.effort) == ("no", "nothing", "0 / 0")
    assert (pushed.person, pushed.actions) == ("in 1 of 1 round", "push the start again (1 time)")
    assert pushed.effort == "3 / 3"


def test_the_summary_says_what_the_page_says_and_shows_the_pictures_beside_it(made):
    inputs, path, page = made
    summary = (path.parent / "summary.md").read_text(encoding="utf-8")
    seen = Seen(page).text
    points = re.findall(r"^- \*\*([^*]+?)\.?\*\* (.+)$", summary, re.MULTILINE)
    assert {"Sooner?", "Sturdier?", "Simpler?", "Cold start", "Its error"} <= {title for title, _ in points}
    for _, sentence in points:
        assert all(piece in seen for piece in re.split("[;.] ?", sentence) if len(piece) > 20), sentence
    for fault in faults_of(inputs.comparison, "spark"):
        for row in fault.rows:
            assert (
                f"| {fault.title} | {row.way} | {row.recovered} | {row.unaided} | {row.all_ready} |"
                in summary
            )
    for picture in re.findall(r"\]\(([\w-]+\.png)\)", summary):
        assert (path.parent / picture).is_file()


def test_where_nothing_was_hit_nothing_is_said_to_be_never_back():
    found = comparison_of(comparison(events(Sample(rounds=1, scenarios=("slow-host",)))))
    (fault,) = faults_of(found, "spark")
    assert {row.recovered for row in fault.rows} == {"nothing to recover"}


def test_a_comparison_of_nothing_still_makes_a_page(tmp_path):
    source = write(tmp_path / "in", Sample(scenarios=()))
    main(["--input", str(source), "--output", str(tmp_path / "out")], standalone_mode=False)
    text = Seen((tmp_path / "out" / "report.html").read_text(encoding="utf-8")).text
    assert "Nothing was measured in both ways" in text
    assert "No fault was measured." in text


def test_a_missing_input_is_named(tmp_path):
    with pytest.raises(SystemExit, match=r"report: .*comparison\.json"):
        main(["--input", str(tmp_path), "--output", str(tmp_path / "out")], standalone_mode=False)


def test_all_that_a_published_page_is_made_of_is_kept(tmp_path):
    source = write(tmp_path / "in", ONE_ROUND)
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{BEGIN}\nyesterday\n{END}\nafter\n")
    target, data = tmp_path / "published", tmp_path / "results"
    main(
        ["--input", str(source), "--output", str(target), "--publish", str(data), "--readme", str(readme)],
        standalone_mode=False,
    )
    assert not (data / "events.jsonl").exists()
    assert read_runs(data / "events.jsonl") == read_runs(source / "events.jsonl")
    main(["--input", str(data), "--output", str(tmp_path / "again")], standalone_mode=False)
    assert (tmp_path / "again" / "report.html").read_bytes() == (target / "report.html").read_bytes()
    text = readme.read_text()
    assert text.startswith(f"before\n{BEGIN}\nOf 8 starts on at most 2 hosts, 1 round of each:")
    assert text.endswith(f"{END}\nafter\n")
    assert "yesterday" not in text


def test_a_readme_without_marks_is_left_as_it_is(made):
    with pytest.raises(ValueError, match="must have"):
        with_answer("nothing of that kind", made[0])


def test_packed_events_that_are_damaged_are_named(tmp_path):
    (tmp_path / "events.jsonl.xz").write_bytes(b"no xz")
    with pytest.raises(Unreadable, match=r"events\.jsonl"):
        read_runs(tmp_path / "events.jsonl")
