"""A search for requests that cost more than their elements may: which array, how many, alike or not, what is in them.

Derandomised and short here; ``make cost`` searches for longer and elsewhere (COST_EXAMPLES).
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, given, note, settings, target
from hypothesis import strategies as st

from bench.cost.asked import TOPIC, Asked, everything, request
from bench.cost.asking import Asking, Taken, asking, loaded
from bench.guard.smallest import FOR_BROKERS, element_fields
from broker.config.keys import BROKER_KEYS
from broker.protocol.api_keys import ApiKey

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

EXAMPLES = int(os.environ.get("COST_EXAMPLES", "0"))
FEW_EXAMPLES = 80
MOST_ELEMENTS = 2_000
TRIES = 4
# Passes of the reference's loop, of 0.1 ms. The dearest element takes 0.12; a request has some of its own: a broker's
# configs take 60.
A_REQUEST, AN_ELEMENT, A_KIB = 120.0, 0.5, 2.0
# Every topic's configs are in the answer: 0.6 ms and 1.3 KB each, on a handler of those that compute.
A_NEW_TOPIC = 8.0
# Each naming of a broker or a topic is answered in full until answers are bounded.
UNBOUNDED = set() if "landline.answer.max.bytes" in BROKER_KEYS else {ApiKey.DESCRIBE_CONFIGS}
# The topic that others name stays.
DELETES = {ApiKey.DELETE_TOPICS}
WHAT = [
    asked
    for asked in everything()
    if asked.key not in FOR_BROKERS | UNBOUNDED and (asked.key, asked.version) != (ApiKey.CREATE_TOPICS, 0)
]
VALUES: Mapping[str, st.SearchStrategy[Any]] = {
    "string": st.sampled_from(["", "nowhere", TOPIC, "0", "é" * 20, "x" * 249]),
    "uuid": st.sampled_from([uuid.UUID(int=0), uuid.UUID(int=7)]),
    "int8": st.sampled_from([0, 1, 2, 4, 8, 127]),
    "int16": st.sampled_from([-1, 0, 1, 3, 32_767]),
    "int32": st.sampled_from([-1, 0, 1, 1_000, 2**31 - 1]),
    "int64": st.sampled_from([-2, -1, 0, 1, 2**63 - 1]),
    "bytes": st.sampled_from([b"", bytes(300)]),
    "bool": st.booleans(),
}


@dataclass(frozen=True)
class Shape:
    asked: Asked
    count: int
    element: Mapping[str, Any]

    @property
    def frame(self) -> bytes:
        return request(self.asked, self.count, self.element)


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    asked = draw(st.sampled_from(WHAT))
    known = element_fields(asked.key, asked.version, tuple(asked.path.split(".")))
    chosen = {
        name: draw(VALUES[kafka_type])
        for name, kafka_type in known.items()
        if kafka_type in VALUES and draw(st.booleans())
    }
    if asked.key in DELETES:
        chosen = {name: value for name, value in chosen.items() if value != TOPIC}
    return Shape(asked, draw(st.integers(1, MOST_ELEMENTS)), chosen)


@pytest.fixture(scope="module")
def client() -> Iterator[Asking]:
    with structlog.testing.capture_logs(), asking() as made:
        loaded(made, WHAT)
        yield made


def allowed(shape: Shape) -> float:
    each = A_NEW_TOPIC if shape.asked.key is ApiKey.CREATE_TOPICS else AN_ELEMENT
    return A_REQUEST + each * shape.count + A_KIB * len(shape.frame) / 1024


def least(client: Asking, shape: Shape) -> Taken:
    taken = client.take(shape.asked.key, shape.asked.version, shape.frame)
    for _ in range(TRIES - 1):
        if taken.cpu <= allowed(shape):
            break
        taken = taken.least(client.take(shape.asked.key, shape.asked.version, shape.frame))
    return taken


@settings(
    max_examples=EXAMPLES or FEW_EXAMPLES,
    derandomize=not EXAMPLES,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(shape=shapes())
def test_no_request_costs_more_than_its_elements_may(client: Asking, shape: Shape) -> None:
    taken = least(client, shape)
    note(f"{shape.asked}, {shape.count} elements of {shape.element}: {taken}")
    target(taken.cpu / allowed(shape), label="share of what it may cost")
    assert taken.cpu <= allowed(shape)
