"""The status page as HTML: an `Overview` for people. No script, and nothing from outside.

Names of topics and groups, racks and addresses come from clients and other brokers. :func:`name` makes each of them
harmless: no markup, no control or direction characters, and a limited length.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Final, NamedTuple

from broker.server.consumer_lag import GroupLag, LagState
from broker.server.http.overview import BrokerRow, DiskRow, Holders, Overview
from broker.server.http.page_style import STYLE

REFRESH_S: Final = 10
_MOST_LETTERS: Final = 120
# Controls, and characters that turn the direction of the text around.
_UNSEEN: Final = frozenset({"Cc", "Cf", "Co", "Cs", "Zl", "Zp"})
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_LIMIT: Final = "landline.consumer.lag.max.partitions"
_NOBODY: Final = ", and nobody has the stop permit or the turn to move partitions"
_NO_HOLDERS: Final = (
    "Who has the stop permit and the turn to move partitions is not known: ZooKeeper does not answer."
)
_NO_GROUPS: Final = {
    LagState.KNOWN: "This broker coordinates no group.",
    LagState.LATER: "Its groups and their lag are not known yet: load this page again in some seconds.",
    LagState.OFF: f"Groups are not shown: {_LIMIT} is 0.",
}


class Trouble(NamedTuple):
    """A sentence about something wrong; ``bad`` or ``warn``."""

    kind: str
    text: str


def name(text: str, most: int = _MOST_LETTERS) -> str:
    """A foreign text as safe HTML, isolated from the direction of the text around it."""
    shown = text if len(text) <= most else f"{text[: most - 1]}…"
    seen = "".join("\ufffd" if unicodedata.category(letter) in _UNSEEN else letter for letter in shown)
    return f"<bdi>{escape(seen)}</bdi>"


def problems_of(view: Overview) -> list[Trouble]:
    """What is wrong, in HTML, the worst first."""
    cluster = view.cluster
    found = [Trouble("bad", f"This broker is not ready: {name(reason)}.") for reason in view.unready]
    if cluster.offline:
        found.append(
            Trouble("bad", f"{_count(cluster.offline, 'partition')} {_has(cluster.offline)} no leader.")
        )
    if view.is_running and view.controller_id < 0:
        found.append(Trouble("bad", "No controller is known."))
    for disk in view.disks:
        if disk.failure:
            found.append(Trouble("bad", f"Log directory {name(disk.path)}: {name(disk.failure, 400)}."))
        elif disk.refusal:
            found.append(Trouble("bad", f"{name(disk.refusal[:1].upper() + disk.refusal[1:], 400)}."))
    if cluster.missing:
        found.append(
            Trouble(
                "warn", f"{_brokers(cluster.missing)} {_is(cluster.missing)} not registered.".capitalize()
            )
        )
    if cluster.under_replicated:
        count = cluster.under_replicated
        found.append(
            Trouble("warn", f"{_count(count, 'partition')} {'is' if count == 1 else 'are'} under-replicated.")
        )
    return sorted(found, key=lambda problem: problem.kind)


def html_of(view: Overview) -> bytes:
    """The whole page."""
    title = f"Broker {view.broker_id}"
    cluster = f" · cluster {name(view.cluster_id)}" if view.cluster_id else ""
    parts = [
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title} · Landline</title>',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<meta http-equiv="refresh" content="{REFRESH_S}"><link rel="icon" href="data:,">',
        f"<style>{STYLE}</style></head><body><header><h1>{title}</h1>{_state(view)}",
        f'<span class="about">Landline {escape(view.version)}{cluster}</span></header><main>',
        _verdict(view),
        *(_sections(view) if view.is_running else ()),
        f"</main><footer><p>As broker {view.broker_id} knew it at {escape(view.time)}. ",
        f"This page loads itself again every {REFRESH_S} s.</p>",
        '<p><a href="/metrics">/metrics</a> for Prometheus · <a href="/status">/status</a> as JSON · ',
        '<a href="/readyz">/readyz</a> · <a href="/livez">/livez</a></p></footer></body></html>\n',
    ]
    return "".join(parts).encode("utf-8", "replace")


def _state(view: Overview) -> str:
    kind = "good" if view.is_running and not view.unready else "warn"
    return f'<span class="pill {kind}">{escape(view.state)}</span>'


def _verdict(view: Overview) -> str:
    if not view.is_running:
        return _box("warn", "This broker does not serve clients now.", [_loading(view)])
    found = problems_of(view)
    if not found:
        return _box("good", "Everything is well, as far as this broker knows.", [])
    first, *others = found
    return _box(first.kind, first.text, [problem.text for problem in others])


def _box(kind: str, first: str, others: Sequence[str]) -> str:
    more = "".join(f"<p>{text}</p>" for text in others if text)
    return f'<div class="verdict {kind}"><p class="say">{first}</p>{more}</div>'


def _loading(view: Overview) -> str:
    progress = view.loading
    if progress is None:
        return ""
    done, total = (
        (progress.segments, progress.segments_total)
        if progress.segments_total
        else (progress.logs, progress.logs_total)
    )
    return f'{escape(str(progress))}. <progress value="{done}" max="{max(total, 1)}"></progress>'


def _sections(view: Overview) -> Iterator[str]:
    yield _tiles(view)
    yield _under_way(view)
    yield _partitions(view)
    yield _brokers_table(view)
    yield _groups(view)
    yield _disks(view)


def _tiles(view: Overview) -> str:
    cluster = view.cluster
    live = sum(row.is_live for row in cluster.brokers) + cluster.brokers_left_out
    controller = "none" if view.controller_id < 0 else f"broker {view.controller_id}"
    tiles = (
        ("Brokers", f"{live:,}", "care" if cluster.missing else ""),
        ("Controller", controller, "alarm" if view.controller_id < 0 else ""),
        ("Topics", f"{cluster.topics:,}", ""),
        ("Partitions", f"{cluster.partitions:,}", ""),
        ("Under-replicated", f"{cluster.under_replicated:,}", "care" if cluster.under_replicated else ""),
        ("Without a leader", f"{cluster.offline:,}", "alarm" if cluster.offline else ""),
    )
    inside = "".join(
        f'<div class="{kind}"><dt>{label}</dt><dd>{value}</dd></div>' for label, value, kind in tiles
    )
    return f'<dl class="tiles">{inside}</dl>'


def _under_way(view: Overview) -> str:
    lines = [*_held(view.holders)]
    if view.stopping:
        lines.append(f"<p>{_brokers(view.stopping).capitalize()} {_is(view.stopping)} shutting down.</p>")
    if view.deleting:
        lines.append(
            f"<p>{_count(view.deleting, 'topic')} {'is' if view.deleting == 1 else 'are'} being deleted.</p>"
        )
    rows = [
        [_partition(move.topic, move.partition), _ids(move.adding), _ids(move.removing)]
        for move in view.moves
    ]
    if rows:
        heads = ("Reassigned partition", "To brokers", "From brokers")
        lines.append(_table(heads, rows) + _more(view.moves_total - len(rows), "reassignment"))
    where = "in the cluster" if view.is_controller else "for partitions that this broker leads"
    others = not view.is_controller and view.controller_id >= 0
    note = f"the controller, broker {view.controller_id}, knows all of it" if others else ""
    if not lines:
        lines.append(_none(f"Nothing is under way {where}{_NOBODY if view.holders else ''}."))
    if view.holders is None:
        lines.append(f'<p class="about">{_NO_HOLDERS}</p>')
    return _section("Under way", note, "".join(lines))


def _held(holders: Holders | None) -> Iterator[str]:
    permit, turn = (None, None) if holders is None else (holders.permit, holders.turn)
    if permit is not None:
        what = f"has the stop permit, for broker {permit.broker_id}"
        yield f"<p>{name(permit.holder)} {what}{_times(permit.since, permit.until)}</p>"
    if turn is not None:
        ends = ", and takes back what it has set" if turn.is_ending else ""
        what = f"has the turn to move partitions, by {name(turn.command)}{ends}"
        yield f"<p>{name(turn.holder)} {what}{_times(turn.since, turn.until)}</p>"


def _times(since: str, until: str) -> str:
    began = f", since {escape(since)}" if since else ""
    return f"{began}. It ends at {escape(until)} if it is not renewed." if until else f"{began}."


def _partitions(view: Overview) -> str:
    cluster = view.cluster
    rows = [
        [
            _partition(row.topic, row.partition),
            '<span class="pill bad">none</span>' if row.leader is None else str(row.leader),
            _ids(row.replicas),
            _ids(row.isr),
            _ids(tuple(each for each in row.replicas if each not in row.isr)),
        ]
        for row in cluster.problems
    ]
    if not rows:
        return _section("Partitions", "", _none("Every partition has a leader and all its replicas in sync."))
    heads = ("Partition", "Leader", "Replicas", "In sync", "Out of sync")
    more = _more(cluster.problems_total - len(rows), "partition")
    return _section("Partitions with problems", "", _table(heads, rows) + more)


def _brokers_table(view: Overview) -> str:
    rows = [_broker(row, view) for row in view.cluster.brokers]
    heads = ("Broker", "State", "Listeners", "Rack", "#Leads", "#Replicas", "#Out of sync")
    note = "each has such a page at its HTTP port (landline.http.port)" if len(rows) > 1 else ""
    return _section("Brokers", note, _table(heads, rows) + _more(view.cluster.brokers_left_out, "broker"))


def _broker(row: BrokerRow, view: Overview) -> list[str]:
    roles = []
    if row.broker_id == view.broker_id:
        roles.append("this one")
    if row.broker_id == view.controller_id:
        roles.append("controller")
    kind, state = ("good", "registered") if row.is_live else ("bad", "not registered")
    if row.broker_id in view.stopping:
        kind, state = "warn", "shutting down"
    about = f' <span class="about">{", ".join(roles)}</span>' if roles else ""
    return [
        f"<span>{row.broker_id}{about}</span>",
        f'<span class="pill {kind}">{state}</span>',
        "<span>" + "<br>".join(name(address) for address in row.addresses[:5]) + "</span>",
        "" if row.rack is None else name(row.rack),
        f"{row.leaders:,}",
        f"{row.replicas:,}",
        _count_pill(row.out_of_sync),
    ]


def _groups(view: Overview) -> str:
    note = f"coordinated by this broker, those with the largest lag first{_elsewhere(view)}"
    if not view.groups:
        note = _elsewhere(view).removeprefix("; ")
        return _section("Consumer groups", note, _none(_NO_GROUPS[view.lags]))
    heads = ("Group", "State", "#Members", "#Partitions", "#Lag")
    rows = [_group(group) for group in view.groups]
    more = _more(view.groups_total - len(rows), "group")
    if view.lags_left_out:
        more += f'<p class="about">{view.lags_left_out:,} groups and offsets are left out: {_LIMIT} is too low</p>'
    return _section("Consumer groups", note, _table(heads, rows) + more)


def _group(group: GroupLag) -> list[str]:
    unknown = f' <span class="about">+ {group.unknown:,} unknown</span>' if group.unknown else ""
    return [
        name(group.group_id),
        escape(group.state),
        f"{group.members:,}",
        f"{len(group.partitions):,}",
        f"<span>{group.total:,}{unknown}</span>",
    ]


def _elsewhere(view: Overview) -> str:
    """That there is more of it. Brokers do not know each other's HTTP ports, so there is no link."""
    return "; those of other brokers are on their pages" if len(view.cluster.brokers) > 1 else ""


