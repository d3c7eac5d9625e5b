"""Groups: members that join, sync, commit and leave, and what is asked about groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from broker.protocol.api_keys import ApiKey
from tests.differential.plain import Plain
from tests.differential.script import At, Change, Fields, Script, Step, answer_to, constant
from tests.differential.scripts.shapes import per_partition

METADATA: Final = b"\0\1"
_PROTOCOLS: Final = [{"name": "range", "metadata": METADATA}, {"name": "roundrobin", "metadata": METADATA}]
_LONG: Final = "m" * 5000


def _group(**more: Any) -> Change:
    return lambda at: {"group_id": at.name("group"), **more}


def _join(**more: Any) -> Change:
    own = {"protocols": _PROTOCOLS, "session_timeout": 60_000, "rebalance_timeout": 60_000}
    return _group(**{**own, **more})


def _member(at: At) -> Fields:
    """The member that has joined: its id and the generation."""
    joined = at.seen["join"]
    member_id = joined["member_id"]
    generation = at.seen.get("join with the id", {"generation_id": 1})["generation_id"]
    return {"member_id": member_id, "generation_id": generation, "generation_id_or_member_epoch": generation}


def _as_member(key: ApiKey, change: Change = lambda _at: {}, **more: Any) -> Callable[[At], Fields]:
    """The request of the member; of its fields only those that the API has."""
    asked = {
        ApiKey.OFFSET_COMMIT: ("member_id", "generation_id_or_member_epoch"),
        ApiKey.JOIN_GROUP: ("member_id",),
        ApiKey.LEAVE_GROUP: ("member_id",),
    }.get(key, ("member_id", "generation_id"))

    def fields(at: At) -> Fields:
        member = _member(at)
        return {"group_id": at.name("group"), **{name: member[name] for name in asked}, **change(at), **more}

    return fields


def _sync(**more: Any) -> Change:
    def assignments(at: At) -> Fields:
        return {"assignments": [{"member_id": _member(at)["member_id"], "assignment": b"\0\1\2"}]}

    return _as_member(ApiKey.SYNC_GROUP, assignments, **more)


def _offsets(*rows: tuple[str, int, int], metadata: str | None = "here") -> dict[str, Any]:
    """Topics for commits: each row is a topic, a partition and an offset."""
    return {
        "topics": [
            {
                "name": name,
                "partitions": [
                    {"partition_index": partition, "committed_offset": offset, "committed_metadata": metadata}
                ],
            }
            for name, partition, offset in rows
        ]
    }


def _commit(*rows: tuple[str, int, int], metadata: str | None = "here", **more: Any) -> Change:
    return _as_member(ApiKey.OFFSET_COMMIT, constant(**_offsets(*rows, metadata=metadata)), **more)


def _fetch(topics: list[dict[str, Any]] | None, group: str = "group", **more: Any) -> Change:
    def change(at: At) -> Fields:
        name = at.name(group)
        own = {"group_id": name, "topics": topics, "member_id": None, "member_epoch": -1}
        if topics is None and at.version < 2:
            return {"group_id": name, "topics": []}
        return {"group_id": name, "topics": topics, "groups": [own], **more}

    return change


def _described(*names: str, **more: Any) -> Change:
    return lambda at: {"groups": [at.name(name) if name else "" for name in names], **more}


def _is(state: str) -> Callable[[Plain], bool]:
    return lambda answer: bool(answer["groups"][0]["group_state"] == state)


def _leave(at: At) -> Fields:
    member_id = _member(at)["member_id"]
    members = [
        {"member_id": member_id, "group_instance_id": None},
        {"member_id": "other", "group_instance_id": None},
    ]
    return {"group_id": at.name("group"), "member_id": member_id, "members": members}


_STRANGER: Final = {"member_id": "stranger"}
_WRONG_GENERATION: Final = {"generation_id": 77}
_JOINS: Final = (
    ("without a group", _join(group_id="")),
    ("with a short session", _join(session_timeout=1)),
    ("with a long session", _join(session_timeout=1 << 30)),
    ("as a stranger", _join(**_STRANGER)),
    ("without protocols", _join(protocols=[], protocol_type="")),
    ("of another kind", _join(protocol_type="connect")),
    ("with other protocols", _join(protocols=[{"name": "sticky", "metadata": METADATA}])),
)
_BEFORE: Final = (
    Step("describe before", ApiKey.DESCRIBE_GROUPS, _described("group")),
    Step("heartbeat before", ApiKey.HEARTBEAT, _group(**_STRANGER)),
    Step("sync before", ApiKey.SYNC_GROUP, _group(**_STRANGER)),
    Step("leave before", ApiKey.LEAVE_GROUP, _group()),
    Step("fetch before", ApiKey.OFFSET_FETCH, _fetch([{"name": "topic", "partition_indexes": [0]}])),
    Step("delete before", ApiKey.DELETE_GROUPS, lambda at: {"groups_names": [at.name("group"), ""]}),
)
_MEMBERSHIP: Final = (
    Step("join", ApiKey.JOIN_GROUP, _join()),
    Step("join with the id", ApiKey.JOIN_GROUP, _as_member(ApiKey.JOIN_GROUP, _join())),
    *(Step(f"join {name}", ApiKey.JOIN_GROUP, change) for name, change in _JOINS),
    Step("describe while it rebalances", ApiKey.DESCRIBE_GROUPS, _described("group")),
    Step("heartbeat while it rebalances", ApiKey.HEARTBEAT, _as_member(ApiKey.HEARTBEAT)),
    Step("commit while it rebalances", ApiKey.OFFSET_COMMIT, _commit(("topic", 0, 1))),
    Step("sync as a stranger", ApiKey.SYNC_GROUP, _sync(**_STRANGER)),
    Step("sync of another generation", ApiKey.SYNC_GROUP, _sync(**_WRONG_GENERATION)),
    Step("sync of another kind", ApiKey.SYNC_GROUP, _sync(protocol_type="connect"), (5,)),
    Step("sync of another protocol", ApiKey.SYNC_GROUP, _sync(protocol_name="sticky"), (5,)),
    Step("sync", ApiKey.SYNC_GROUP, _sync()),
    Step("sync again", ApiKey.SYNC_GROUP, _sync()),
    Step("heartbeat", ApiKey.HEARTBEAT, _as_member(ApiKey.HEARTBEAT)),
    Step("heartbeat as a stranger", ApiKey.HEARTBEAT, _as_member(ApiKey.HEARTBEAT, **_STRANGER)),
    Step(
        "heartbeat of another generation", ApiKey.HEARTBEAT, _as_member(ApiKey.HEARTBEAT, **_WRONG_GENERATION)
    ),
    Step("heartbeat without a group", ApiKey.HEARTBEAT, _as_member(ApiKey.HEARTBEAT, group_id="")),
    Step("describe", ApiKey.DESCRIBE_GROUPS, _described("group", "nobodys")),
    Step(
        "describe with operations",
        ApiKey.DESCRIBE_GROUPS,
        _described("group", include_authorized_operations=True),
    ),
    Step("describe no name", ApiKey.DESCRIBE_GROUPS, _described("")),
    Step("describe none", ApiKey.DESCRIBE_GROUPS, _described()),
    Step("list", ApiKey.LIST_GROUPS),
    Step("list stable", ApiKey.LIST_GROUPS, constant(states_filter=["stable"])),
    Step("list an unknown state", ApiKey.LIST_GROUPS, constant(states_filter=["Sleeping"])),
    Step("list classic", ApiKey.LIST_GROUPS, constant(types_filter=["Classic"])),
    Step("list an unknown type", ApiKey.LIST_GROUPS, constant(types_filter=["other"])),
)
_OFFSETS: Final = (
    Step("commit", ApiKey.OFFSET_COMMIT, _commit(("topic", 0, 5), ("topic", 9, 6), ("nowhere", 0, 7))),
    Step("commit as a stranger", ApiKey.OFFSET_COMMIT, _commit(("topic", 0, 8), **_STRANGER)),
    Step(
        "commit of another generation",
        ApiKey.OFFSET_COMMIT,
        _commit(("topic", 0, 8), generation_id_or_member_epoch=77),
    ),
    Step(
        "commit of nobody",
        ApiKey.OFFSET_COMMIT,
        _commit(("topic", 0, 8), member_id="", generation_id_or_member_epoch=-1),
    ),
    Step("commit much metadata", ApiKey.OFFSET_COMMIT, _commit(("topic", 0, 8), metadata=_LONG)),
    Step("commit no metadata", ApiKey.OFFSET_COMMIT, _commit(("topic", 0, 9), metadata=None)),
    Step("commit below zero", ApiKey.OFFSET_COMMIT, _commit(("topic", 0, -5))),
    Step("commit nothing", ApiKey.OFFSET_COMMIT, _commit()),
    Step("commit without a group", ApiKey.OFFSET_COMMIT, _commit(("topic", 0, 1), group_id="")),
    Step("fetch", ApiKey.OFFSET_FETCH, _fetch([{"name": "topic", "partition_indexes": [0, 1]}])),
    Step("fetch all", ApiKey.OFFSET_FETCH, _fetch(None)),
    Step(
        "fetch of an unknown topic",
        ApiKey.OFFSET_FETCH,
        _fetch([{"name": "nowhere", "partition_indexes": [0]}]),
    ),
    Step("fetch of an unknown group", ApiKey.OFFSET_FETCH, _fetch(None, "nobodys")),
    Step("fetch what is stable", ApiKey.OFFSET_FETCH, _fetch(None, require_stable=True)),
    Step("delete offsets in use", ApiKey.OFFSET_DELETE, _group()),
    Step("delete a group in use", ApiKey.DELETE_GROUPS, lambda at: {"groups_names": [at.name("group")]}),
)
_END: Final = (
    Step("leave as a stranger", ApiKey.LEAVE_GROUP, _as_member(ApiKey.LEAVE_GROUP, **_STRANGER)),
    Step("leave", ApiKey.LEAVE_GROUP, _leave),
    Step("describe the empty one", ApiKey.DESCRIBE_GROUPS, _described("group"), settles=_is("Empty")),
    Step("heartbeat after leaving", ApiKey.HEARTBEAT, _as_member(ApiKey.HEARTBEAT)),
    Step("commit after leaving", ApiKey.OFFSET_COMMIT, _commit(("topic", 0, 1))),
    Step(
        "delete offsets",
        ApiKey.OFFSET_DELETE,
        _group(topics=[{"name": "topic", "partitions": [{"partition_index": n} for n in (0, 1, 9)]}]),
    ),
    Step(
        "delete offsets of an unknown topic",
        ApiKey.OFFSET_DELETE,
        _group(**per_partition("nowhere", partition_index=0)),
    ),
    Step(
        "delete offsets of an unknown group",
        ApiKey.OFFSET_DELETE,
        lambda at: {"group_id": at.name("nobodys")},
    ),
    Step("delete offsets without a group", ApiKey.OFFSET_DELETE, constant(group_id="")),
    Step("fetch after the deletion", ApiKey.OFFSET_FETCH, _fetch(None)),
    Step(
        "delete",
        ApiKey.DELETE_GROUPS,
        lambda at: {"groups_names": [at.name("group"), at.name("nobodys")]},
    ),
    Step("describe the dead one", ApiKey.DESCRIBE_GROUPS, _described("group")),
    Step("fetch of the dead one", ApiKey.OFFSET_FETCH, _fetch(None)),
)
GROUPS = Script("groups", [*_BEFORE, *_MEMBERSHIP, *_OFFSETS, *_END], in_rounds=True)


def _static(**more: Any) -> Change:
    return lambda at: {**_join()(at), "group_id": at.name("static"), "group_instance_id": "i", **more}


def _as_static(**more: Any) -> Change:
    """The static member's; ``more`` replaces its fields."""
    return lambda at: {
        "group_id": at.name("static"),
        "group_instance_id": "i",
        "member_id": at.seen["join"]["member_id"],
        **more,
    }


