"""JVMs that tests start: each lives for seconds beside many others, and is over before a hot method pays."""

from __future__ import annotations

CHEAP_COMPILER = "-XX:TieredStopAtLevel=1"
"""Without the second compiler, which costs a short life more than it gives."""
SHORT_LIVED_JVM = ("-XX:+UseSerialGC", CHEAP_COMPILER, "-Xshare:auto")
