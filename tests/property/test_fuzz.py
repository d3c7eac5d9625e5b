"""What fuzzing found once stays mended, and a little of it finds nothing new: all of it is ``make fuzz``.

The targets are the same for Hypothesis, which always runs and shrinks what it finds, and for atheris, which follows
the coverage.
"""

from __future__ import annotations

import os
import random
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from structlog.testing import capture_logs

from broker.protocol.api_keys import ApiKey
from broker.utils.refusal_log import _refusals
from rig.raw_client import request_frame
from tests.fuzz import corpus
from tests.fuzz.__main__ import FOUND, MOST_BYTES, fuzz, new_seed
from tests.fuzz.logins import HANDSHAKE, TOKEN
from tests.fuzz.targets import BY_NAME, TARGETS, Target
from tests.support.mutated_bytes import mutated, scrambled
from tests.support.valid_requests import ALL_VERSIONS, World, body

SECONDS = 1
EXAMPLES = 100
OF_EACH_VERSION = 25
# Of this thread's processor time, on a slow machine that traces all memory; and what a batch may decompress to.
MOST_S = 10
MOST_MEMORY = 128 << 20
# Another each time, for the same one goes the same ways; told when something is found.
SEED = int(os.environ.get("FUZZ_SEED", "0")) or new_seed()


@contextmanager
def bounded() -> Iterator[None]:
    """The end of the block is reached in bounded time, and what was needed at most is bounded too."""
    before, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    began_s = time.thread_time()
    yield
    assert time.thread_time() - began_s < MOST_S
    assert tracemalloc.get_traced_memory()[1] - before < MOST_MEMORY


@contextmanager
def traced() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()


def try_with_its_log(target: Target, data: bytes) -> None:
    _refusals._peers.clear()
    with capture_logs() as lines:
        target.try_(data)
    if target.most_lines is not None:
        shown = [line for line in lines if line["log_level"] != "debug"]
        assert len(shown) <= target.most_lines, shown
        assert not [line for line in shown if line["log_level"] == "error"], shown


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_every_kept_input_is_read_or_refused(target: Target) -> None:
    inputs = [*target.seeds(), *corpus.load(target.name)]
    assert inputs
    for data in inputs:
        try_with_its_log(target, data)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_changed_inputs_are_read_or_refused_in_bounded_time_and_memory(target: Target) -> None:
    seeds = [*target.seeds(), *corpus.load(target.name)]
    for data in seeds:  # the time and memory of imports and caches are no input's
        target.try_(data)

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(mutated(seeds, MOST_BYTES))
    def never_more(data: bytes) -> None:
        with bounded():
            try_with_its_log(target, data)

    with traced():
        never_more()


@pytest.mark.parametrize(
    "api_key", sorted({key for key, _ in ALL_VERSIONS}), ids=lambda key: key.name.lower()
)
def test_each_version_of_each_request_is_read_or_refused_when_it_is_changed(api_key: ApiKey) -> None:
    """Drawn examples would leave out most versions."""
    print(f"FUZZ_SEED={SEED}")
    chance = random.Random(SEED)
    for frame in (
        request_frame(*pair, body(*pair, World()))[4:] for pair in ALL_VERSIONS if pair[0] == api_key
    ):
        for changes in range(1, 5):
            for _ in range(OF_EACH_VERSION):
                # The first four bytes are the API and its version.
                BY_NAME["request"].try_(frame[:4] + scrambled(frame[4:], chance, changes))


def test_an_input_that_takes_much_memory_is_found() -> None:
    with pytest.raises(AssertionError), traced(), bounded():
        bytearray(2 * MOST_MEMORY)


def test_a_line_too_many_for_one_input_is_found() -> None:
    failed = bytes([HANDSHAKE, 0, 1, TOKEN, 5]) + b"\0a\0bc\2"
    try_with_its_log(BY_NAME["sasl"], failed)
    with pytest.raises(AssertionError, match="wrong user name or password"):
        try_with_its_log(replace(BY_NAME["sasl"], most_lines=0), failed)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_seconds_of_fuzzing_find_nothing(target: Target, tmp_path) -> None:
    FOUND.mkdir(parents=True, exist_ok=True)
    corpus.unpack([*target.seeds(), *corpus.load(target.name)], tmp_path)
    again = f"FUZZ_SEED={SEED}, or: make fuzz SEED={SEED} FUZZ_ARGS='--target {target.name}'"
    print(again)
    code, text = fuzz(target, tmp_path, SECONDS, SEED)
    told = "; ".join(line for line in text.splitlines() if "ERROR" in line or line.startswith("Base64"))
    assert code == 0, f"{told}\n{text[-3000:]}\n{again}"
    assert "number_of_executed_units" in text
