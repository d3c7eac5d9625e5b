"""The cluster that `tools/test-cluster` brought up, for the modules that use it as it is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from multiprocessing import resource_tracker
from pathlib import Path

import pytest

from lab import Lab
from tests.support.lab_cluster import LAB_ENV, LabTarget, running_cluster
from tests.support.next_release import make_both_releases


@pytest.fixture(scope="session", autouse=True)
def _tracker() -> None:
    """Multiprocessing's helper process outlives every lab: one that begins with a load inside a lab's network ends with
    it, and the next module's load with that.
    """
    resource_tracker.ensure_running()


@pytest.fixture(scope="session")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory with two releases: this checkout's, and one that comes after it."""
    found = tmp_path_factory.mktemp("releases")
    make_both_releases(found, tmp_path_factory.mktemp("next") / "landline")
    return found


@pytest.fixture
def cluster() -> Iterator[LabTarget]:
    with running_cluster() as target:
        yield target


@pytest.fixture
def lab(cluster: LabTarget) -> Lab:
    return Lab(os.environ[LAB_ENV])
