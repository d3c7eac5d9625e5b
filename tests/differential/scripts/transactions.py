"""Transactions: begun, filled, described, ended; and what producers get that should not ask."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from broker.protocol.api_keys import ApiKey
from tests.differential.plain import Plain
from tests.differential.script import At, Change, Fields, Script, Step, constant
from tests.differential.scripts.records import fetched, with_more
from tests.differential.scripts.shapes import batch, new_topic, per_partition, produced

TOPIC: Final = "traded-{}"
"""With the number of the round."""
_UNSETTLED: Final = ("PrepareCommit", "PrepareAbort")


def _who(at: At) -> dict[str, Any]:
    """The producer of this round, as it has been initialised last."""
    given = at.seen["init"]
    return {
        "transactional_id": at.name("tx"),
        "producer_id": given["producer_id"],
        "producer_epoch": given["producer_epoch"],
    }


def _as(change: Change = lambda _at: {}, **more: Any) -> Change:
    """The producer's request; ``more`` replaces fields."""
    return lambda at: {**_who(at), **change(at), **more}


def _zombie(change: Change = lambda _at: {}) -> Change:
    """The request of who was the producer one epoch ago."""
    return lambda at: {**_who(at), **change(at), "producer_epoch": _who(at)["producer_epoch"] - 1}


def _ahead(change: Change = lambda _at: {}) -> Change:
    return lambda at: {**_who(at), **change(at), "producer_epoch": _who(at)["producer_epoch"] + 1}


def _init(**more: Any) -> Change:
    return lambda at: {"transactional_id": at.name("tx"), "transaction_timeout": 60_000, **more}


def _init_again(at: At) -> Fields:
    return {**_init()(at), **_who(at)}


def _add(who: Change, *partitions: int, topic: str = TOPIC) -> Change:
    """In the shape of old versions and of the brokers' new ones."""

    def change(at: At) -> Fields:
        topics = [{"name": topic.format(at.round), "partitions": list(partitions)}]
        own = dict(who(at))
        older = {f"v3_and_below_{name}": value for name, value in own.items()}
        return {
            **older,
            "v3_and_below_topics": topics,
            "transactions": [{**own, "verify_only": at.version >= 4, "topics": topics}],
        }

    return change


def _write(who: Change, value: bytes, sequence: int) -> Change:
    def change(at: At) -> Fields:
        own = who(at)
        records = batch(
            value,
            producer_id=own["producer_id"],
            producer_epoch=own["producer_epoch"],
            base_sequence=sequence,
            transactional=True,
        )
        return produced(at.name("traded"), records, transactional_id=own["transactional_id"])

    return change


def _commit_offsets(who: Change, **more: Any) -> Change:
    row = {"partition_index": 0, "committed_offset": 3, "committed_metadata": "m"}
    return lambda at: {
        **who(at),
        "group_id": at.name("sold"),
        **per_partition(at.name("traded"), **row),
        **more,
    }


def _sold(at: At, **more: Any) -> Fields:
    name = at.name("sold")
    topics = [{"name": at.name("traded"), "partition_indexes": [0]}]
    return {"group_id": name, "topics": topics, "groups": [{"group_id": name, "topics": topics}], **more}


def is_settled(answer: Plain) -> bool:
    """Whether no transaction of ListTransactions waits for its markers."""
    return not any(row["transaction_state"] in _UNSETTLED for row in answer["transaction_states"])


def _named(*names: str) -> Change:
    return lambda at: {"transactional_ids": [at.name(name) if name else "" for name in names]}


