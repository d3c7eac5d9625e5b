"""The offset that means none, and the special timestamps of ListOffsets: constants of Kafka's protocol."""

from __future__ import annotations

from typing import Final

UNKNOWN_OFFSET: Final = -1
"""An offset that is not known, was not given, or belongs to no record."""
HIGH_WATERMARK: Final = -1
"""Asks DeleteRecords to delete all records before the high watermark."""
LATEST_TIMESTAMP: Final = -1
"""Asks ListOffsets for the log's end; for consumers, the high watermark."""
EARLIEST_TIMESTAMP: Final = -2
"""Asks ListOffsets for the log's start."""
MAX_TIMESTAMP: Final = -3
"""Asks ListOffsets for the first record with the highest timestamp."""
EARLIEST_LOCAL_TIMESTAMP: Final = -4
"""Asks ListOffsets for the start of what the broker's own disk holds."""
LATEST_TIERED_TIMESTAMP: Final = -5
"""Asks ListOffsets for the end of what tiered storage holds."""
