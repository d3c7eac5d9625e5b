"""Where a follower whose log diverged from its leader's truncates it. Pure (KIP-101, KIP-279, KIP-595)."""

from __future__ import annotations

from broker.protocol.epochs import NO_EPOCH


def truncation_offset(
    leader_epoch: int, leader_end_offset: int, own_epoch: int, own_epoch_end: int, own_end_offset: int
) -> int:
    """The offset to truncate to, given the leader's largest epoch not above the follower's last one.

    ``own_epoch`` is the follower's largest epoch not above ``leader_epoch``, and ``own_epoch_end`` its end
    here (``NO_EPOCH`` if the follower knows none). If the two epochs are equal, both logs agree up to the
    lower end. Otherwise the follower drops everything after its own largest smaller epoch and asks again. It
    never truncates to the high watermark, because records above it may be committed.
    """
    if own_epoch == NO_EPOCH:
        return min(leader_end_offset, own_end_offset)
    if own_epoch == leader_epoch:
        return min(own_epoch_end, leader_end_offset, own_end_offset)
    return min(own_epoch_end, own_end_offset)
