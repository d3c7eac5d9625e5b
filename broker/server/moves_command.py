"""`landline rebalance`, `landline drain` and `landline fill`: move partitions, or fill an empty broker, under throttle.

All state is the cluster's, so each may be ended at any time and run again. `moves.planner` and `moves.judge` decide,
`moves.admin` asks the brokers, and `moves.turn` keeps others away meanwhile.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from threading import Event
from typing import Any, Final

from broker.config.broker_config import BrokerConfig
from broker.config.problems import ConfigError
from broker.server.cluster_requests import FAILURES, ClusterRequests
from broker.server.moves.admin import MoveAdmin
from broker.server.moves.judge import (
    MovesRefusedError,
    Pace,
    View,
    fill,
    judge,
    pause,
    refuse_foreign_throttles,
)
from broker.server.moves.layout import Layout, Targets, TooFewError, Wish, added, amount, of_brokers
from broker.server.moves.planner import plan
from broker.server.moves.turn import TAKE_BACK_S, MoveTurn, OwnTurn, lease_of, told_of
from broker.server.moves.work import Decide, Left, MovedCluster, WorkDone, in_words, work
from broker.server.stopping.may_stop import zookeeper
from broker.server.zookeeper_access import access_from
from broker.zookeeper.cluster_store import ClusterStore
from broker.zookeeper.store import Store, StoreError

EXIT_DONE: Final = 0
EXIT_FAILED: Final = 1
EXIT_NOT_YET: Final = 75
EXIT_INTERRUPTED: Final = 130

_TOLD_MOVES: Final = 20
_SESSION_MS: Final = 20_000

Complain = Callable[[str], None]


def run(options: Any, properties: Mapping[str, str], complain: Complain) -> int:
    """Runs the command. ``properties`` are those of the broker's file."""
    try:
        if options.who:
            with _zookeeper(properties) as store:
                print(json.dumps(told_of(MoveTurn(store).held())))
            return EXIT_DONE
        config = BrokerConfig.from_properties(properties)
        with ClusterRequests.of(config, f"landline-{options.command}") as brokers:
            admin = MoveAdmin(brokers)
            if options.command == "drain" and (options.verify or options.forget):
                return _verify(admin, options, complain) or _forget(options, properties)
            with _zookeeper(properties) as store:
                turn = MoveTurn(store)
                if options.dry_run:
                    return _dry_run(admin, turn, options)
                return move(admin, turn, options, complain)
    except (ConfigError, MovesRefusedError, StoreError, TooFewError, *FAILURES) as error:
        complain(f"{options.command}: {error}")
        return EXIT_FAILED


def move(
    admin: MovedCluster,
    turn: MoveTurn,
    options: Any,
    complain: Complain,
    wait: Callable[[float], object] | None = None,
) -> int:
    """Moves partitions while it is this run's turn. Raises :class:`MovesRefusedError` if it is another's, and what the
    cluster and ZooKeeper say.
    """
    own, pause_for, code = OwnTurn(turn, lease_of(options)), wait or Event().wait, EXIT_FAILED
    try:
        try:
            own.begin(pause_for, is_held=options.held, dead=options.take_over, by_force=options.pause)
            code = _work(admin, own, options, complain, pause_for)
        except KeyboardInterrupt:
            code = EXIT_INTERRUPTED
            complain(
                f"{options.command}: interrupted: {_take_back(admin, own, options, pause_for)}. Run it again"
            )
    finally:
        try:
            _leave(own, options, code)
        except StoreError as error:
            complain(f"{options.command}: the turn could not be given back and ends by itself: {error}")
    return code


def _leave(own: OwnTurn, options: Any, code: int) -> None:
    """Gives the turn back, unless a command of this run follows."""
    if code == EXIT_DONE and options.keep is not None:
        own.leave(options.keep)
    elif code == EXIT_NOT_YET and options.holder:
        own.leave()
    else:
        own.end()


def _take_back(admin: MovedCluster, own: OwnTurn, options: Any, pause_for: Callable[[float], object]) -> str:
    """Takes back what this run has set, and says so. What a broker copies that is filled cannot be."""
    if options.command == "fill":
        return "its throttle stays, as long as the broker copies. --pause takes it away"
    try:
        own.begin_to_end()
        back = work(
            admin,
            lambda view, _gone: pause(view, by_whoever=False),
            _silent,
            TAKE_BACK_S,
            pause_for,
            keep=own.keep,
        )
    except MovesRefusedError as error:
        return str(error)
    if not back.is_done:
        return f"its moves and throttles could not be taken back within {TAKE_BACK_S} s"
    return "; ".join(("its moves and throttles are taken back", *back.left.waits))


