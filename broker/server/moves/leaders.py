"""Which replica of each partition comes first, so that each broker leads its share. Pure.

Only the order of replicas changes, so nothing is copied. A broker with too many hands one over to a broker with too
few, if need be through others in between.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection

from broker.server.moves.board import Board
from broker.utils.topic_partition import TopicPartition


def balance_leaders(board: Board, free: Collection[TopicPartition]) -> None:
    """Changes the order of the replicas of ``free`` partitions."""
    leads = Counter(replicas[0] for replicas in board.replicas.values())
    first: dict[int, set[TopicPartition]] = {broker: set() for broker in board.capacity}
    for partition in free:
        first.setdefault(board.replicas[partition][0], set()).add(partition)
    while (path := _path(board, leads, first)) is not None:
        for partition, old, new in path:
            replicas = board.replicas[partition]
            replicas.remove(new)
            replicas.insert(0, new)
            first[old].discard(partition)
            first[new].add(partition)
        leads[path[0][1]] -= 1
        leads[path[-1][2]] += 1


def _path(
    board: Board, leads: Counter[int], first: dict[int, set[TopicPartition]]
) -> list[tuple[TopicPartition, int, int]] | None:
    """Who hands over what to whom, from a broker that leads too many to one that leads too few; None if there is no
    such path.
    """
    over = board.over(leads)
    for source in sorted(over, key=lambda broker: (-over[broker], broker)):
        if over[source] <= 0:
            return None
        came: dict[int, tuple[TopicPartition, int, int]] = {}
        queue = deque([source])
        while queue:
            here = queue.popleft()
            for partition in sorted(first.get(here, ())):
                for new in board.replicas[partition][1:]:
                    if new in board.capacity and new != source and new not in came:
                        came[new] = partition, here, new
                        queue.append(new)
        ends = [end for end in came if over[end] < 0 and (over[source] >= 1 or over[end] <= -1)]
        if ends:
            path = [came[min(ends, key=lambda broker: (over[broker], broker))]]
            while path[0][1] != source:
                path.insert(0, came[path[0][1]])
            return path
    return None