_NEW_ADD: Final = range(4)
_LISTED: Final = ApiKey.LIST_TRANSACTIONS
_NOBODY: Final = {"producer_id": 1 << 40, "producer_epoch": 0}
TRANSACTIONS = Script(
    "transactions",
    [
        Step(
            "make",
            ApiKey.CREATE_TOPICS,
            lambda at: {"topics": [new_topic(at.name("traded"), 3)]},
            (7,),
        ),
        Step("describe before", ApiKey.DESCRIBE_TRANSACTIONS, _named("tx", "")),
        Step("end before", ApiKey.END_TXN, lambda at: {"transactional_id": at.name("tx"), **_NOBODY}),
        Step("init with a wrong time", ApiKey.INIT_PRODUCER_ID, _init(transaction_timeout=1 << 30)),
        Step("init with no time", ApiKey.INIT_PRODUCER_ID, _init(transaction_timeout=0)),
        Step("init without a name", ApiKey.INIT_PRODUCER_ID, _init(transactional_id="")),
        Step("init of an unknown producer", ApiKey.INIT_PRODUCER_ID, _init(**_NOBODY), (3, 4, 5)),
        Step("init of an id without an epoch", ApiKey.INIT_PRODUCER_ID, _init(producer_id=1), (3, 4, 5)),
        Step("init first", ApiKey.INIT_PRODUCER_ID, _init()),
        Step("init", ApiKey.INIT_PRODUCER_ID, _init()),
        Step("describe the new one", ApiKey.DESCRIBE_TRANSACTIONS, _named("tx")),
        Step("end nothing", ApiKey.END_TXN, _as(committed=True)),
        Step("write without adding", ApiKey.PRODUCE, _write(_as(), b"early", 0)),
        Step("verify without adding", ApiKey.ADD_PARTITIONS_TO_TXN, _add(_as(), 0), (4, 5)),
        Step("add", ApiKey.ADD_PARTITIONS_TO_TXN, _add(_as(), 0, 1), _NEW_ADD),
        Step("add again", ApiKey.ADD_PARTITIONS_TO_TXN, _add(_as(), 0), _NEW_ADD),
        Step("add an unknown partition", ApiKey.ADD_PARTITIONS_TO_TXN, _add(_as(), 0, 9), _NEW_ADD),
        Step(
            "add of an unknown topic", ApiKey.ADD_PARTITIONS_TO_TXN, _add(_as(), 0, topic="nowhere"), _NEW_ADD
        ),
        Step("add as a zombie", ApiKey.ADD_PARTITIONS_TO_TXN, _add(_zombie(), 0), _NEW_ADD),
        Step("add ahead", ApiKey.ADD_PARTITIONS_TO_TXN, _add(_ahead(), 0), _NEW_ADD),
        Step("add as another", ApiKey.ADD_PARTITIONS_TO_TXN, _add(_as(**_NOBODY), 0), _NEW_ADD),
        Step("verify", ApiKey.ADD_PARTITIONS_TO_TXN, _add(_as(), 0, 2), (4, 5)),
        Step("verify as a zombie", ApiKey.ADD_PARTITIONS_TO_TXN, _add(_zombie(), 0), (4, 5)),
        Step("write", ApiKey.PRODUCE, _write(_as(), b"first", 0)),
        Step("write again", ApiKey.PRODUCE, _write(_as(), b"first", 0)),
        Step("write as a zombie", ApiKey.PRODUCE, _write(_zombie(), b"late", 0)),
        Step("describe", ApiKey.DESCRIBE_TRANSACTIONS, _named("tx", "nobodys")),
        Step("list", _LISTED),
        Step("list an unknown state", _LISTED, constant(state_filters=["Sleeping", "Ongoing"])),
        Step("list by producer", _LISTED, lambda at: {"producer_id_filters": [_who(at)["producer_id"]]}),
        Step("list old ones", _LISTED, constant(duration_filter=3_600_000), (1,)),
        Step(
            "producers",
            ApiKey.DESCRIBE_PRODUCERS,
            lambda at: {
                "topics": [
                    {"name": at.name("traded"), "partition_indexes": [0, 9]},
                    {"name": "nowhere", "partition_indexes": [0]},
                ]
            },
        ),
        Step("fetch all", ApiKey.FETCH, fetched(TOPIC)),
        Step("fetch what is committed", ApiKey.FETCH, with_more(fetched(TOPIC), isolation_level=1)),
        Step(
            "list what is stable",
            ApiKey.LIST_OFFSETS,
            lambda at: {
                **per_partition(at.name("traded"), partition_index=0, timestamp=-1),
                "isolation_level": 1,
            },
            range(2, 10),
        ),
        Step("add offsets", ApiKey.ADD_OFFSETS_TO_TXN, _as(lambda at: {"group_id": at.name("sold")})),
        Step("add offsets without a group", ApiKey.ADD_OFFSETS_TO_TXN, _as(group_id="")),
        Step("add offsets as a zombie", ApiKey.ADD_OFFSETS_TO_TXN, _zombie(constant(group_id="g"))),
        Step("commit offsets", ApiKey.TXN_OFFSET_COMMIT, _commit_offsets(_as())),
        Step(
            "commit offsets of a stranger",
            ApiKey.TXN_OFFSET_COMMIT,
            _commit_offsets(_as(), member_id="stranger", generation_id=3),
        ),
        Step("commit offsets without a group", ApiKey.TXN_OFFSET_COMMIT, _commit_offsets(_as(), group_id="")),
        Step(
            "fetch offsets in doubt",
            ApiKey.OFFSET_FETCH,
            lambda at: _sold(at, require_stable=True),
            (7, 8, 9),
        ),
        Step("fetch offsets", ApiKey.OFFSET_FETCH, _sold),
        Step("end as a zombie", ApiKey.END_TXN, _zombie(constant(committed=True))),
        Step("end ahead", ApiKey.END_TXN, _ahead(constant(committed=True))),
        Step("end as another", ApiKey.END_TXN, _as(**_NOBODY)),
        Step("end of an unknown one", ApiKey.END_TXN, _as(transactional_id="nobodys")),
        Step("end", ApiKey.END_TXN, _as(lambda at: {"committed": at.round % 2 == 0})),
        Step("list when it has ended", _LISTED, settles=is_settled),
        Step("end again", ApiKey.END_TXN, _as(lambda at: {"committed": at.round % 2 == 0})),
        Step("end the other way", ApiKey.END_TXN, _as(lambda at: {"committed": at.round % 2 == 1})),
        Step("describe the ended one", ApiKey.DESCRIBE_TRANSACTIONS, _named("tx")),
        Step("fetch offsets after the end", ApiKey.OFFSET_FETCH, _sold),
        Step("fetch all after the end", ApiKey.FETCH, fetched(TOPIC)),
        Step(
            "fetch what is committed after the end",
            ApiKey.FETCH,
            with_more(fetched(TOPIC), isolation_level=1),
        ),
        Step("init as it was", ApiKey.INIT_PRODUCER_ID, _init_again, (3, 4, 5)),
        Step("init as it was, again", ApiKey.INIT_PRODUCER_ID, _init_again, (3, 4, 5)),
        Step("describe after another's init", ApiKey.DESCRIBE_TRANSACTIONS, _named("tx")),
        Step("add after another's init", ApiKey.ADD_PARTITIONS_TO_TXN, _add(_as(), 0), _NEW_ADD),
    ],
    in_rounds=True,
)


