"""What fuzzing found once stays mended, and a few seconds of it find nothing new: all of it is ``make fuzz``."""

from __future__ import annotations

import pytest

from tests.fuzz import corpus
from tests.fuzz.__main__ import FOUND, fuzz
from tests.fuzz.targets import TARGETS, Target

SECONDS = 3
# New finds are for `make fuzz`, which takes another each time.
SEED = 1


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_every_kept_input_is_read_or_refused(target: Target) -> None:
    inputs = [*target.seeds(), *corpus.load(target.name)]
    assert inputs
    for data in inputs:
        target.try_(data)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_seconds_of_fuzzing_find_nothing(target: Target, tmp_path) -> None:
    FOUND.mkdir(parents=True, exist_ok=True)
    corpus.unpack([*target.seeds(), *corpus.load(target.name)], tmp_path)
    code, text = fuzz(target, tmp_path, SECONDS, SEED)
    assert code == 0, text[-3000:]
    assert "number_of_executed_units" in text
