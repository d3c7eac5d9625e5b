"""What a deploy reads while another build writes."""

import os

from tools import wheelhouse


def test_who_reads_an_archive_keeps_it_whole_while_it_is_built_again(tmp_path, monkeypatch):
    monkeypatch.setattr(wheelhouse, "DIST", tmp_path)
    monkeypatch.setattr(wheelhouse, "WHEELHOUSE", tmp_path / "wheelhouse")
    wheel = tmp_path / "landline-1-py3-none-any.whl"
    wheel.write_bytes(b"x" * 100_000)
    described = wheelhouse.pack("1", [wheel], "", ["cp313-x86_64"])
    with (tmp_path / described["archives"]["cp313-x86_64"]["file"]).open("rb") as reading:
        size = os.fstat(reading.fileno()).st_size
        assert wheelhouse.pack("1", [wheel], "", ["cp313-x86_64"]) == described
        assert os.fstat(reading.fileno()).st_nlink == 0, "it was written over, not replaced"
        assert len(reading.read()) == size
