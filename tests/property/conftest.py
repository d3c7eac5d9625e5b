"""What the property tests share."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(scope="module")
def quiet() -> Iterator[None]:
    """Nothing is logged: thousands of failovers would be."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()