def _silent(_: Left) -> None:
    pass


def _decision(options: Any) -> Decide:
    if options.pause:
        return lambda view, _gone: pause(view)
    pace = Pace(options.throttle, getattr(options, "at_once", 10))
    if options.command == "fill":
        (broker,) = options.broker
        return lambda view, _gone: fill(view, broker, pace, is_prepared=options.prepare)
    return partial(_judged, wish_of(options), pace)


def _judged(wish: Wish, pace: Pace, view: View, gone: Any) -> Any:
    return judge(view, wish, pace, gone)


def wish_of(options: Any) -> Wish:
    """What the options ask for."""
    if options.command == "drain":
        return Wish(frozenset(options.broker), only_drain=True)
    return Wish(excluded=frozenset(options.exclude), capacity=dict(options.capacity))


def _work(
    admin: MovedCluster, own: OwnTurn, options: Any, complain: Complain, pause_for: Callable[[float], object]
) -> int:
    view = admin.look()
    if not options.pause:
        refuse_foreign_throttles(view.throttles)
    last: list[str] = []

    def tell(left: Left) -> None:
        words = left.words()
        if not options.json and last[-1:] != [words]:
            print(words, file=sys.stderr, flush=True)
            last.append(words)

    planned = None if options.pause else _planned(view, options)
    done = work(admin, _decision(options), tell, options.within, pause_for, keep=own.keep)
    running = options.command == "fill" and options.broker[0] in view.layout.racks
    _tell(options, done, planned, is_running=running)
    if not done.is_done and done.left.waits and not options.json:
        complain(f"{options.command}: not yet: {done.left.words()}")
    return EXIT_DONE if done.is_done else EXIT_NOT_YET


def _tell(options: Any, done: WorkDone, planned: dict[str, Any] | None, *, is_running: bool) -> None:
    if options.json:
        left = {"replicas": done.left.replicas, "bytes": done.left.bytes, "words": done.left.words()}
        told = {"done": done.is_done, "changed": done.is_changed, "left": left, "plan": planned}
        print(json.dumps({**told, "running": is_running}))
    elif done.is_done:
        print("; ".join(("done" if done.is_changed else "nothing to do", *done.left.waits)))


def _verify(admin: MoveAdmin, options: Any, complain: Complain) -> int:
    """Says whether nothing is on the brokers: no replica is assigned to them, and they have no files of one."""
    layout = admin.look().layout
    found = [f"{each} is assigned to them" for each in of_brokers(layout, options.broker)]
    for broker in options.broker:
        if broker in layout.racks and options.forget:
            found.append(f"broker {broker} runs")
        elif broker in layout.racks:
            found += [f"broker {broker} has files of {each}" for each in admin.holds(broker)]
    if found:
        complain(f"drain: not empty: {'; '.join(found[:5])}")
        return EXIT_NOT_YET
    print(f"nothing is on {', '.join(map(str, options.broker))}")
    return EXIT_DONE


def _forget(options: Any, properties: Mapping[str, str]) -> int:
    """Removes the dynamic configs of brokers that have left the cluster: only they would take that request. Then the
    turn of the holder is over, who kept others from moving something there again.
    """
    if options.forget:
        with _zookeeper(properties) as store:
            for broker in options.broker:
                if ClusterStore(store).remove_entity_config("brokers", str(broker)):
                    print(f"removed the dynamic configs of broker {broker}")
            OwnTurn(MoveTurn(store), lease_of(options)).end()
    return EXIT_DONE


def _zookeeper(properties: Mapping[str, str]) -> AbstractContextManager[Store]:
    return zookeeper(properties.get("zookeeper.connect", ""), _SESSION_MS, access_from(properties))


# -- plans


def _dry_run(admin: MovedCluster, turn: MoveTurn, options: Any) -> int:
    view = admin.look()
    if options.command == "fill":
        (broker,) = options.broker
        verdict = fill(view, broker, Pace(options.throttle), is_prepared=options.prepare)
        planned = _planned(view, options)
        is_changed = not verdict.step.is_nothing
    elif options.pause:
        verdict = pause(view)
        is_changed = not verdict.step.is_nothing
        planned = {
            "lines": [f"{len(verdict.step.cancelled)} moves would be taken back"] if is_changed else []
        }
    else:
        refuse_foreign_throttles(view.throttles)
        planned = _planned(view, options)
        is_changed = planned["partitions"] > 0 or not _is_idle(view, options)
    held = turn.held()
    if held is not None and held.lease.holder != options.holder and not options.pause:
        planned["lines"].append(str(held))
    if options.json:
        running = options.command == "fill" and options.broker[0] in view.layout.racks
        told = {"done": not is_changed, "changed": is_changed, "plan": planned, "left": None}
        print(json.dumps({**told, "running": running}))
    else:
        print("\n".join(planned["lines"] or ["nothing to do"]))
    return EXIT_DONE


