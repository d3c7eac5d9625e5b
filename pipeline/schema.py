"""The shape of a journal record, of a window and of the topics' messages.

One journal entry is one JSON object as ``journalctl -o json`` prints it. Every value is a string, but a field
that is not UTF-8 is an array of bytes, and a repeated field an array of strings. So all fields are read as
strings (Spark keeps the JSON text of an array), and ``transform`` casts them afterwards.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import StringType, StructField, StructType

EVENT_TIME_FIELD: Final = "__REALTIME_TIMESTAMP"
"""The entry's wall clock time: microseconds since 1970, as a decimal string."""

LATEST_MICROS: Final = 253_402_300_799_999_999
"""The last microsecond of the year 9999, where Spark's calendar ends."""

CURSOR_FIELD: Final = "__CURSOR"
"""The journal's id of the entry, unique over all hosts: distinguishes a duplicate from a similar entry."""

CORRUPT_FIELD: Final = "_corrupt"
"""The column for text that ``from_json`` cannot parse."""

UNKNOWN_UNIT: Final = "-"
"""The unit of an entry that no unit wrote: the kernel's, or one from before units started."""

DEFAULT_PRIORITY: Final = 6
"""syslog's info: the priority of an entry without one, as ``journalctl`` shows it."""

JOURNAL_FIELDS: Final = (
    EVENT_TIME_FIELD,
    CURSOR_FIELD,
    "_HOSTNAME",
    "_SYSTEMD_UNIT",
    "_PID",
    "PRIORITY",
    "SYSLOG_IDENTIFIER",
    "_TRANSPORT",
    "MESSAGE",
)

JOURNAL_SCHEMA: Final = StructType(
    [StructField(name, StringType()) for name in (*JOURNAL_FIELDS, CORRUPT_FIELD)]
)

SOURCE_COLUMNS: Final = ("topic", "partition", "offset", "kafka_time")
"""A record's origin; the first three are its identity, in every output."""

RECORD_COLUMNS: Final = (
    *SOURCE_COLUMNS,
    "event_time",
    "event_date",
    "cursor",
    "host",
    "unit",
    "pid",
    "priority",
    "identifier",
    "transport",
    "message",
)
"""The columns of the Parquet output. It is partitioned by ``event_date``."""

HEADER_PREFIX: Final = "landline.dead-letter."
"""The prefix of a dead letter's headers reason, topic, partition, offset and timestamp."""
