"""The table of intended differences from Apache Kafka 3.9.1; ``python -m tests.differential.differences`` writes
docs/differences.md from it. An entry that no answer needs any more makes the tests fail.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from textwrap import fill
from typing import Final

from broker.protocol.api_keys import ApiKey
from tests.differential.compare import ABSENT, ANYTHING, Intended
from tests.differential.normalise import MASKED
from tests.differential.three_differences import OF_THREE
from tests.differential.wrong_differences import WRONG_REQUEST, WRONG_REQUESTS

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "differences.md"
COMMAND: Final = "python -m tests.differential.differences"
_SAYS_WHAT: Final = "an error says what was wrong with the request"
TABLE: Final[tuple[Intended, ...]] = (
    *(
        Intended([key], "*/error_message", "None", "a text", _SAYS_WHAT, where, versions)
        for key, where, versions in (
            (ApiKey.PRODUCE, ANYTHING, range(8, 12)),
            (ApiKey.DELETE_TOPICS, ANYTHING, (5, 6)),
            (ApiKey.CREATE_TOPICS, "*/without waiting", ()),
            (ApiKey.CREATE_PARTITIONS, "*/without waiting", ()),
            (ApiKey.DESCRIBE_CONFIGS, "*/of an unknown topic", ()),
            (ApiKey.FIND_COORDINATOR, "*/of a share group", ()),
            (ApiKey.INCREMENTAL_ALTER_CONFIGS, "*/append to an unknown key of an unknown topic", ()),
        )
    ),
    # A walk appends to, or subtracts from, a key that nobody knows.
    *(
        Intended(
            [ApiKey.INCREMENTAL_ALTER_CONFIGS],
            f"*/error_{field}",
            theirs,
            ours,
            WRONG_REQUEST,
            where="random walk/configure * no.such.key [23]",
            sometimes=True,
        )
        for field, theirs, ours in (
            ("code", "UNKNOWN_SERVER_ERROR", "INVALID_CONFIG"),
            ("message", "None", "a text"),
        )
    ),
    *(
        Intended([key], f"*error_{field}", theirs, ours, WRONG_REQUEST, where)
        for key, where, code in (
            (ApiKey.DESCRIBE_CLIENT_QUOTAS, "quotas/list by an unknown match", "INVALID_REQUEST"),
            (ApiKey.DESCRIBE_CLIENT_QUOTAS, "quotas/list no name", "INVALID_REQUEST"),
            (ApiKey.ELECT_LEADERS, "*/elect of an unknown kind", "INVALID_REQUEST"),
            (ApiKey.INCREMENTAL_ALTER_CONFIGS, "*/an unknown operation", "INVALID_REQUEST"),
            (ApiKey.INCREMENTAL_ALTER_CONFIGS, "*/append to an unknown key", "INVALID_CONFIG"),
        )
        for field, theirs, ours in (("code", "UNKNOWN_SERVER_ERROR", code), ("message", "None", "a text"))
    ),
    *(
        Intended(
            [ApiKey.WRITE_TXN_MARKERS],
            "markers/*/error_code",
            "UNKNOWN_SERVER_ERROR",
            error,
            WRONG_REQUEST,
            where=f"markers/{step}",
        )
        for step, error in (
            ("of no epoch*", "INVALID_PRODUCER_EPOCH"),
            ("of no producer", "INVALID_PRODUCER_ID_MAPPING"),
        )
    ),
    *(
        Intended(
            [ApiKey.INCREMENTAL_ALTER_CONFIGS],
            f"*/error_{field}",
            theirs,
            ours,
            "Landline's segments grow as they are written, and are not allocated before",
            where="alteration of configs/set preallocate to true",
        )
        for field, theirs, ours in (("code", "NONE", "INVALID_CONFIG"), ("message", "None", "a text"))
    ),
    Intended(
        [ApiKey.CREATE_TOPICS],
        "topics/*",
        ANYTHING,
        ANYTHING,
        "an assignment to a broker that is unknown is INVALID_REPLICA_ASSIGNMENT, as CreatePartitions has it; Kafka "
        "makes a topic that nobody serves and that cannot be deleted",
        where="creation of topics/to nobody",
    ),
    Intended(
        [ApiKey.API_VERSIONS],
        "api_keys/58/*",
        ANYTHING,
        ABSENT,
        "Envelope is for brokers that forward to a controller; none does with ZooKeeper",
    ),
    *(
        Intended(
            [ApiKey.API_VERSIONS],
            f"api_keys/{key}/*",
            ANYTHING,
            ABSENT,
            "consumer groups are not listed until group.coordinator.rebalance.protocols turns them on; Kafka 3.9 lists "
            "them and answers UNSUPPORTED_VERSION",
        )
        for key in (68, 69)
    ),
    Intended(
        [ApiKey.CONSUMER_GROUP_HEARTBEAT],
        ANYTHING,
        ANYTHING,
        ANYTHING,
        "Kafka 3.9 has no version 1, and closes the connection",
        versions=(1,),
    ),
    Intended(
        [ApiKey.CONSUMER_GROUP_DESCRIBE],
        ANYTHING,
        ANYTHING,
        ANYTHING,
        "Kafka 3.9 has no version 1, and closes the connection",
        versions=(1,),
    ),
    Intended(
        [ApiKey.CONTROLLED_SHUTDOWN],
        "error_code",
        "UNKNOWN_SERVER_ERROR",
        "BROKER_NOT_AVAILABLE",
        "the broker that is to stop is unknown: an error that says so",
    ),
    *(
        Intended(
            [ApiKey.LEADER_AND_ISR],
            path,
            ANYTHING,
            ANYTHING,
            "the error of the whole request is not repeated for each partition",
            where="requests of controllers/leader_and_isr *",
        )
        for path in ("partition_errors*", "topics*")
    ),
    Intended(
        [ApiKey.FIND_COORDINATOR],
        "error_message",
        "a text",
        "None",
        "Kafka's text where there is no error is NONE",
    ),
    Intended(
        [ApiKey.DESCRIBE_CONFIGS],
        "*/is_default",
        "False",
        "True",
        "Kafka 3.9 leaves the field of the oldest version unset; newer versions have the source of a value",
        versions=(0,),
    ),
    Intended(
        [ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.RENEW_DELEGATION_TOKEN, ApiKey.EXPIRE_DELEGATION_TOKEN],
        "*_timestamp",
        "-1",
        "0",
        "the times beside an error mean nothing, and the codec has none below zero",
    ),
    Intended(
        [ApiKey.OFFSET_FETCH, ApiKey.OFFSET_COMMIT],
        "topics/*/partitions/*",
        ANYTHING,
        ANYTHING,
        "version 0 keeps offsets in ZooKeeper, where old consumers left them; Landline keeps all in the group",
        versions=(0,),
    ),
    Intended(
        [ApiKey.DELETE_GROUPS],
        "results//error_code",
        "GROUP_ID_NOT_FOUND",
        "NONE",
        "the group whose name is empty has offsets, which were committed by version 0",
        where="groups/delete before",
    ),
    Intended(
        [ApiKey.DELETE_GROUPS],
        "results/joined-by-version-*/error_code",
        ANYTHING,
        ANYTHING,
        "Kafka forgets an empty group when any topic is deleted; Landline when it looks for expired offsets",
        where="every request/groups that nobody joined",
        sometimes=True,
    ),
    Intended(
        [ApiKey.ELECT_LEADERS, ApiKey.DESCRIBE_PRODUCERS],
        "*/error_message",
        "a text",
        "None",
        "the error's name says all",
    ),
    Intended(
        [ApiKey.FIND_COORDINATOR],
        "*error_code",
        "COORDINATOR_NOT_AVAILABLE",
        "INVALID_REQUEST",
        "there are no share groups with ZooKeeper, so a client should not retry",
        where="*/of a share group",
        versions=(6,),
    ),
    Intended(
        [ApiKey.DELETE_TOPICS],
        "*/error_code",
        "TOPIC_AUTHORIZATION_FAILED",
        "INVALID_REQUEST",
        "a topic with neither name nor id is no question of rights",
        versions=(6,),
    ),
    Intended(
        [ApiKey.DESCRIBE_CONFIGS],
        "results/described #1/*",
        ANYTHING,
        ABSENT,
        "a resource that a request names twice has one row, with the configs that either asked for",
    ),
    Intended(
        [ApiKey.DESCRIBE_CONFIGS],
        "results/1/configs/ssl.*/read_only",
        "False",
        "True",
        "it is read when the broker starts",
    ),
    Intended(
        [ApiKey.INCREMENTAL_ALTER_CONFIGS],
        "*/error_*",
        ANYTHING,
        "N[Oo][Nn][Ee]",
        "a pool may get any size at once; Kafka changes it by at most a factor of two",
        where="*/of all brokers, too much",
    ),
    Intended(
        [ApiKey.INCREMENTAL_ALTER_CONFIGS],
        "*/error_code",
        "INVALID_REQUEST",
        "INVALID_CONFIG",
        "the error says that the config cannot be changed",
        where="*/of all brokers, read-only",
    ),
    *(
        Intended(
            [key],
            "*",
            ANYTHING,
            ANYTHING,
            "a client cannot make segments smaller than 1 MiB (KIP-1030), which would exhaust files and memory maps",
            where=where,
        )
        for key, where in (
            (ApiKey.INCREMENTAL_ALTER_CONFIGS, "*/two resources, the first wrong"),
            (ApiKey.DESCRIBE_CONFIGS, "*/seen of the other"),
        )
    ),
    Intended(
        [ApiKey.PRODUCE],
        "*/error_code",
        "NONE",
        "CORRUPT_MESSAGE",
        "what is cut off is not acknowledged",
        where="produce/half a batch",
        versions=(0, 1, 2),
    ),
    Intended(
        [ApiKey.PRODUCE],
        "*/error_code",
        "INVALID_RECORD",
        "CORRUPT_MESSAGE",
        "what is cut off was damaged on its way, so the producer may send it again",
    ),
    Intended(
        [ApiKey.PRODUCE],
        "*/record_errors/*",
        ANYTHING,
        ABSENT,
        "the check of a batch stops at its first wrong record",
    ),
    Intended(
        [ApiKey.PRODUCE],
        "*/log_start_offset",
        ANYTHING,
        "-1",
        "nothing was appended, so there is no start of the log to tell",
    ),
    Intended(
        [ApiKey.PRODUCE],
        "*/log_append_time",
        "a time",
        "-1",
        "Kafka answers a duplicate with its producer's time, though the topic does not have the times of appends",
    ),
    *(
        Intended(
            [ApiKey.OFFSET_FETCH],
            f"*/{field}",
            kafkas,
            ours,
            "in Kafka a fenced producer's late TxnOffsetCommit, though refused, takes away what the producer that "
            "fenced it has committed in the same transaction: its offset is lost, and records are read twice",
            where="offsets of a fenced producer/fetch offsets *",
        )
        for field, kafkas, ours in (
            ("error_code", "NONE", "UNSTABLE_OFFSET_COMMIT"),
            ("committed_offset", "-1", "3"),
            ("metadata", "", "m"),
        )
    ),
    Intended(
        [ApiKey.FETCH],
        "*/aborted_transactions",
        "[]",
        "None",
        "beside an error there are no transactions in either form",
    ),
    *(
        Intended(
            [ApiKey.FETCH],
            f"*/{field}",
            "-1",
            ANYTHING,
            "the bounds of the log stand beside OFFSET_OUT_OF_RANGE too",
            where=where,
        )
        for where in (
            "reading/fetch b*",
            "deletion of records/fetch what is deleted",
            "wrong reads/fetch * behind the end",
        )
        for field in ("high_watermark", "log_start_offset")
    ),
    Intended(
        [ApiKey.FETCH],
        "*/error_code",
        "NOT_LEADER_OR_FOLLOWER",
        "UNKNOWN_LEADER_EPOCH",
        "a broker that is no replica gets the same error in all versions; it retries after either",
        where="reading/fetch as a stranger's replica",
        versions=range(9),
    ),
    Intended(
        [ApiKey.FETCH],
        "*/current_leader/*",
        ABSENT,
        ANYTHING,
        "the leader is told in every version that has the field (KIP-595)",
        where="leadership/fetch *",
        versions=range(12, 16),
    ),
    *(
        Intended(
            [ApiKey.FETCH],
            path,
            theirs,
            ours,
            "the reader's limit is for the messages that it gets; Kafka's is for the batches from which they are made",
            versions=range(4),
        )
        for path, theirs, ours in (("*/records/*", ABSENT, ANYTHING), ("*/records", "[[]]", ABSENT))
    ),
    Intended(
        [ApiKey.DESCRIBE_TRANSACTIONS],
        "*/transaction_start_time",
        "a time",
        "-1",
        "after InitProducerId there is no transaction; Kafka shows when the one before began",
    ),
    *(
        Intended(
            [ApiKey.INCREMENTAL_ALTER_CONFIGS],
            "*/error_code",
            error,
            "UNKNOWN_TOPIC_OR_PARTITION",
            "whether there is such a topic is looked at first",
        )
        for error in ("INVALID_CONFIG", "UNKNOWN_SERVER_ERROR")
    ),
    *WRONG_REQUESTS,
    *(
        Intended(
            [],
            f"partitions/*/{path}",
            ANYTHING,
            landline,
            "it is written with the first record",
            where="random walk/files",
        )
        for path, landline in (
            ("files/*index/*", ABSENT),
            ("files/leader-epoch-checkpoint/*", ABSENT),
            ("epochs", "None"),
        )
    ),
)
OPEN: Final[tuple[Intended, ...]] = ()
"""What is not meant, and has been found: each entry goes when Landline answers as Kafka."""
_OPEN: Final = """
## Not yet as Kafka

