"""`.venv/bin/topics`, the small client of the documentation, against a running broker."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rig.brokers import HOST, unused_port
from rig.landline_broker import REPOSITORY, LandlineStandalone

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LandlineStandalone]:
    with LandlineStandalone(tmp_path_factory.mktemp("topics") / "data") as running:
        yield running


def topics(servers: str, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tools.topics", *arguments, "-b", servers]
    return subprocess.run(command, cwd=REPOSITORY, input=given, capture_output=True, text=True, check=False)


def test_what_is_written_line_by_line_is_read_again(broker: LandlineStandalone) -> None:
    assert topics(broker.bootstrap, "create", "lines", "--partitions", "2").stdout == "topic lines is made\n"
    again = topics(broker.bootstrap, "create", "lines")
    assert (again.returncode, again.stdout) == (0, "topic lines is there already, nothing changed\n")
    written = topics(broker.bootstrap, "write", "lines", given="one\ntwo\nthree\n")
    assert written.stdout == "3 records are written to lines\n"
    assert sorted(topics(broker.bootstrap, "read", "lines").stdout.split()) == ["one", "three", "two"]
    listed = topics(broker.bootstrap, "list").stdout
    assert f"broker 0 at {broker.bootstrap}, controller\n" in listed
    assert "topic lines: 2 partitions, 1 replicas\n" in listed


def test_only_the_newest_are_read_when_so_asked(broker: LandlineStandalone) -> None:
    topics(broker.bootstrap, "create", "numbers")
    topics(broker.bootstrap, "write", "numbers", given="".join(f"{n}\n" for n in range(20)))
    assert topics(broker.bootstrap, "read", "numbers", "--last", "3").stdout.split() == ["17", "18", "19"]


def test_a_topic_that_is_not_there_is_said_in_one_line(broker: LandlineStandalone) -> None:
    done = topics(broker.bootstrap, "read", "nowhere")
    assert done.returncode == 1
    assert done.stderr.splitlines() == ["Error: UNKNOWN_TOPIC_OR_PART: Broker: Unknown topic or partition"]


def test_no_broker_is_said_in_one_line_with_what_to_do(tmp_path: Path) -> None:
    done = topics(f"{HOST}:{unused_port()}", "list")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "-b says where" in line
