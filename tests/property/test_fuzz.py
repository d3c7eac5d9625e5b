"""What fuzzing found once stays mended, and a few seconds of it find nothing new: all of it is ``make fuzz``."""

from __future__ import annotations

import os

import pytest

from tests.fuzz import corpus
from tests.fuzz.__main__ import FOUND, fuzz, new_seed
from tests.fuzz.targets import TARGETS, Target

SECONDS = 5
# Another each time, for the same one goes the same ways; told when something is found.
SEED = int(os.environ.get("FUZZ_SEED", "0")) or new_seed()


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
    again = f"FUZZ_SEED={SEED}, or: make fuzz SEED={SEED} FUZZ_ARGS='--target {target.name}'"
    print(again)
    code, text = fuzz(target, tmp_path, SECONDS, SEED)
    assert code == 0, f"{text[-3000:]}\n{again}"
    assert "number_of_executed_units" in text
