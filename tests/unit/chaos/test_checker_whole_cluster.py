"""What the checker makes of the final log, high watermarks, the group's offsets and the order over clients."""

from __future__ import annotations

from chaos.anomalies import AnomalyKind
from chaos.checker import check
from chaos.history import (
    Acked,
    Assigned,
    Committed,
    Event,
    Failed,
    GroupOffset,
    HighWatermark,
    History,
    Polled,
    Sent,
    Stored,
    StoredRange,
    Trouble,
)

A, B, C = "p-a", "p-b", "p-c"


def sent(*records: str, producer: str = "p") -> list[Event]:
    return [Sent(producer, record) for record in records]


def acked(*records: str, start: int = 0, producer: str = "p") -> list[Event]:
    return [Acked(producer, record, 0, offset) for offset, record in enumerate(records, start)]


def final(*records: str, start: int = 0) -> list[Event]:
    stored = [Stored(0, offset, record) for offset, record in enumerate(records, start)]
    return [StoredRange(0, start, start + len(records)), *stored]


def read(*records: str, consumer: str = "c", start: int = 0, group: str = "g") -> list[Event]:
    polls = [Polled(consumer, 0, offset, record) for offset, record in enumerate(records, start)]
    return [Assigned(consumer, 0, "", group), *polls]


def found(*parts: list[Event], idempotent: bool = True) -> list[AnomalyKind]:
    events = [event for part in parts for event in part]
    return [anomaly.kind for anomaly in check(History(events, frozenset({"p"} if idempotent else ())))]


def story(*parts: list[Event]) -> str:
    (anomaly,) = check(History([event for part in parts for event in part], frozenset({"p"})))
    return str(anomaly)


def test_what_was_read_and_is_in_the_final_log_is_clean() -> None:
    assert found(sent(A, B, C), acked(A, B, C), read(A, B, C), final(A, B, C)) == []


def test_an_acknowledged_record_that_was_read_but_is_not_in_the_final_log_is_lost() -> None:
    parts = (sent(A, B, C), acked(A, B, C), read(A, B, C), final(A, B))
    assert found(*parts) == [AnomalyKind.LOST]
    assert "read by c @" in story(*parts)
    assert "the final log, 0 to 2, holds nothing at offset 2" in story(*parts)


def test_a_record_in_whose_place_another_stands_is_lost_and_the_story_names_the_other() -> None:
    parts = (sent(A, B, C), acked(A, B), read(A, C), final(A, C))
    assert found(*parts) == [AnomalyKind.LOST]
    assert "holds p-c at offset 1" in story(*parts)


def test_what_retention_cut_off_is_not_lost() -> None:
    assert found(sent(A, B, C), acked(A, B, C), final(C, start=2)) == []
    unplaced: list[Event] = [Acked("p", A, 0, None)]
    assert found(sent(A, C), unplaced, final(C, start=2)) == []


def test_a_record_read_that_is_not_in_the_final_log_was_read_above_the_high_watermark() -> None:
    failed: list[Event] = [Failed("p", C, "timed out")]
    assert found(sent(A, B, C), acked(A, B), failed, read(A, B, C), final(A, B)) == [
        AnomalyKind.READ_ABOVE_HW
    ]


def test_a_record_read_that_is_another_in_the_final_log_was_read_above_the_high_watermark() -> None:
    assert found(sent(A, B, C), acked(A), read(A, B), final(A, C)) == [AnomalyKind.READ_ABOVE_HW]


def test_a_record_read_at_the_high_watermark_told_later_is_above_it() -> None:
    told: list[Event] = [HighWatermark(0, 1, began_s=1e12)]
    assert found(sent(A, B), read(A, B), told, final(A, B)) == [AnomalyKind.READ_ABOVE_HW]


def test_a_high_watermark_asked_for_before_the_poll_says_nothing_about_it() -> None:
    told: list[Event] = [HighWatermark(0, 1, began_s=0.0)]
    assert found(sent(A, B), acked(A, B), read(A, B), told, final(A, B)) == []


def test_an_acknowledgement_at_the_high_watermark_told_later_is_above_it() -> None:
    acks: list[Event] = [Acked("p", A, 0, 0, at_s=1.0), Acked("p", B, 0, 1, at_s=2.0)]
    told: list[Event] = [HighWatermark(0, 1, began_s=3.0, at_s=4.0)]
    assert found(sent(A, B), acks, told, read(A, B), final(A, B)) == [AnomalyKind.ACKED_ABOVE_HW]
    asked_before: list[Event] = [HighWatermark(0, 1, began_s=1.5, at_s=4.0)]
    assert found(sent(A, B), acks, asked_before, read(A, B), final(A, B)) == []


def test_a_high_watermark_that_goes_back_is_named() -> None:
    told: list[Event] = [
        HighWatermark(0, 5, began_s=1.0, at_s=2.0),
        HighWatermark(0, 4, began_s=3.0, at_s=4.0),
    ]
    assert found(told) == [AnomalyKind.NONMONOTONIC_END]


