"""Fetch requests as far as a fetch session looks into them."""

from __future__ import annotations

from collections.abc import Iterable

from broker.protocol.fetch_requests import FetchRequest, TopicKey


def session_request(
    session_id: int,
    epoch: int,
    forgotten: Iterable[tuple[TopicKey, int]] = (),
    *,
    from_follower: bool = False,
    by_topic_id: bool = False,
    min_bytes: int = 2,
) -> FetchRequest:
    """``forgotten`` are partitions; what is asked for is given beside it."""
    gone = [(topic, [index]) for topic, index in forgotten]
    replica_id = 1 if from_follower else -1
    return FetchRequest(replica_id, -1, 0, min_bytes, 1, 0, session_id, epoch, [], gone, by_topic_id)
