"""Where a follower whose log parted from its leader's cuts its own. Pure (KIP-101, KIP-279, KIP-595)."""

from __future__ import annotations

from broker.protocol.epochs import NO_EPOCH


def truncation_offset(
    leader_epoch: int, leader_end_offset: int, own_epoch: int, own_epoch_end: int, own_end_offset: int
) -> int:
    """The offset to truncate to, given the leader's largest epoch not above the follower's last one.

    ``own_epoch`` is the follower's largest epoch not above ``leader_epoch`` and ``own_epoch_end`` its end here
    (``NO_EPOCH`` when the follower knows none). Where the follower has that very epoch, both logs agree up to the
    nearer end. Where it has not, it drops everything after its own largest smaller epoch and asks again. Never to the
    high watermark: what lies above it may be committed.
    """
    if own_epoch == NO_EPOCH:
        return min(leader_end_offset, own_end_offset)
    if own_epoch == leader_epoch:
        return min(own_epoch_end, leader_end_offset, own_end_offset)
    return min(own_epoch_end, own_end_offset)