STATIC_MEMBERS = Script(
    "static members",
    [
        Step("join", ApiKey.JOIN_GROUP, _static(), range(5, 10)),
        Step("join as another", ApiKey.JOIN_GROUP, _static(member_id="another"), range(5, 10)),
        Step("heartbeat", ApiKey.HEARTBEAT, _as_static(), (3, 4)),
        Step("heartbeat as another", ApiKey.HEARTBEAT, _as_static(member_id="another"), (3, 4)),
        Step("heartbeat of an unknown one", ApiKey.HEARTBEAT, _as_static(group_instance_id="u"), (3, 4)),
        Step("sync", ApiKey.SYNC_GROUP, _as_static(), (3, 4, 5)),
        Step("sync as another", ApiKey.SYNC_GROUP, _as_static(member_id="another"), (3, 4, 5)),
        Step(
            "commit as another",
            ApiKey.OFFSET_COMMIT,
            _as_static(member_id="another", generation_id_or_member_epoch=1, **_offsets(("topic", 0, 1))),
            (7, 8, 9),
        ),
        Step("describe", ApiKey.DESCRIBE_GROUPS, _described("static"), (4, 5)),
        Step("join again", ApiKey.JOIN_GROUP, _static(), range(5, 10)),
        Step("heartbeat of who was replaced", ApiKey.HEARTBEAT, _as_static(), (3, 4)),
        Step(
            "leave",
            ApiKey.LEAVE_GROUP,
            lambda at: {
                "group_id": at.name("static"),
                "members": [
                    {"member_id": "another", "group_instance_id": "i"},
                    {"member_id": "", "group_instance_id": "u"},
                    {"member_id": "", "group_instance_id": "i"},
                ],
            },
            (3, 4, 5),
        ),
        Step(
            "describe the empty one", ApiKey.DESCRIBE_GROUPS, _described("static"), (5,), settles=_is("Empty")
        ),
    ],
    in_rounds=True,
)


