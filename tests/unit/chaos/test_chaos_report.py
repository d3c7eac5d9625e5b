"""What a walk's report says, and that it leaves the page's own text alone."""

from __future__ import annotations

import json
import random
from collections import Counter

from chaos.__main__ import ROOT, figures_of
from chaos.faults import Role
from chaos.gaps import Sample, rows
from chaos.report import fault_rows, gaps_markdown, publish, walk_json, walk_markdown
from chaos.rounds import Round
from chaos.scenarios import Scenario, Step
from chaos.walk import Totals, WalkResult


def done(number, fault, role, seconds, gap_s, finding=""):
    step = Step(number, Scenario(fault, role), 0.0, 0, rebalance=False)
    return Round(step, (1,), seconds, gap_s, finding)


ROUNDS = [
    done(1, "SIGKILL", Role.LEADER, 4.0, 0.5),
    done(2, "power loss", Role.ALL, 9.0, 7.25),
    done(3, "SIGKILL", Role.CONTROLLER, 6.0, 2.5),
    done(4, "SIGKILL", Role.ALL, 5.0, 1.5),
]
RESULT = WalkResult(
    seed=7,
    rounds=ROUNDS,
    totals=Totals(
        sent=1200,
        acked=1100,
        polled=2300,
        failed=3,
        segments=1,
        transactions=Counter(committed=1040, aborted=9),
        fenced=7,
    ),
    seconds=60.0,
)


def test_each_fault_has_a_row_with_its_longest_gap_and_whose_it_was():
    shown = [
        (row.fault, row.rounds, row.median_s, row.longest_gap_s, row.longest_gap_of)
        for row in fault_rows(ROUNDS)
    ]
    assert shown == [("power loss", 1, 9.0, 7.25, "all brokers"), ("SIGKILL", 3, 5.0, 2.5, "controller")]


def test_the_order_of_the_rounds_does_not_matter():
    mixed = random.Random(1).sample(ROUNDS, len(ROUNDS))
    assert fault_rows(mixed) == fault_rows(ROUNDS)


def test_the_section_tells_the_totals_and_every_finding():
    broken = WalkResult(7, ROUNDS, RESULT.totals, findings=["lost: p-1"])
    text = walk_markdown(broken)
    assert "- records acknowledged: 1,100" in text
    assert (
        "- transactions: 1,040 committed, 9 aborted, 0 with an end that their producer does not know" in text
    )
    assert "- transactional producers fenced: 7" in text
    assert "- anomalies: 1" in text
    assert "- **lost: p-1**" in text
    assert "| SIGKILL | 3 | 5.0 | 2.5 | controller |" in text


def test_of_very_many_findings_the_section_tells_the_first_and_how_many_there_are():
    text = walk_markdown(
        WalkResult(7, ROUNDS, RESULT.totals, findings=[f"lost: p-{number}" for number in range(1020)])
    )
    assert "- anomalies: 1020" in text
    assert text.count("- **lost: p-") == 20
    assert text.endswith("- and 1,000 more, all of them in `chaos/results`\n")


def test_only_what_is_between_the_marks_is_written_anew(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# Mine\n\n<!-- walk: begin -->\nold\n<!-- walk: end -->\n\nMine too, a \\1 of mine.\n")
    for text in ("new \\g<0>\n", "newer \\1\n"):
        publish(page, tmp_path / "figures.json", "walk", text, {"n": text})
    expected = "# Mine\n\n<!-- walk: begin -->\nnewer \\1\n<!-- walk: end -->\n\nMine too, a \\1 of mine.\n"
    assert page.read_text() == expected


def test_the_figures_of_other_sections_stay(tmp_path):
    page = tmp_path / "page.md"
    data = tmp_path / "results" / "page.json"
    publish(page, data, "walk", "a\n", walk_json(RESULT))
    publish(page, data, "gaps", "b\n", {"samples": []})
    figures = json.loads(data.read_text())
    assert figures["gaps"] == {"samples": []}
    assert [each["fault"] for each in figures["walk"]["rounds"]] == [
        each.step.scenario.fault for each in ROUNDS
    ]
    assert page.read_text().index("walk: end") < page.read_text().index("gaps: begin")


def test_the_comparison_has_medians_by_product_and_judges_ours_by_the_goal():
    samples = [
        *(Sample("Landline", "SIGKILL", n, gap, 0) for n, gap in enumerate((0.9, 3.5, 1.1))),
        *(Sample("Apache Kafka 3.9.1", "SIGKILL", n, gap, 0) for n, gap in enumerate((16.0, 15.0, 17.0))),
        Sample("Landline", "SIGTERM", 0, 0.75, 1),
    ]
    text = gaps_markdown(rows(samples), 3, {"cpus": "2"})
    assert "| SIGKILL | 1.10 (0.90 to 3.50) | 16.00 (15.00 to 17.00) | met (under 3) |" in text
    assert "| SIGTERM | 0.75 (0.75 to 0.75) |  | missed (under 0.5) |" in text
    assert "anomalies: 1" in text


def test_only_a_published_page_has_its_figures_among_the_committed_ones(tmp_path):
    assert figures_of(tmp_path / "reliability.md") == tmp_path / "reliability.json"
    published = figures_of(ROOT / "docs" / "reliability.md")
    assert published == ROOT / "chaos" / "results" / "reliability.json"
    assert published.exists()
