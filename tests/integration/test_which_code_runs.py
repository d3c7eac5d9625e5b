"""Each broker says whether it runs compiled code, and one whose compiled code does not load runs its sources."""

from __future__ import annotations

import os
import re
import shutil
import urllib.request
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest
from confluent_kafka import Producer

from broker.utils.compiled import NOT_COMPILED, compiled_by
from rig.landline_broker import PURE_CODE, REPOSITORY, LandlineBroker, LandlineStandalone
from rig.zookeeper import ZooKeeperServer

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]


def told_by_the_metric(broker: LandlineStandalone | LandlineBroker) -> str:
    with urllib.request.urlopen(f"{broker.http_url}/metrics", timeout=5) as answer:
        found = re.search(r'landline_build_info\{.*compiled="([^"]*)".*\} 1\.0', answer.read().decode())
    assert found
    return found[1]


def told_at_the_start(broker: LandlineStandalone) -> str:
    (line,) = [line for line in broker.log_text().splitlines() if "broker_started" in line]
    found = re.search(r"compiled[\"']?[=:]\s*[\"']?([^\"',]*?)[\"']?(,|\s\w+=|$)", line)
    assert found, line
    return found[1]


def test_a_broker_says_at_its_start_and_in_a_metric_what_code_it_runs(tmp_path: Path) -> None:
    with LandlineStandalone(tmp_path / "data") as broker:
        assert told_by_the_metric(broker) == told_at_the_start(broker) == compiled_by()


@pytest.mark.skipif(PURE_CODE not in os.environ, reason="this run has one code")
def test_every_other_broker_of_these_tests_runs_the_sources(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    for broker_id, code in ((1, compiled_by()), (2, NOT_COMPILED)):
        with LandlineBroker(broker_id, zookeeper.chroot(), tmp_path / str(broker_id)) as broker:
            assert told_by_the_metric(broker) == code


def test_a_broker_whose_compiled_code_does_not_load_runs_its_sources_and_says_so(tmp_path: Path) -> None:
    code = tmp_path / "code"
    shutil.copytree(
        REPOSITORY / "broker", code / "broker", ignore=shutil.ignore_patterns("*.so", "__pycache__")
    )
    (code / "broker" / "compiled.json").write_text('{"compiler": "mypyc 2.4.1", "sources": {}}')
    for module in ("utils/clock", "network/processor", "protocol/codec"):
        (code / "broker" / f"{module}{EXTENSION_SUFFIXES[0]}").write_bytes(b"\x7fELF of another machine")
    with LandlineStandalone(tmp_path / "data", code=code) as broker:
        assert told_by_the_metric(broker) == told_at_the_start(broker) == NOT_COMPILED
        (line,) = [line for line in broker.log_text().splitlines() if "compiled_code_does_not_load" in line]
        assert "clock" in line
        assert "install it again on this host" in line
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        failures: list[object] = []
        producer.produce("topic", b"value", on_delivery=lambda error, _: failures.append(error))
        assert producer.flush(30) == 0
        assert failures == [None]
