"""Every constant of a comparison that decides what is measured: times, and how much a slow host has.

docs/compare.md has them in words.
"""

from __future__ import annotations

from dataclasses import dataclass

# How long a person needs to notice that something that should run does not, and to come. Any figure is arbitrary: it
# is drawn apart and decides nothing. It is longer than a host needs to boot and to start its own.
PATIENCE_S = 5.0
# How long a host without power stays without: longer than a push waits for it (10 s).
OUTAGE_S = 12.0
# How far into a start the master dies.
DURING_S = 0.5
# When a run is given up: what does not serve by then never does.
RUN_LIMIT_S = 180.0
# How often a person tries.
PERSON_TRIES = 3
# What a slow host has: a share of one processor, and a cable, each way.
SLOW_CPU_PERCENT = 25.0
SLOW_KBIT = 8000.0
# How often each member is asked whether it serves, and whether its process is there: figures are this coarse.
POLL_S = 0.05
# Spark's master is asked for all its workers at once, and each answer costs a JVM that is being started.
MASTER_POLL_S = 0.2
LOOK_S = 0.5
PROBE_TIMEOUT_S = 1.0
# How long a daemon may take to stop before it is killed. After a run: no figure depends on it.
STOP_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Pace:
    """A run's times, in seconds; a comparison's are the constants above."""

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
