"""Which replicas to move so that each broker has its share: of replicas, of bytes, and of leaders. Pure.

In this order, each step keeping what those before it brought about:

1. No replica is on a drained broker.
2. A partition's replicas are in as many racks as can be, as when Kafka creates a topic.
3. Each broker has its share of the replicas, rounded down or up. Without racks this takes as few moves as there can
   be, if two brokers at least have no replica of each partition. Otherwise it may take some more, or come close only.
4. Where a broker has too many bytes, large partitions change places with small ones.
5. Each broker is the first replica, the preferred leader, of its share of the partitions. This copies nothing.

A plan for the result of a plan is empty. `judge` says what of a plan is done now.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable
from typing import Final

from broker.server.moves.board import Board
from broker.server.moves.layout import Ids, Layout, Wish, recipients
from broker.server.moves.leaders import balance_leaders
from broker.utils.topic_partition import TopicPartition

_LEAST_GAIN: Final = 4
"""What two partitions that change places copy is at most so many times what the fuller broker loses by it."""


def plan(layout: Layout, wish: Wish, fixed: Collection[TopicPartition] = ()) -> dict[TopicPartition, Ids]:
    """The new replicas of each partition that changes, the preferred leader first. ``fixed`` ones stay. Raises
    :class:`~broker.server.moves.layout.TooFewError` if a drained broker's replicas have no place.
    """
    capacity = recipients(layout, wish)
    movable = [
        partition
        for partition, found in layout.partitions.items()
        if partition not in fixed and _is_whole(found.replicas, layout, wish)
    ]
    board = Board(layout, capacity, movable)
    if capacity:
        _drain(board, wish)
        if not wish.only_drain:
            _spread_over_racks(board)
            _even_counts(board)
            _even_bytes(board, wish)
        free = board.targets(layout) if wish.only_drain else movable
        balance_leaders(board, sorted(free))
    return board.targets(layout)


def _is_whole(replicas: Ids, layout: Layout, wish: Wish) -> bool:
    """Whether all replicas are on live brokers: a move would wait for the others. What is on a drained broker has to
    move in any case.
    """
    return not wish.drained.isdisjoint(replicas) or all(broker in layout.racks for broker in replicas)


def _drain(board: Board, wish: Wish) -> None:
    """The largest first, while there is a choice."""
    for broker in sorted(wish.drained):
        for partition in sorted(board.movable_on(broker), key=lambda each: (-board.size[each], each)):
            new = _emptiest(board, partition, broker, board.capacity)
            if new is not None:
                board.move(partition, broker, new)


def _emptiest(board: Board, partition: TopicPartition, old: int, among: Iterable[int]) -> int | None:
    """The emptiest broker that may take the place of ``old``; if racks forbid all, the emptiest one."""
    free = [broker for broker in among if broker not in board.replicas[partition]]
    allowed = [broker for broker in free if board.keeps_racks(partition, old, broker)] or free
    return min(allowed, key=board.fill, default=None)


def _spread_over_racks(board: Board) -> None:
    if not board.has_racks:
        return
    for broker in sorted(board.capacity):
        for partition in board.movable_on(broker):
            replicas = board.replicas[partition]
            spread = board.spread(replicas)
            if spread >= board.best_spread(replicas) or board.spread(set(replicas) - {broker}) < spread:
                continue  # spread as well as can be, or the only one in its rack
            better = [
                new
                for new in board.capacity
                if new not in replicas and board.spread([new, *(set(replicas) - {broker})]) > spread
            ]
            if better:
                board.move(partition, broker, min(better, key=board.fill))


# -- counts


def _even_counts(board: Board) -> None:
    """Each move brings a broker that is over its share, rounded up, or under it, rounded down, nearer to it."""
    while (found := _next_for_counts(board)) is not None:
        board.move(*found)


def _next_for_counts(board: Board) -> tuple[TopicPartition, int, int] | None:
    over = board.over(board.count)
    ordered = sorted(over, key=lambda broker: (over[broker], broker))
    for donor in reversed(ordered):
        for recipient in ordered:
            gap = over[donor] > 0 > over[recipient] and (over[donor] >= 1 or over[recipient] <= -1)
            if not gap:
                break  # the next ones are nearer to their shares
            partition = _choice(board, donor, recipient)
            if partition is not None:
                return partition, donor, recipient
    return None


def _choice(board: Board, donor: int, recipient: int) -> TopicPartition | None:
    """What ``donor`` gives: of the topic of which it has the most more, and of the size that ``recipient`` lacks for
    each replica that it is to get.
    """
    lacks = max(-board.over(board.bytes)[recipient], 0) / max(-board.over(board.count)[recipient], 1)

    def rank(partition: TopicPartition) -> tuple[int, float, TopicPartition]:
        more = board.of_topic[partition.topic, donor] - board.of_topic[partition.topic, recipient]
        return -more, abs(board.size[partition] - lacks), partition

    free = (each for each in board.movable_on(donor) if board.may_move(each, donor, recipient))
    return min(free, key=rank, default=None)


# -- bytes


def _even_bytes(board: Board, wish: Wish) -> None:
    """Ends: each exchange makes the sum of the squares of what brokers are over or under smaller."""
    while True:
        over = board.over(board.bytes)
        full = [
            broker
            for broker in board.capacity
            if over[broker] > max(wish.tolerance * board.share(board.bytes, broker), wish.slack)
        ]
        if not any(_relieve(board, donor, over) for donor in sorted(full, key=lambda each: -over[each])):
            return


def _relieve(board: Board, donor: int, over: dict[int, float]) -> bool:
    for recipient in sorted(over, key=lambda broker: (over[broker], broker)):
        if over[recipient] >= over[donor]:
            return False
        pair = _exchange(board, donor, recipient, (over[donor] - over[recipient]) / 2)
        if pair is not None:
            given, taken = pair
            board.move(given, donor, recipient)
            if taken is not None:
                board.move(taken, recipient, donor)
            return True
    return False


def _exchange(
    board: Board, donor: int, recipient: int, wanted: float
) -> tuple[TopicPartition, TopicPartition | None] | None:
    """What ``donor`` gives, and what it takes instead, so that it loses nearly ``wanted`` bytes; None if nothing is
    worth it. It takes nothing where the counts of both allow that.
    """
    back = sorted(
        (board.size[each], each)
        for each in board.movable_on(recipient)
        if board.may_move(each, recipient, donor)
    )
    for_nothing = board.may_give(donor) and board.may_get(recipient)
    best: tuple[float, TopicPartition, TopicPartition | None] | None = None
    for given in board.movable_on(donor):
        size = board.size[given]
        if size == 0 or not board.may_move(given, donor, recipient):
            continue
        options: list[tuple[int, TopicPartition | None]] = [(0, None)] if for_nothing else []
        at = bisect_left(back, (size - wanted,))
        options += back[max(at - 1, 0) : at + 1]
        for taken_size, taken in options:
            loses = size - taken_size
            if 0 < loses < 2 * wanted and size + taken_size <= _LEAST_GAIN * loses and taken != given:
                miss = abs(loses - wanted)
                if best is None or miss < best[0]:
                    best = miss, given, taken
    return None if best is None else best[1:]