def test_two_high_watermarks_asked_for_at_once_may_come_in_any_order() -> None:
    told: list[Event] = [
        HighWatermark(0, 5, began_s=1.0, at_s=4.0),
        HighWatermark(0, 4, began_s=2.0, at_s=3.0),
    ]
    assert found(told) == []


def test_a_record_sent_after_another_was_acknowledged_must_stand_behind_it() -> None:
    parts = (sent(A), acked(A, start=1), sent("q-x", producer="q"), final("q-x", A))
    assert found(*parts, idempotent=False) == [AnomalyKind.REORDERED]
    assert "p-a was acknowledged at 1 @" in story(*parts)


def test_a_plain_producers_retry_may_stand_behind_what_it_sent_later() -> None:
    late: list[Event] = [Acked("p", B, 0, 1), Acked("p", A, 0, 2)]
    parts = (sent(A, B), late, final(A, B, A))
    assert found(*parts, idempotent=False) == []


def test_a_failed_record_may_come_late() -> None:
    failed: list[Event] = [Failed("p", A, "timed out")]
    assert found(sent(A, B), failed, acked(B), read(B, A), final(B, A)) == []


def test_acknowledged_offsets_that_go_back_where_the_log_is_cut_are_named() -> None:
    parts = (sent(A, B), acked(A, start=1), acked(B, start=0), final(C, start=2), sent(C))
    assert found(*parts) == [AnomalyKind.NONMONOTONIC_ACK]
    assert found(*parts, idempotent=False) == []


def test_a_group_that_never_came_to_the_end_has_not_read_everything() -> None:
    parts = (sent(A, B, C), acked(A, B, C), read(A, B), final(A, B, C))
    assert found(*parts) == [AnomalyKind.UNREAD]
    assert "unread: p-c in partition 0: g read to offset 1 only, 1 records below the end 3" in story(*parts)


def test_a_partition_that_no_member_was_given_is_unread() -> None:
    other: list[Event] = [Sent("p", A), Stored(1, 0, A), StoredRange(1, 0, 1)]
    assert found(read(), final(), other) == [AnomalyKind.UNREAD]


def test_a_reader_of_its_own_answers_for_what_it_chose_only() -> None:
    other: list[Event] = [Sent("p", A), Stored(1, 0, A), StoredRange(1, 0, 1)]
    assert found(read(group=""), final(), other) == []


def test_what_no_member_of_a_group_read_is_skipped_though_each_read_on_without_a_step() -> None:
    both = (read(A, consumer="c"), read(C, consumer="d", start=2))
    assert found(sent(A, B, C), acked(A, B, C), *both, final(A, B, C)) == [AnomalyKind.SKIPPED]


def test_a_changed_value_is_a_phantom() -> None:
    changed = "p-b changed to 9 bytes with CRC 0badcafe"
    parts = (sent(A, B), read(A, changed), final(A, B))
    assert found(*parts) == [AnomalyKind.PHANTOM]


def test_a_group_offset_below_an_acknowledged_commit_is_a_lost_commit() -> None:
    commit: list[Event] = [Committed("c", 0, 2)]
    for offset in (1, -1):
        assert found(sent(A, B), read(A, B), commit, [GroupOffset("g", 0, offset)]) == [
            AnomalyKind.COMMIT_LOST
        ]
    assert found(sent(A, B), read(A, B), commit, [GroupOffset("g", 0, 2)]) == []


def test_a_commit_accepted_below_an_earlier_one_is_named() -> None:
    back: list[Event] = [Committed("c", 0, 2, at_s=1.0), Committed("c", 0, 1, began_s=2.0, at_s=3.0)]
    assert found(sent(A, B), read(A, B), back) == [AnomalyKind.NONMONOTONIC_COMMIT]


def test_an_answer_to_a_commit_may_come_after_a_higher_commit() -> None:
    crossed: list[Event] = [Committed("d", 0, 2, at_s=5.0), Committed("c", 0, 1, began_s=4.0, at_s=6.0)]
    assert found(sent(A, B), read(A, B), crossed) == []


def test_commits_after_a_lost_commit_are_no_findings_of_their_own() -> None:
    first: list[Event] = [Committed("c", 0, 2, at_s=1.0)]
    again: list[Event] = [Committed("d", 0, 1, began_s=2.0, at_s=3.0)]
    events = (sent(A, B), read(A, B), first, read(A, consumer="d"), again)
    assert found(*events) == [AnomalyKind.COMMIT_LOST]


def test_one_groups_commits_bind_no_other_group() -> None:
    commit: list[Event] = [Committed("c", 0, 2)]
    assert found(sent(A, B), read(A, B), commit, read(A, B, consumer="x", group="other")) == []
    assert found(sent(A, B), read(A, B), commit, read(A, B, consumer="own", group="")) == []


def test_two_topics_have_partitions_of_their_own() -> None:
    one: list[Event] = [Sent("p", A, "t"), Acked("p", A, 0, 0, "t"), Polled("c", 0, 0, A, "t")]
    two: list[Event] = [Sent("p", B, "u"), Acked("p", B, 0, 0, "u"), Polled("c", 0, 0, B, "u")]
    assert found(one, two) == []


def test_trouble_is_told_and_is_no_anomaly() -> None:
    assert found([Trouble("c", "KafkaException()")]) == []
