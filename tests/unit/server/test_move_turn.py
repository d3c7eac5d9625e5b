"""One run moves partitions at a time: the others are told who, and one that ends takes back what it has set alone."""

import contextlib
import json
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from broker.arguments import make_parser
from broker.server import moves_command
from broker.server.moves.judge import MovesRefusedError
from broker.server.moves.layout import Layout, PlacedPartition
from broker.server.moves.throttles import ThrottledPairs, Throttles
from broker.server.moves.turn import (
    TURN,
    MoveLease,
    MoveTurn,
    OwnTurn,
    decode_lease,
    encode_lease,
)
from broker.server.moves_command import EXIT_DONE, EXIT_INTERRUPTED, EXIT_NOT_YET, move
from broker.utils.topic_partition import TopicPartition
from broker.zookeeper.embedded import EmbeddedStore
from broker.zookeeper.store import ConnectionLossError
from rig.wait import wait_until
from tests.support.moved_cluster import Pretended

ALICE, BOB = "alice@control (rebalance, run 1a2b3c)", "bob@laptop (decommission h2)"
RATE = 50 << 20
FILLED = TopicPartition("t", 0)


@pytest.fixture
def store(tmp_path):
    store = EmbeddedStore(tmp_path / "metadata.db")
    store.connect(0, threading.Event())
    yield store
    store.close()


@pytest.fixture
def turn(store):
    return MoveTurn(store)


def lease(holder=ALICE, command="rebalance", for_ms=60_000):
    return MoveLease(holder, command, for_ms)


def test_the_next_one_is_told_who_moves_partitions_by_which_command_and_since_when(turn, store):
    assert turn.held() is None
    assert turn.take(lease()) is None
    held = turn.take(lease(BOB, "drain --broker=2"))
    since = datetime.fromtimestamp(held.lease.since_ms / 1000, UTC)
    assert str(held).startswith(
        f"{ALICE} moves partitions since {since:%Y-%m-%d %H:%M:%S}Z, by `rebalance`. Two at once would undo each "
        "other's moves and throttles: wait until that is done. If it has died, its turn ends in "
    )
    assert abs(since.timestamp() - time.time()) < 60
    turn.free(BOB)
    assert turn.take(lease(BOB)) is not None, "nobody frees what is another's"
    stamped = store.get(TURN)[1].mtime_ms
    wait_until(lambda: turn.take(lease()) is None and store.get(TURN)[1].mtime_ms > stamped)
    assert turn.held().lease.since_ms == held.lease.since_ms, "renewed, and it began when it did"
    turn.free(ALICE)
    assert turn.take(lease(BOB)) is None


def test_the_turn_of_a_run_that_died_is_over_when_its_time_has_passed(turn):
    assert turn.take(lease(for_ms=50)) is None
    wait_until(lambda: turn.take(lease(BOB)) is None, 10)
    assert turn.keep(lease()) == (
        f"{BOB} moves partitions now: the turn of this run was over. Run it again when that is done"
    )


def test_a_turn_whose_time_is_over_and_that_nobody_has_had_since_goes_on(turn):
    assert turn.take(lease(for_ms=1)) is None
    wait_until(lambda: turn.held() is None)
    assert turn.keep(lease()) is None
    assert turn.held().lease.holder == ALICE


def test_of_a_run_that_is_known_to_be_dead_the_turn_is_taken_over_at_once_and_by_one_alone(turn):
    assert turn.take(lease()) is None
    before = turn.held().lease.since_ms
    assert turn.take(lease(BOB), dead="somebody else").lease.holder == ALICE
    assert turn.take(lease(BOB), dead=ALICE) is None
    assert turn.held().lease.since_ms >= before
    assert turn.take(lease("carol"), dead=ALICE).lease.holder == BOB
    assert turn.keep(lease()).startswith(f"{BOB} moves partitions now: the turn of this run was over"), (
        "what it left on the host ends"
    )


def test_what_a_dead_run_left_on_the_host_takes_back_what_it_has_set_before_its_turn_is_taken_over(turn):
    assert turn.take(lease()) is None
    OwnTurn(turn, lease()).begin_to_end()
    waited = []

    def wait(_seconds):
        waited.append(turn.held().lease.holder)
        turn.free(ALICE)

    OwnTurn(turn, lease(BOB)).begin(wait, dead=ALICE)
    assert waited == [ALICE]
    assert turn.held().lease.holder == BOB


