"""Version 1 of the lifecycle events (docs/lifecycle.md) as a lake's schema."""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

TOPIC: Final = "landline.lifecycle"
DEAD_LETTERS: Final = "landline.lifecycle.dead-letters"

_TEXTS: Final = StringType()
RUN_SCHEMA: Final = StructType(
    [
        *(StructField(name, _TEXTS, nullable=False) for name in ("comparison_id", "scenario", "system")),
        *(StructField(name, IntegerType(), nullable=False) for name in ("hosts", "round")),
        *(
            StructField(name, LongType())
            for name in ("first_ready_us", "all_ready_us", "recovered_us", "waited_us", "unaided_us")
        ),
        StructField("person_acted", BooleanType(), nullable=False),
        StructField("actions", ArrayType(_TEXTS, containsNull=False), nullable=False),
        *(StructField(name, LongType(), nullable=False) for name in ("commands", "connections", "cpu_ms")),
    ]
)
EVENT_SCHEMA: Final = StructType(
    [
        StructField("schema", IntegerType(), nullable=False),
        *(StructField(name, _TEXTS, nullable=False) for name in ("id", "run_id", "start_id")),
        StructField("seq", LongType(), nullable=False),
        *(
            StructField(name, _TEXTS, nullable=False)
            for name in ("host", "role", "instance", "model", "kind", "step")
        ),
        *(
            StructField(name, LongType(), nullable=False)
            for name in ("start_us", "end_us", "start_mono_us", "end_mono_us")
        ),
        *(StructField(name, _TEXTS, nullable=False) for name in ("boot_id", "outcome", "detail")),
        *(StructField(name, LongType(), nullable=False) for name in ("bytes", "connections")),
        StructField("run", RUN_SCHEMA),
    ]
)
CHECKS: Final = (
    "schema = 1",
    "kind IN ('start', 'stop')",
    "outcome IN ('ok', 'failed', 'cancelled')",
    "step <> 'Run' OR run IS NOT NULL",
)