def _pair(who: str, **more: Any) -> Change:
    """A request of the first or the second member; its generation is that of its last join."""

    def change(at: At) -> Fields:
        joined = at.seen.get(f"{who} joins", {})
        return {
            "group_id": at.name("pair"),
            "member_id": at.seen[f"{who} asks for an id"]["member_id"],
            "generation_id": joined.get("generation_id", 1),
            **more,
        }

    return change


def _pair_joins(who: str, **more: Any) -> Change:
    """Without the generation, which a join does not have."""
    of = _pair(who)
    return lambda at: {**_join()(at), **{k: v for k, v in of(at).items() if k != "generation_id"}, **more}


def _divided(at: At) -> Fields:
    members = [at.seen[f"{who} asks for an id"]["member_id"] for who in ("first", "second")]
    rows = [{"member_id": each, "assignment": bytes([n])} for n, each in enumerate(members)]
    return {
        **_pair("first", generation_id=at.seen["first again joins"]["generation_id"])(at),
        "assignments": rows,
    }


def _rebalances(answer: Plain) -> bool:
    return bool(answer["error_code"] == "REBALANCE_IN_PROGRESS")


_ASKED: Final = range(4, 10)
_SECOND_JOINS: Final = Step("second joins", ApiKey.JOIN_GROUP, _pair_joins("second"), pends=True)
_SECOND_SYNCS: Final = Step("second syncs", ApiKey.SYNC_GROUP, _pair("second", assignments=[]), pends=True)


