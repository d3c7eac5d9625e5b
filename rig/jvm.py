"""Options of JVMs that tests start. Each runs for seconds, beside many others, too short for optimized code
to pay off.
"""

from __future__ import annotations

CHEAP_COMPILER = "-XX:TieredStopAtLevel=1"
"""Without the second compiler, which costs a short-lived JVM more than it saves."""
TRUSTED_CLASSES = ("-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote")
"""Without a check of each class's bytecode: javac made it, and the check is a seventh of a Kafka broker's start."""
SHORT_LIVED_JVM = ("-XX:+UseSerialGC", CHEAP_COMPILER, "-Xshare:auto", *TRUSTED_CLASSES)
