"""A timer for tests of what waits."""

from __future__ import annotations

import pytest

from broker.utils.timer import Timer


@pytest.fixture
def timer():
    timer = Timer()
    yield timer
    timer.stop()
