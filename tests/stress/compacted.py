"""Reads of compacted logs: of each key what was acknowledged last is there, or something later."""

from __future__ import annotations

from collections.abc import Iterator

from broker.log.log import Log
from broker.protocol.errors import Errors, KafkaError
from broker.record.batch import Record, read_records
from tests.stress.history import Written
from tests.stress.site import Place, Site

_READ_BYTES = 65_536


def check_key(site: Site, place: Place, log: Log, key: bytes, wanted: Written) -> None:
    """One key's, while anything may go on: whoever reads to the end meets the last record of each key,
    however often another takes its place meanwhile.
    """
    try:
        found = next((record for record in _records(log, wanted.offset) if record.key == key), None)
    except KafkaError as error:
        gone = error.error_code is Errors.OFFSET_OUT_OF_RANGE and wanted.offset < log.log_start_offset
        if not gone and not site.has_failed(log) and place.history.keeps(wanted.offset, wanted.since):
            site.watch.problem(f"{place.name}: {wanted.offset} of {log} is not read: {error}")
        return
    _judge(site, place, log, key, wanted, found)


def check_all_keys(site: Site, place: Place, log: Log) -> None:
    """Every key's, in one read of a log that nobody changes."""
    keyed = dict(place.history.keyed())
    last = {record.key: record for record in _records(log, log.log_start_offset)}
    for key, wanted in keyed.items():
        found = last.get(key)
        if found is not None and found.offset < wanted.offset:
            found = None
        _judge(site, place, log, key, wanted, found)


def _judge(site: Site, place: Place, log: Log, key: bytes, wanted: Written, found: Record | None) -> None:
    is_there = found is not None and (found.offset > wanted.offset or found.value == wanted.value)
    if not is_there and place.history.keeps(wanted.offset, wanted.since):
        site.watch.problem(
            f"{place.name}: of key {key!r} {log} has {found}, last was acknowledged {wanted}, nothing later"
        )


def _records(log: Log, offset: int) -> Iterator[Record]:
    """From ``offset`` to where the log ends by then."""
    while offset < log.log_end_offset:
        records = read_records(log.read_bytes(offset, _READ_BYTES))
        yield from (record for record in records if record.offset >= offset)
        if not records:
            return
        offset = records[-1].offset + 1
