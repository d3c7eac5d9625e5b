"""The report as a browser shows it: on a desk and on a telephone, light and dark, without the network."""

from __future__ import annotations

import pytest

from compare.report.inputs import read_inputs
from compare.report.page import write_report
from compare.simulation.study import study
from tests.support.browser import look_at
from tests.support.comparison_samples import Sample, write

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

WIDTHS = (1280, 380)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    directory = tmp_path_factory.mktemp("page")
    inputs = read_inputs(
        write(directory / "in", Sample(rounds=1, hosts=(3,), scenarios=("cold-start", "crash")))
    )
    return write_report(inputs, study(inputs.runs, 10), directory / "out")


@pytest.fixture(scope="module")
def looked(page, tmp_path_factory):
    return look_at(page, WIDTHS, tmp_path_factory.mktemp("light"))


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_sticks_out_on_the_right(looked, width):
    seen = looked.at[width]
    assert seen["scroll_width"] <= width
    assert seen["too_wide"] == []


@pytest.mark.parametrize("width", WIDTHS)
def test_all_sections_and_pictures_are_there_and_the_text_is_large_enough(looked, width):
    seen = looked.at[width]
    for heading in (
        "The answer",
        "The two ways",
        "What was found",
        "How a start goes",
        "Side by side",
        "More hosts",
        "The simulation",
    ):
        assert heading in seen["headings"]
    assert seen["broken_images"] == []
    assert seen["smallest_text_px"] >= 14


@pytest.mark.parametrize(("width", "pixels"), [(1280, 1500), (380, 2200)])
def test_the_chart_that_carries_the_message_comes_first_and_soon(looked, width, pixels):
    assert 0 < looked.at[width]["first_image_top"] < pixels


def test_the_console_is_silent_and_nothing_was_asked_of_the_network(looked):
    # The page forbids itself all addresses but data:, so that each would be a complaint of the console.
    assert looked.console == []


def test_the_page_is_dark_where_the_reader_s_screen_is(page, looked, tmp_path):
    dark = look_at(page, WIDTHS[:1], tmp_path, dark=True).at[WIDTHS[0]]
    assert looked.at[WIDTHS[0]]["background"] == "rgb(255, 255, 255)"
    assert dark["background"] == "rgb(20, 23, 27)"


def test_the_browser_does_complain_of_a_page_that_asks_the_network_or_is_too_wide(page, tmp_path):
    spoiled = tmp_path / "spoiled.html"
    intruders = '<img src="http://127.0.0.1:9/x.png" alt="x"><div style="width:1500px">wide</div></main>'
    spoiled.write_text(page.read_text(encoding="utf-8").replace("</main>", intruders), encoding="utf-8")
    seen = look_at(spoiled, WIDTHS[:1], tmp_path)
    assert any("Content Security Policy" in line for line in seen.console)
    assert seen.at[1280]["scroll_width"] > 1280
    assert seen.at[1280]["too_wide"] == ["DIV wide"]
    assert seen.at[1280]["broken_images"] == ["x"]
