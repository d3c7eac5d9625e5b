"""The limit of open files and connections of the process."""

from __future__ import annotations

import resource


def raise_open_file_limit() -> None:
    """Raises the soft limit to the hard one, as the JVM does for Kafka: a shell's default of 1,024 is used up
    by as many partitions. Systemd units set their own limit (LimitNOFILE).
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
