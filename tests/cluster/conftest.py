"""The cluster that `tools/test-cluster` brought up, for the modules that use it as it is."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from lab import Lab
from tests.support.lab_cluster import LAB_ENV, LabTarget, running_cluster


@pytest.fixture
def cluster() -> Iterator[LabTarget]:
    with running_cluster() as target:
        yield target


@pytest.fixture
def lab(cluster: LabTarget) -> Lab:
    return Lab(os.environ[LAB_ENV])