def test_many_who_ask_at_once_get_one_turn(store):
    granted = []

    def ask(name):
        if MoveTurn(store).take(lease(name)) is None:
            granted.append(name)

    threads = [threading.Thread(target=ask, args=(f"run-{n}",)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(granted) == 1


def test_a_turn_survives_its_writing_and_rubbish_is_a_free_one(turn, store):
    whole = MoveLease(ALICE, "drain --broker=2", 5, 6, is_ending=True, run={"pid": 7})
    assert decode_lease(encode_lease(whole)) == whole
    turn.take(lease())
    text = encode_lease(whole)
    for rubbish in (
        b"",
        b"[1]",
        b'{"holder": 1}',
        text.replace(b"alice", b"\\ud800"),
        text.replace(b"5", b"x"),
    ):
        store.set(TURN, rubbish)
        assert turn.held() is None
        assert "somebody has taken the moves and the throttles back" in turn.keep(lease())
        assert turn.take(lease(BOB)) is None


# --- the commands


def options(command, *more, holder=ALICE):
    words = [command, "broker.properties", f"--throttle={RATE}", "--json", *more]
    return make_parser(Path("/d")).parse_args([*words, f"--holder={holder}"] if holder else words)


def cluster():
    """Brokers 1 to 4, of which 4 has joined since. Broker 3 is empty, and lacks partition 0."""
    orders = ((1, 2, 3), (2, 3, 1), (3, 1, 2))
    partitions = {
        TopicPartition("t", number): PlacedPartition(orders[number % 3], 0, frozenset((1, 2, 3)), 1 << 20)
        for number in range(9)
    }
    partitions[FILLED] = partitions[FILLED]._replace(isr=frozenset((1, 2)))
    return Pretended(Layout(dict.fromkeys((1, 2, 3, 4)), partitions))


def placed(pretended):
    """The replicas of each partition, and what moves."""
    return {each: (set(found.replicas), found.adding) for each, found in pretended.partitions.items()}


def filling(pretended):
    """What the throttle of broker 3 is while it is filled."""
    pretended.throttles = Throttles({"t": ThrottledPairs(followers=frozenset({"0:3"}))}, RATE, RATE)
    return pretended.throttles


class Rests:
    """What happens while a run waits for its next look, one after another; then time goes on."""

    def __init__(self, pretended, *events):
        self._pretended = pretended
        self._events = list(events)

    def __call__(self, _seconds):
        if self._events:
            self._events.pop(0)()
        else:
            self._pretended.go_on()


def interrupt():
    raise KeyboardInterrupt


@pytest.mark.parametrize("other", [("drain", "--broker=2"), ("rebalance",), ("fill", "--broker=3")])
def test_a_second_run_is_refused_by_the_first_ones_name_and_the_first_ends(turn, other, capsys):
    pretended, refused = cluster(), []

    def second():
        before = pretended.throttles, dict(pretended.partitions)
        with pytest.raises(MovesRefusedError) as error:
            move(pretended, turn, options(*other, holder=BOB), refused.append, pytest.fail)
        refused.append(str(error.value))
        assert (pretended.throttles, pretended.partitions) == before

    done = move(pretended, turn, options("rebalance"), pytest.fail, Rests(pretended, *[second] * 3))
    assert done == EXIT_DONE
    assert json.loads(capsys.readouterr().out)["done"]
    assert len(refused) == 3
    assert all(words.startswith(f"{ALICE} moves partitions since ") for words in refused)
    assert pretended.throttles == Throttles()
    assert turn.held() is None
    assert (
        move(pretended, turn, options("drain", "--broker=2", holder=BOB), pytest.fail, Rests(pretended)) == 0
    )


def test_a_rebalance_with_nothing_to_do_leaves_the_throttle_of_a_broker_that_is_filled(turn, capsys):
    pretended = cluster()
    pretended.live.discard(4)
    set_up = filling(pretended)
    assert move(pretended, turn, options("rebalance"), pytest.fail, pytest.fail) == EXIT_DONE
    told = json.loads(capsys.readouterr().out)
    assert (told["done"], told["changed"]) == (True, False)
    assert "the throttle of t-0 stays until it is in sync" in told["left"]["words"]
    assert pretended.throttles == set_up
    pretended.go_on()
    assert move(pretended, turn, options("rebalance"), pytest.fail, lambda _: None) == EXIT_DONE
    assert pretended.throttles == Throttles(), "in sync, nobody needs it any more"


def test_a_broker_that_is_in_sync_leaves_the_throttle_to_another_that_is_still_filled(turn):
    pretended = cluster()
    pretended.partitions[FILLED] = PlacedPartition((1, 2, 3), 1, frozenset((1,)), 1 << 20)
    both = ThrottledPairs(followers=frozenset({"0:2", "0:3", "1:2"}))
    pretended.throttles = Throttles({"t": both}, RATE, RATE)
    pretended.partitions[FILLED] = PlacedPartition((1, 2, 3), 1, frozenset((1, 2)), 1 << 20)
    assert move(pretended, turn, options("fill", "--broker=2"), pytest.fail, lambda _: None) == EXIT_DONE
    assert pretended.throttles.is_on
    assert "0:3" in pretended.throttles.lists["t"].followers
    assert "1:2" not in pretended.throttles.lists["t"].followers


def test_what_is_filled_is_told_from_what_an_earlier_run_left_of_its_moves(turn):
    """Its lists have leaders too, of a broker whose disk died while it moved partitions there."""
    pretended = cluster()
    left = ThrottledPairs(frozenset({"0:1", "0:2", "1:1"}), frozenset({"0:3", "1:3"}))
    pretended.throttles = Throttles({"t": left}, RATE, RATE)
    move(pretended, turn, options("fill", "--broker=3", "--prepare"), pytest.fail, lambda _: None)
    move(pretended, turn, options("fill", "--broker=3", "--within=0"), pytest.fail, pytest.fail)
    turn.free(ALICE)
    pretended.live.discard(4)
    assert move(pretended, turn, options("rebalance"), pytest.fail, lambda _: None) == EXIT_DONE
    assert pretended.throttles.lists == {"t": ThrottledPairs(followers=frozenset({"0:3"}))}
    assert pretended.throttles.is_on


def test_an_interrupt_takes_back_what_the_run_has_set_and_nothing_else(turn):
    pretended, said = cluster(), []
    set_up, before = filling(pretended), placed(pretended)

    def stop():
        assert any(found.adding for found in pretended.partitions.values())
        interrupt()

    code = move(
        pretended, turn, options("rebalance"), said.append, Rests(pretended, stop, *[lambda: None] * 9)
    )
    assert code == EXIT_INTERRUPTED
    assert placed(pretended) == before
    assert pretended.throttles == set_up
    assert (
        "its moves and throttles are taken back; the throttle of t-0 stays until it is in sync. Run"
        in said[0]
    )
    assert turn.held() is None


def test_the_next_run_waits_for_one_that_was_interrupted_and_takes_back_what_it_has_set(turn):
    pretended, waited = cluster(), []

    def next_run():
        """Begins while the first one takes back, which is done before it looks again."""

        def wait(_seconds):
            waited.append(turn.held().lease)
            turn.free(ALICE)

        OwnTurn(turn, lease(BOB)).begin(wait)

    code = move(pretended, turn, options("rebalance"), lambda _: None, Rests(pretended, interrupt, next_run))
    assert code == EXIT_INTERRUPTED
    assert [(each.holder, each.is_ending) for each in waited] == [(ALICE, True)]
    assert turn.held().lease.holder == BOB


def test_an_interrupted_fill_leaves_its_throttle_while_the_broker_copies(turn):
    pretended, said = cluster(), []
    code = move(pretended, turn, options("fill", "--broker=3"), said.append, Rests(pretended, interrupt))
    assert code == EXIT_INTERRUPTED
    assert pretended.throttles == Throttles({"t": ThrottledPairs(followers=frozenset({"0:3"}))}, RATE, RATE)
    assert (
        "fill: interrupted: its throttle stays, as long as the broker copies. --pause takes it away"
        in said[0]
    )
    assert turn.held() is None
    pausing = options("rebalance", "--pause", holder=BOB)
    assert move(pretended, turn, pausing, pytest.fail, lambda _: None) == EXIT_DONE
    assert pretended.throttles == Throttles()


def test_a_run_that_is_paused_from_elsewhere_ends_and_says_by_whom(turn):
    pretended = cluster()
    before = placed(pretended)
    pausing = options("rebalance", "--pause", holder=BOB)

    def pause():
        assert turn.held().lease.holder == ALICE
        assert move(pretended, turn, pausing, pytest.fail, lambda _: None) == EXIT_DONE
        assert turn.held() is None

    with pytest.raises(MovesRefusedError, match=r"^somebody has taken the moves and the throttles back"):
        move(pretended, turn, options("rebalance"), pytest.fail, Rests(pretended, pause))
    assert pretended.throttles == Throttles()
    assert placed(pretended) == before

    def begin_to_pause():
        turn.take(MoveLease(BOB, "rebalance --pause"), by_force=True)

    with pytest.raises(MovesRefusedError) as error:
        move(pretended, turn, options("rebalance"), pytest.fail, Rests(pretended, begin_to_pause))
    assert str(error.value) == f"{BOB} has taken the moves and the throttles back. Run it again to go on"
    assert turn.held().lease.holder == BOB, "it is another's turn, and is not given back"


def test_the_commands_of_one_run_keep_the_turn_between_them(turn):
    pretended = cluster()
    first = options("fill", "--broker=3", "--prepare", "--keep=3600")
    assert move(pretended, turn, first, pytest.fail, lambda _: None) == EXIT_DONE
    assert 3_500_000 < turn.held().remaining_ms <= 3_600_000
    more = options("fill", "--broker=3", "--held", "--within=0")
    assert move(pretended, turn, more, pytest.fail, pytest.fail) == EXIT_NOT_YET
    assert 0 < turn.held().remaining_ms <= 120_000, "until the next round of the play"
    pretended.go_on()
    assert (
        move(pretended, turn, options("fill", "--broker=3", "--held"), pytest.fail, lambda _: None)
        == EXIT_DONE
    )
    assert turn.held() is None
    with pytest.raises(MovesRefusedError, match=r"^somebody has taken the moves and the throttles back"):
        move(pretended, turn, options("fill", "--broker=3", "--held"), pytest.fail, pytest.fail)
    alone = options("rebalance", "--within=0", holder=None)
    assert move(pretended, turn, alone, pytest.fail, pytest.fail) == EXIT_NOT_YET
    assert turn.held() is None, "without a name no command of the run follows"


def test_what_a_run_notes_of_itself_is_told_with_its_turn_which_is_not_taken(
    turn, store, monkeypatch, capsys
):
    monkeypatch.setattr(moves_command, "_zookeeper", lambda _properties: contextlib.nullcontext(store))
    ask = options("rebalance", "--who", holder=None)
    assert moves_command.run(ask, {}, pytest.fail) == EXIT_DONE
    assert capsys.readouterr().out == "null\n"
    pretended, noted = cluster(), {"machine": "control", "pid": 7}
    moving = options("drain", "--broker=2", f"--run={json.dumps(noted)}", "--within=0")
    assert move(pretended, turn, moving, pytest.fail, pytest.fail) == EXIT_NOT_YET
    capsys.readouterr()
    assert moves_command.run(ask, {}, pytest.fail) == EXIT_DONE
    told = json.loads(capsys.readouterr().out)
    assert (told["holder"], told["command"], told["run"]) == (ALICE, "drain --broker=2", noted)
    assert 0 < told["remaining_ms"] <= 120_000
    assert told["is_ending"] is False
    assert turn.held().lease.holder == ALICE


@pytest.mark.parametrize("words", ["", "[1]", "{", "7"])
def test_what_a_run_notes_of_itself_is_an_object(words, capsys):
    with pytest.raises(SystemExit):
        options("rebalance", f"--run={words}")
    assert f"argument --run: {words!r} is no JSON object" in capsys.readouterr().err


def test_a_run_goes_on_at_once_in_the_place_of_a_dead_one(turn):
    pretended = cluster()
    first = options("drain", "--broker=2", "--keep=3600")
    assert move(pretended, turn, first, pytest.fail, Rests(pretended)) == EXIT_DONE
    second = options("drain", "--broker=2", holder=BOB)
    with pytest.raises(MovesRefusedError, match=r"^alice@control"):
        move(pretended, turn, second, pytest.fail, pytest.fail)
    second = options("drain", "--broker=2", f"--take-over={ALICE}", holder=BOB)
    assert move(pretended, turn, second, pytest.fail, Rests(pretended)) == EXIT_DONE
    assert turn.held() is None


def test_a_turn_that_cannot_be_given_back_fails_no_work(turn, store, monkeypatch):
    pretended, said = cluster(), []

    def lost(_holder):
        raise ConnectionLossError("/landline/move_turn")

    monkeypatch.setattr(turn, "free", lost)
    assert move(pretended, turn, options("rebalance"), said.append, Rests(pretended)) == EXIT_DONE
    assert said == ["rebalance: the turn could not be given back and ends by itself: /landline/move_turn"]
