"""All constants of a comparison that determine what is measured: times, and the resources of a slow host.

docs/compare.md describes them.
"""

from __future__ import annotations

from dataclasses import dataclass

# How long a person needs to notice that something does not run, and to come. Any value is arbitrary, so it is
# drawn separately and decides nothing. It is longer than a host needs to boot and to start its own services.
PATIENCE_S = 5.0
# How long a host has no power: longer than a push waits for it (10 s).
OUTAGE_S = 12.0
# How long after the beginning of a start the master dies.
DURING_S = 0.5
# When a run is given up: a member that does not serve by then never will.
RUN_LIMIT_S = 180.0
# How often a person tries.
PERSON_TRIES = 3
# The resources of a slow host: a share of one processor, and the speed of its cable each way.
SLOW_CPU_PERCENT = 25.0
SLOW_KBIT = 8000.0
# How often each member is checked for its process and for serving. This is the resolution of the figures.
POLL_S = 0.05
# Spark's master is asked for all its workers at once, because each answer costs CPU time of a starting JVM.
MASTER_POLL_S = 0.2
LOOK_S = 0.5
PROBE_TIMEOUT_S = 1.0
# How long a daemon may take to stop before it is killed. This is after a run, so no figure depends on it.
STOP_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Pace:
    """A run's times in seconds; a comparison uses the constants above."""

    patience_s: float = PATIENCE_S
    outage_s: float = OUTAGE_S
    during_s: float = DURING_S
    run_limit_s: float = RUN_LIMIT_S
    look_s: float = LOOK_S


PACE = Pace()
MASTER = "h1"
BROKER_PORT, BROKER_HTTP_PORT = 9092, 8092
TOPIC = "landline.lifecycle"
EVENTS_FILE, MANIFEST_FILE = "events.jsonl", "manifest.json"