def _of_its_own(change: Change) -> Change:
    """The same with names that no other script's rounds have."""
    return lambda at: change(replace(at, round=at.round + 100))


FENCED_OFFSETS: Final = Script(
    "offsets of a fenced producer",
    [
        replace(step, change=_of_its_own(step.change), versions=tuple(step.all_versions())[-2:])
        for step in (
            Step(
                "make",
                ApiKey.CREATE_TOPICS,
                lambda at: {"topics": [new_topic(at.name("traded"), 1)]},
                (7,),
            ),
            Step("init first", ApiKey.INIT_PRODUCER_ID, _init()),
            Step("init", ApiKey.INIT_PRODUCER_ID, _init()),
            Step("add offsets", ApiKey.ADD_OFFSETS_TO_TXN, _as(lambda at: {"group_id": at.name("sold")})),
            Step("commit offsets", ApiKey.TXN_OFFSET_COMMIT, _commit_offsets(_as())),
            Step("commit offsets as a zombie", ApiKey.TXN_OFFSET_COMMIT, _commit_offsets(_zombie())),
            Step(
                "fetch offsets in doubt",
                ApiKey.OFFSET_FETCH,
                lambda at: _sold(at, require_stable=True),
                (7, 8, 9),
            ),
            Step("end", ApiKey.END_TXN, _as(committed=True)),
            Step("list when it has ended", _LISTED, settles=is_settled),
            Step("fetch offsets after the end", ApiKey.OFFSET_FETCH, _sold),
            Step("forget the group", ApiKey.DELETE_GROUPS, lambda at: {"groups_names": [at.name("sold")]}),
        )
    ],
    in_rounds=True,
)


def _markers(*markers: dict[str, Any]) -> Change:
    """WriteTxnMarkers of an administrator, by default for partition 0 of the topic and producer 1."""
    usual = {"producer_id": 1, "producer_epoch": 0, "transaction_result": True, "coordinator_epoch": 0}
    topics = [{"name": _MARKED, "partition_indexes": [0]}]
    return constant(markers=[{**usual, "topics": topics, **marker} for marker in markers])


_MARKED: Final = "marked"
_NOWHERE: Final = [
    {"name": "nowhere", "partition_indexes": [0]},
    {"name": _MARKED, "partition_indexes": [0, 9]},
]
MARKERS: Final = Script(
    "markers",
    [
        Step("make", ApiKey.CREATE_TOPICS, constant(topics=[new_topic(_MARKED)]), (7,)),
        *(
            Step(name, ApiKey.WRITE_TXN_MARKERS, change)
            for name, change in (
                ("of nobody", _markers()),
                ("of a producer", _markers({})),
                ("of a later coordinator", _markers({"coordinator_epoch": 5})),
                ("of an earlier coordinator", _markers({"coordinator_epoch": 1})),
                ("of a later epoch", _markers({"producer_epoch": 3, "coordinator_epoch": 5})),
                ("of an earlier epoch", _markers({"producer_epoch": 2, "coordinator_epoch": 5})),
                ("of no epoch", _markers({"producer_epoch": -1, "coordinator_epoch": 5})),
                ("of no epoch and an unknown producer", _markers({"producer_id": 6, "producer_epoch": -1})),
                ("of no producer", _markers({"producer_id": -1})),
                ("for no topic", _markers({"topics": []})),
                ("for unknown partitions", _markers({"topics": _NOWHERE, "producer_id": 2})),
                ("of two producers", _markers({"producer_id": 3}, {"producer_id": 4})),
                ("of one producer twice", _markers({"producer_id": 5}, {"producer_id": 5})),
            )
        ),
    ],
)
