"""Options of JVMs that tests start. Each runs for seconds, beside many others, too short for optimized code
to pay off.
"""

from __future__ import annotations

CHEAP_COMPILER = "-XX:TieredStopAtLevel=1"
"""Without the second compiler, which costs a short-lived JVM more than it saves."""
SHORT_LIVED_JVM = ("-XX:+UseSerialGC", CHEAP_COMPILER, "-Xshare:auto")
