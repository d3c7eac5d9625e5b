"""How long ZooKeeper was silent: ever, and in the last minutes."""

from __future__ import annotations

from broker.zookeeper.silence import PERIOD_S, Silence


def hear(silence: Silence, *times_s: float) -> None:
    for time_s in times_s:
        silence.heard(time_s)


def test_before_the_first_message_there_is_no_silence() -> None:
    silence = Silence()
    assert (silence.longest_s(1000.0), silence.recent_s(1000.0)) == (0.0, 0.0)


def test_the_silence_that_lasts_counts() -> None:
    silence = Silence()
    hear(silence, 1000.0, 1002.0)
    assert (silence.longest_s(1009.0), silence.recent_s(1009.0)) == (7.0, 7.0)
    hear(silence, 1010.0)
    assert (silence.longest_s(1010.0), silence.recent_s(1010.0)) == (8.0, 8.0)


def test_a_long_silence_is_forgotten_after_some_minutes_and_a_shorter_one_is_seen() -> None:
    """As after ten minutes without ZooKeeper: a session that is nearly lost an hour later must be seen."""
    silence, now_s = Silence(), 1000.0
    hear(silence, now_s, now_s + 600)
    now_s += 600
    assert silence.recent_s(now_s + PERIOD_S - 1) >= 600
    for _ in range(int(2 * PERIOD_S)):
        now_s += 1
        silence.heard(now_s)
    assert (silence.longest_s(now_s), silence.recent_s(now_s)) == (600.0, 1.0)
    hear(silence, now_s + 3.5)
    assert silence.recent_s(now_s + 4) == 3.5


def test_a_silence_is_remembered_for_a_period_at_least() -> None:
    for second in range(0, int(2 * PERIOD_S), 50):
        silence, now_s = Silence(), 1000.0
        for _ in range(second):
            silence.heard(now_s)
            now_s += 1
        hear(silence, now_s, now_s + 20)
        now_s += 20
        end_s = now_s + PERIOD_S - 1
        while now_s < end_s:
            now_s += 1
            silence.heard(now_s)
            assert silence.recent_s(now_s) == 20
