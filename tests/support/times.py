"""When the tests began."""

from __future__ import annotations

import time
from typing import Final

NOW_MS: Final = time.time_ns() // 1_000_000
"""For the records of tests with real brokers: retention deletes older ones while a test runs, by default 30 s
after the broker's start and every five minutes.
"""
