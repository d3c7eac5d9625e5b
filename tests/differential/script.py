"""A script: named requests, made from the broker under test and from what it answered to earlier steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from broker.protocol.api_keys import APIS, ApiKey
from tests.differential.plain import Plain
from tests.support.valid_requests import World, fields

Fields = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class At:
    """Where a script is: the request's version, the number of the round, and the broker's answers to
    earlier steps, by their names.
    """

    version: int
    round: int
    world: World
    seen: Mapping[str, Plain]

    def name(self, of: str) -> str:
        """The name of a thing that each round has for itself."""
        return f"{of}-{self.round}"


Change = Callable[[At], Fields]


@dataclass(frozen=True, slots=True)
class Step:
    """One request in some versions: the valid request, in which ``change`` replaces fields. ``versions`` are by
    default all that Landline has. A request with ``settles`` is repeated until that is true of the answer. One that
    only reads is asked again while the answers differ, if ``repeats``.

    One that ``pends`` is sent by a connection of its own, and its answer is not awaited. A later step that is made by
    :func:`answer_to` takes the answer. Kafka never answers one that is ``unanswered``: it is not awaited long. ``to``
    is the role of the broker that is asked, where there are several.
    """

    name: str
    key: ApiKey
    change: Change = lambda _at: {}
    versions: Sequence[int] = ()
    settles: Callable[[Plain], bool] | None = None
    repeats: bool = True
    pends: bool = False
    takes: str = ""
    unanswered: bool = False
    to: str = ""

    def body(self, at: At) -> Fields:
        """All fields."""
        return {**fields(self.key, at.version, at.world), **self.change(at)}

    def all_versions(self) -> Sequence[int]:
        """The versions in which it is sent."""
        api = APIS[self.key]
        return self.versions or range(api.min_version, api.max_version + 1)


@dataclass(frozen=True, slots=True)
class Turn:
    """A step in one version."""

    step: Step
    version: int
    round: int


@dataclass(frozen=True, slots=True)
class Script:
    """Steps in order. Each is sent in all its versions before the next one. If ``in_rounds``, all steps are sent once
    in a round instead, in their oldest versions first and in newer ones in each further round, for requests
    that build on one another.
    """

    name: str
    steps: Sequence[Step]
    in_rounds: bool = False

    def __post_init__(self) -> None:
        names = [step.name for step in self.steps]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise ValueError(f"the script {self.name} has two steps named {', '.join(sorted(twice))}")

    def turns(self) -> Iterator[Turn]:
        """Every request of the script."""
        if not self.in_rounds:
            for step in self.steps:
                for version in step.all_versions():
                    yield Turn(step, version, version)
            return
        for number in range(max(len(step.all_versions()) for step in self.steps)):
            for step in self.steps:
                versions = step.all_versions()
                yield Turn(step, versions[min(number, len(versions) - 1)], number)


def answer_to(step: Step) -> Step:
    """The step that takes the answer of one that pends."""
    return replace(step, name=f"answer to: {step.name}", pends=False, takes=step.name)


def constant(**changes: Any) -> Change:
    """The same fields whatever was answered."""
    return lambda _at: changes