def _is_idle(view: View, options: Any) -> bool:
    """Whether neither moves of ours nor throttles are left from a run before."""
    settled = view._replace(unsettled=frozenset())
    verdict = judge(settled, wish_of(options), Pace(options.throttle))
    return verdict.step.is_nothing and not any(
        view.throttles.is_ours(each, found) for each, found in view.layout.partitions.items()
    )


def _planned(view: View, options: Any) -> dict[str, Any]:
    """The plan, with what is under way of an earlier one, in numbers and in words."""
    if options.command == "fill":
        return _to_fill(view.layout, options)
    layout, wish = view.layout, wish_of(options)
    moving = {each: found for each, found in layout.partitions.items() if found.is_moving}
    ours = {each: found.adding for each, found in moving.items() if view.throttles.is_ours(each, found)}
    targets = plan(layout, wish, fixed=moving.keys())
    new = {**added(layout, targets), **ours}
    numbers = _numbers(layout, new, options.throttle, len(targets) + len(ours))
    lines: list[str] = numbers["lines"]
    if reordered := len(targets) - len(added(layout, targets)):
        lines.append(f"{reordered} partitions only get another order of replicas")
    if len(moving) > len(ours):
        lines.append(
            f"{len(moving) - len(ours)} partitions are being moved by somebody else, and are left to that"
        )
    if lines:
        lines += [*_table(layout, targets), *_moves(layout, targets)]
    return numbers


def _to_fill(layout: Layout, options: Any) -> dict[str, Any]:
    """What an empty broker lacks."""
    (broker,) = options.broker
    lacking = {
        each: (broker,)
        for each, found in layout.partitions.items()
        if broker in found.replicas and broker not in found.isr
    }
    return _numbers(layout, lacking, options.throttle, len(lacking))


def _numbers(layout: Layout, new: Targets, rate: int, partitions: int) -> dict[str, Any]:
    to_copy = amount(layout, new)
    seconds = to_copy.seconds(rate)
    words = (
        f"{to_copy.replicas} replicas, {in_words(to_copy.total)} to copy, about {_duration(seconds)} at "
        f"{in_words(rate)}/s per broker"
    )
    return {
        "partitions": partitions,
        "replicas": to_copy.replicas,
        "bytes": to_copy.total,
        "seconds": round(seconds, 1),
        "lines": [words] if partitions else [],
    }


def _table(layout: Layout, targets: Targets) -> list[str]:
    before, after = _loads(layout, {}), _loads(layout, targets)
    rows = ["broker  replicas        bytes                   leaders"]
    for broker in sorted({*before, *after, *layout.racks}):
        old, new = before.get(broker, (0, 0, 0)), after.get(broker, (0, 0, 0))
        cells = [f"{was} -> {now}" for was, now in zip(old, new, strict=True)]
        cells[1] = f"{in_words(old[1])} -> {in_words(new[1])}"
        rows.append(f"{broker:<6}  {cells[0]:<14}  {cells[1]:<22}  {cells[2]}")
    return rows


def _loads(layout: Layout, targets: Targets) -> dict[int, tuple[int, int, int]]:
    count: Counter[int] = Counter()
    size: Counter[int] = Counter()
    leads: Counter[int] = Counter()
    for partition, found in layout.partitions.items():
        replicas = targets.get(partition, found.replicas)
        leads[replicas[0]] += 1
        for broker in replicas:
            count[broker] += 1
            size[broker] += found.size
    return {broker: (count[broker], size[broker], leads[broker]) for broker in count}


def _moves(layout: Layout, targets: Targets) -> list[str]:
    rows = [
        f"{each}: {_ids(layout.partitions[each].replicas)} -> {_ids(target)}"
        for each, target in sorted(targets.items())
    ]
    more = [f"and {len(rows) - _TOLD_MOVES} more"] if len(rows) > _TOLD_MOVES else []
    return rows[:_TOLD_MOVES] + more


def _ids(replicas: tuple[int, ...]) -> str:
    return ",".join(map(str, replicas))


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
