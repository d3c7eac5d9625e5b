"""What a deploy reads while another build writes."""

import os
import tarfile

from tools import wheelhouse


def test_who_reads_an_archive_keeps_it_whole_while_it_is_built_again(tmp_path, monkeypatch):
    monkeypatch.setattr(wheelhouse, "DIST", tmp_path)
    monkeypatch.setattr(wheelhouse, "WHEELHOUSE", tmp_path / "wheelhouse")
    monkeypatch.setattr(wheelhouse, "SHIPPER_WHEELHOUSE", tmp_path / "shipper")
    wheel = tmp_path / "landline-1-py3-none-any.whl"
    wheel.write_bytes(b"x" * 100_000)
    described = wheelhouse.pack("1", [wheel], "", ["cp313-x86_64"])
    with (tmp_path / described["archives"]["cp313-x86_64"]["file"]).open("rb") as reading:
        size = os.fstat(reading.fileno()).st_size
        assert wheelhouse.pack("1", [wheel], "", ["cp313-x86_64"]) == described
        assert os.fstat(reading.fileno()).st_nlink == 0, "it was written over, not replaced"
        assert len(reading.read()) == size


def test_the_journal_shipper_of_the_working_tree_is_in_its_archives_too(tmp_path, monkeypatch):
    monkeypatch.setattr(wheelhouse, "DIST", tmp_path)
    monkeypatch.setattr(wheelhouse, "WHEELHOUSE", tmp_path / "wheelhouse")
    monkeypatch.setattr(wheelhouse, "SHIPPER_WHEELHOUSE", tmp_path / "shipper")
    wheel = tmp_path / "landline-1-py3-none-any.whl"
    wheel.write_bytes(b"x")
    without = wheelhouse.pack("1", [wheel], "", ["cp313-x86_64"])
    assert without["journal_shipper"] == []
    shipper = tmp_path / "shipper/kafka_python-2-py2.py3-none-any.whl"
    shipper.parent.mkdir()
    shipper.write_bytes(b"y")
    described = wheelhouse.pack("1", [wheel], "", ["cp313-x86_64"])
    assert described["journal_shipper"] == [shipper.name]
    assert described["release"] != without["release"], "other content goes to another directory on the hosts"
    with tarfile.open(tmp_path / described["archives"]["cp313-x86_64"]["file"]) as archive:
        assert archive.extractfile(f"journal-shipper/{shipper.name}").read() == b"y"
