"""What every unit test leaves as it was."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(autouse=True)
def _logging_stays() -> Iterator[None]:
    """Loggers that are used while caching is on stay as they are then: ``capture_logs`` of later tests would see
    nothing of them.
    """
    yield
    assert not structlog.get_config()["cache_logger_on_first_use"], (
        "the test configured this process's logging"
    )


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command would configure the logging of all tests."""
    monkeypatch.setattr("broker.__main__._logging", lambda: None)
    monkeypatch.setenv("LANDLINE_LOG_LEVEL", "error")
