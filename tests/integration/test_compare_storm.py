"""Storms as anybody makes them: a real ensemble, a real controller, a time on the screen and in a file."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]


def storm(*arguments):
    command = [sys.executable, "-m", "compare.storm", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)


def test_so_many_sessions_are_had_by_three_servers_that_are_started_for_it(tmp_path):
    done = storm("zookeeper", "--sessions", 200, "--output", tmp_path / "storms.json")
    assert re.fullmatch(r"200 sessions have their nodes after \d+\.\d\d s\n", done.stdout), done.stderr
    (record,) = json.loads((tmp_path / "storms.json").read_text())["storms"]
    assert (record["storm"], record["members"]) == ("zookeeper", 200)
    assert record["seconds"] > 0


def test_so_many_brokers_are_told_of_each_other_by_a_real_controller(zookeeper, tmp_path):
    where = ("--connect", zookeeper.connect_string, "--output", tmp_path / "storms.json")
    done = storm("controller", "--brokers", 40, *where)
    assert done.stdout.startswith("40 brokers were told of all "), done.stderr
    (record,) = json.loads((tmp_path / "storms.json").read_text())["storms"]
    assert (record["storm"], record["members"]) == ("controller", 40)
    assert record["requests"] >= 40


def test_what_takes_longer_than_its_limit_is_given_up(zookeeper):
    done = storm("controller", "--brokers", 20, "--limit", 0, "--connect", zookeeper.connect_string)
    assert done.returncode == 1
    assert "of 20 brokers were told of all: give a greater --limit" in done.stderr


def test_an_ensemble_that_is_not_there_is_named():
    done = storm("zookeeper", "--sessions", 1, "--connect", "127.0.0.1:1")
    assert done.returncode == 1
    assert "no ZooKeeper at 127.0.0.1:1: " in done.stderr
