"""A line of JSON is JSON however much there is to say."""

from __future__ import annotations

import json

import pytest

from broker.utils.logging_setup import render_json


@pytest.mark.parametrize(
    "values",
    [
        {f"key{number}": "v" * 4096 for number in range(40)},
        {"traceback": "\u0001" * 16_000, "reason": "short"},
        {"reason": "\U0001f600" * 4096, "peer": "10.0.0.1"},
        {f"key{number}": "v" * 60 for number in range(2_000)},
    ],
)
def test_a_line_too_long_loses_of_its_longest_values_and_is_json_still(values: dict[str, str]) -> None:
    line = render_json(None, "", {"event": "something_happened", **values})
    assert len(line) <= 40_000
    told = json.loads(line)
    assert told["event"] == "something_happened"
    for key in ("reason", "peer"):
        if key in values and key in told:
            assert told[key].startswith(values[key][:5])


def test_a_short_line_is_left_as_it_is() -> None:
    assert json.loads(render_json(None, "", {"event": "e", "n": 1})) == {"event": "e", "n": 1}
