"""What the doctor reads of a host."""

from __future__ import annotations

from pathlib import Path

from broker.server.doctor.host_facts import memory_in_use


def test_page_cache_does_not_count_as_memory_in_use(tmp_path: Path) -> None:
    """It fills any limit of a broker with more data than memory, and the kernel ends nobody for it."""
    (tmp_path / "memory.current").write_text("1000\n")
    (tmp_path / "memory.stat").write_text(
        "anon 250\nfile 740\nshmem 40\ninactive_file 600\nactive_file 100\n"
    )
    assert memory_in_use(tmp_path) == 300
