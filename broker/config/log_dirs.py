"""The directories that `log.dirs`, or else `log.dir`, names. Separate from BrokerConfig for callers that need
nothing else of it.
"""

from __future__ import annotations

from typing import Final

DEFAULT_LOG_DIR: Final = "/tmp/kafka-logs"  # noqa: S108 - Kafka's default


def log_dir_paths(log_dirs: str | None, log_dir: str | None) -> list[str]:
    """The directories, from the values of the two configs. An empty value counts as not set."""
    text = log_dirs or log_dir or DEFAULT_LOG_DIR
    return [entry.strip() for entry in text.split(",") if entry.strip()]