These differences are defects that are known.
"""
_INTRODUCTION: Final = f"""\
# Differences from Apache Kafka

Generated by `.venv/bin/{COMMAND}`; edit the table in
`tests/differential/differences.py`.

`tests/differential` sends the same requests to Apache Kafka 3.9.1 in ZooKeeper mode and to Landline: every API in
every version that Landline has, valid and wrong requests, random walks, and of clusters of three brokers what the
wrong one answers, and how partitions move. It compares every field of every answer. The differences that are meant
are those of the table. A test fails for any other difference, and for an entry here that is not seen any more. `*`
stands for anything.
"""
_NOT_COMPARED: Final = """\
Ids and ports are compared by where they appear again. Of an error's text only whether there is one is compared. Not
compared are the values of {}.
"""
_HEADINGS: Final = ("API", "Request", "Field", "Kafka 3.9.1", "Landline", "Why")


def page() -> str:
    """The full text of docs/differences.md."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    masked = [f"`{name}`" for name in MASKED if name != "error_message"]
    yield _INTRODUCTION
    yield fill(_NOT_COMPARED.format(f"{', '.join(masked[:-1])} and {masked[-1]}"), 115) + "\n"
    yield from _table((*TABLE, *OF_THREE))
    if OPEN:
        yield _OPEN
        yield from _table(OPEN)


def _table(entries: tuple[Intended, ...]) -> Iterator[str]:
    yield _row(_HEADINGS)
    yield _row(["---"] * len(_HEADINGS))
    for each in entries:
        yield _row(
            [
                _apis(each),
                _request(each),
                f"`{each.path}`",
                _value(each.kafka),
                _value(each.landline),
                each.why,
            ]
        )


def _row(cells: list[str] | tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"


def _apis(each: Intended) -> str:
    names = ", ".join("".join(word.title() for word in key.name.split("_")) for key in each.keys) or "all"
    if not each.versions:
        return names
    first, last = min(each.versions), max(each.versions)
    return f"{names} v{first}" if first == last else f"{names} v{first} to v{last}"


def _request(each: Intended) -> str:
    return "any" if each.where == ANYTHING else each.where.replace("/", ": ", 1)


def _value(text: str) -> str:
    return "anything" if text == ANYTHING else f"`{text}`"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
