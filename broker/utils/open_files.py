"""How many files and connections the process may have open."""

from __future__ import annotations

import resource


def raise_open_file_limit() -> None:
    """Raises the soft limit to the hard one, as the JVM does for Kafka: a shell's 1,024 are spent on as many
    partitions. Systemd units say their own (LimitNOFILE).
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