def _disks(view: Overview) -> str:
    heads = ("Log directory", "State", "Used", "#Free", "#Size")
    return _section(
        "Disks", f"of this broker{_elsewhere(view)}", _table(heads, [_disk(disk) for disk in view.disks])
    )


def _disk(disk: DiskRow) -> list[str]:
    kind, state = ("good", "good")
    if disk.refusal:
        kind, state = "bad", "refuses records"
    if disk.failure:
        kind, state = "bad", "failed"
    used = disk.total - disk.free
    percent = 100 * used / disk.total if disk.total else 0
    meter = f'<meter min="0" max="100" low="80" high="92" optimum="0" value="{percent:.0f}"></meter> {percent:.0f} %'
    return [
        name(disk.path, 300),
        f'<span class="pill {kind}">{state}</span>',
        f"<span>{meter}</span>" if disk.total else "unknown",
        _size(disk.free) if disk.total else "",
        _size(disk.total) if disk.total else "",
    ]


# --- parts


def _section(title: str, note: str, inside: str) -> str:
    small = f"<small>{note}</small>" if note else ""
    return f"<section><h2>{title} {small}</h2>{inside}</section>"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Cells are HTML. A column whose head begins with # has numbers."""
    kinds = [(' class="n"' if head.startswith("#") else "", head.removeprefix("#")) for head in heads]
    head = "".join(f'<th scope="col"{kind}>{text}</th>' for kind, text in kinds)
    body = "".join(
        "<tr>"
        + "".join(
            f'<td{kind} data-label="{text}">{cell}</td>'
            for (kind, text), cell in zip(kinds, row, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _none(text: str) -> str:
    return f'<p class="none">{text}</p>'


def _more(count: int, thing: str) -> str:
    return f'<p class="about">and {_count(count, "more " + thing)}</p>' if count > 0 else ""


def _count(count: int, thing: str) -> str:
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"


def _count_pill(count: int) -> str:
    return f'<span class="pill warn">{count:,}</span>' if count else "0"


def _partition(topic: str, number: int) -> str:
    return f"<span>{name(topic, 249)}-{number}</span>"


def _ids(ids: Sequence[int]) -> str:
    return ", ".join(map(str, ids[:20])) + (" …" if len(ids) > 20 else "") if ids else "none"


def _brokers(ids: Sequence[int]) -> str:
    return f"broker {ids[0]}" if len(ids) == 1 else f"brokers {_ids(ids)}"


def _is(ids: Sequence[int]) -> str:
    return "is" if len(ids) == 1 else "are"


def _has(count: int) -> str:
    return "has" if count == 1 else "have"


def _size(count: int) -> str:
    number, unit = float(count), _UNITS[0]
    for unit in _UNITS:
        if number < 1024 or unit == _UNITS[-1]:
            break
        number /= 1024
    return f"{number:.0f} {unit}" if unit == "B" or number >= 100 else f"{number:.1f} {unit}"
