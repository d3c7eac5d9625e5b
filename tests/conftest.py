"""Fixtures that all tests share. Servers start when the first test asks for them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from broker.network import processor
from rig.zookeeper import ZooKeeperServer
from tests.support.compiled import LeaveOutStandIns, is_compiled, leave_out_what_patches_compiled_code
from tests.support.peers import Peer, PeerKind

# So that a failure shows what was compared. Before it is imported.
pytest.register_assert_rewrite("tests.support.valid_answers")
# What an example takes says nothing of the code: other tests have the CPUs.
settings.register_profile(
    "untimed", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("untimed")


def pytest_configure(config: pytest.Config) -> None:
    if is_compiled(processor):
        leave_out_what_patches_compiled_code()
        config.pluginmanager.register(LeaveOutStandIns())
    # kafka-python reads its schemas by a deprecated call that warns in importlib's name, not in its own.
    config.addinivalue_line("filterwarnings", "ignore:(open|read)_text is deprecated:DeprecationWarning")
    # A run in the background ignores ^C, and what tests start and interrupt would inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Files with slow tests come first: workers that share out files would else wait for the last one's. Tests that the
    file ``LEAVE_OUT`` names are not run.
    """
    if left_out := os.environ.get("LEAVE_OUT"):
        names = set(Path(left_out).read_text(encoding="utf-8").splitlines())
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in names])
        items[:] = [item for item in items if item.nodeid not in names]
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Notes what failed in the file ``TEST_SUMMARY``, for the last lines of a run of many stages, and what passed in
    ``NOTE_PASSED``, for one that leaves it out.
    """
    if noted := os.environ.get("NOTE_PASSED"):
        passed = [report.nodeid for report in terminalreporter.stats.get("passed", [])]
        Path(noted).write_text("".join(f"{name}\n" for name in passed), encoding="utf-8")
    if summary := os.environ.get("TEST_SUMMARY"):
        with Path(summary).open("a", encoding="utf-8") as lines:
            for outcome in ("failed", "error"):
                for report in terminalreporter.stats.get(outcome, []):
                    crash = getattr(report.longrepr, "reprcrash", None)
                    reason = str(crash.message if crash else report.longrepr).strip().partition("\n")[0]
                    lines.write(f"{outcome} {report.nodeid}: {reason}\n")


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """One ZooKeeper for the whole run (per xdist worker): take ``zookeeper.chroot()``, and leave it running."""
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture
def own_zookeeper(tmp_path: Path) -> Iterator[ZooKeeperServer]:
    """A ZooKeeper of this test alone, to be stopped, killed and frozen."""
    with ZooKeeperServer(tmp_path / "zookeeper") as server:
        yield server


# Against Kafka the same tests show that they ask for what Kafka does: PEERS=all, after they were changed.
PEERS = list(PeerKind) if os.environ.get("PEERS") == "all" else [PeerKind.LANDLINE]


@pytest.fixture(params=PEERS, ids=lambda kind: kind.value)
def peer(request: pytest.FixtureRequest, zookeeper: ZooKeeperServer, tmp_path: Path) -> Peer:
    """Landline, and with ``PEERS=all`` in the environment Apache Kafka 3.9.1 in turn."""
    kind: PeerKind = request.param
    return Peer(kind, zookeeper, tmp_path / "brokers")