def _ask(who: str) -> Step:
    change: Change = lambda at: {**_join()(at), "group_id": at.name("pair")}  # noqa: E731
    return Step(f"{who} asks for an id", ApiKey.JOIN_GROUP, change, _ASKED)


PAIRS = Script(
    "two members",
    [
        _ask("first"),
        Step("first joins", ApiKey.JOIN_GROUP, _pair_joins("first")),
        Step("first syncs", ApiKey.SYNC_GROUP, _pair("first", assignments=[])),
        _ask("second"),
        _SECOND_JOINS,
        Step("heartbeat when a second joins", ApiKey.HEARTBEAT, _pair("first"), settles=_rebalances),
        Step("describe when a second joins", ApiKey.DESCRIBE_GROUPS, _described("pair")),
        Step("first again joins", ApiKey.JOIN_GROUP, _pair_joins("first")),
        answer_to(_SECOND_JOINS),
        Step("heartbeat of the generation before", ApiKey.HEARTBEAT, _pair("first", generation_id=1)),
        _SECOND_SYNCS,
        Step("first divides", ApiKey.SYNC_GROUP, _divided),
        answer_to(_SECOND_SYNCS),
        Step("describe both", ApiKey.DESCRIBE_GROUPS, _described("pair")),
        Step(
            "second leaves",
            ApiKey.LEAVE_GROUP,
            lambda at: {
                "group_id": at.name("pair"),
                "member_id": _pair("second")(at)["member_id"],
                "members": [{"member_id": _pair("second")(at)["member_id"], "group_instance_id": None}],
            },
        ),
        Step("heartbeat of who has left", ApiKey.HEARTBEAT, _pair("second")),
        Step(
            "heartbeat when the second has left",
            ApiKey.HEARTBEAT,
            _pair("first", generation_id=2),
            settles=_rebalances,
        ),
        Step("first joins alone", ApiKey.JOIN_GROUP, _pair_joins("first")),
        Step("describe the first", ApiKey.DESCRIBE_GROUPS, _described("pair")),
    ],
    in_rounds=True,
)
