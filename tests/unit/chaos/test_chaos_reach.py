"""The brokers' own log is counted, not what quotes it."""

from __future__ import annotations

from chaos.reach import EVENTS, reached

AT = "2026-11-21T14:56:46.658958+0000"
JOURNAL = f"""\
{AT} h3 landline[465]: {AT} info leader_elected partition=t-0 reason=offline leader=1
{AT} h3 landline[465]: {AT} info leader_elected partition=t-1 reason=offline leader=2
{AT} h2 landline[144]: {AT} warning follower_truncates partition=t-0 before=9 after=7
{AT} h2 landline[144]: {AT} info broker_state before=A after=leader_elected x
{AT} h2 java[36]: {AT} info leader_elected partition=t-0
{AT} h2 systemd[1]: Started landline-broker@2.service - leader_elected it was.
"""


def test_events_of_the_brokers_are_counted():
    assert reached(JOURNAL) == {EVENTS["leader_elected"]: 2, EVENTS["follower_truncates"]: 1}


def test_a_journal_without_a_broker_counts_nothing():
    assert not reached("")
