"""The output and exit codes of the commands `landline may-stop` and `landline await-return`."""

from __future__ import annotations

import getpass
import os
import socket
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from broker.config.problems import ConfigError
from broker.server.stopping.asker import Asker, CannotAskError, recovery_progress, unit_given_up
from broker.server.stopping.may_stop import ZOOKEEPER_MS, Turn, zookeeper
from broker.server.stopping.own_status import OwnStatus
from broker.server.stopping.probe import Probe
from broker.server.stopping.stop_judge import in_words
from broker.server.stopping.stop_permit import StopPermit
from broker.server.stopping.stop_view import read_view
from broker.server.zookeeper_access import access_from
from broker.utils.options import Options
from broker.zookeeper.store import Store, StoreError

EXIT_GRANTED: Final = 0
# EX_CONFIG, EX_TEMPFAIL (a later attempt may succeed) and EX_UNAVAILABLE of sysexits.h.
EXIT_CONFIG: Final = 78
EXIT_NOT_NOW: Final = 75
EXIT_NO_ZOOKEEPER: Final = 69

Complain = Callable[[str], None]


def may_stop(options: Options, properties: Mapping[str, str], complain: Complain) -> int:
    """Takes the permit, or prints why not. ``options`` are the command's options."""

    def ask(store: Store, asker: Asker) -> int:
        if options.who:
            held = StopPermit(store).held()
            print("null" if held is None else held.to_json())
            return EXIT_GRANTED
        turn = _turn(options, store, asker, _probe(properties))
        reasons = turn.why_not_now() if options.dry_run else turn.ask(options.within)
        if not reasons:
            print(f"broker {asker.own.broker_id} may stop{'' if options.dry_run else _until(options)}")
            return EXIT_GRANTED
        complain(f"broker {asker.own.broker_id} may not stop: {in_words(reasons)}")
        return EXIT_NOT_NOW

    return _in_session(
        options,
        properties,
        complain,
        ask,
        consequence="no broker is to be stopped",
        within_ms=ZOOKEEPER_MS,
    )


def await_return(options: Options, properties: Mapping[str, str], complain: Complain) -> int:
    """Waits for the broker. ``options`` are the command's options."""

    def wait(store: Store, asker: Asker) -> int:
        progress = recovery_progress(OwnStatus(properties, complain))
        reasons = _turn(options, store, asker, _probe(properties) if options.known else None).await_return(
            options.within, progress, unit_given_up(options.unit)
        )
        if not reasons:
            print(f"broker {asker.own.broker_id} is back in every ISR that it was in")
            return EXIT_GRANTED
        complain(f"broker {asker.own.broker_id} is not back: {in_words(reasons)}")
        return EXIT_NOT_NOW

    # The broker was already stopped, so the command also waits for an unavailable ZooKeeper.
    within_ms = max(ZOOKEEPER_MS, int(options.within * 1000))
    return _in_session(
        options,
        properties,
        complain,
        wait,
        consequence="whether the broker is back cannot be told",
        within_ms=within_ms,
    )


def _in_session(
    options: Options,
    properties: Mapping[str, str],
    complain: Complain,
    work: Callable[[Store, Asker], int],
    *,
    consequence: str,
    within_ms: int,
) -> int:
    try:
        asker = Asker.of(properties, options.file)
        with zookeeper(asker.connect, within_ms, access_from(properties)) as store:
            return work(store, asker)
    except (CannotAskError, ConfigError) as error:
        complain(str(error))
        return EXIT_CONFIG
    except StoreError as error:
        complain(f"{consequence}: {error}")
        return EXIT_NO_ZOOKEEPER


def _probe(properties: Mapping[str, str]) -> Probe:
    try:
        return Probe.of(properties)
    except ConfigError as error:
        raise CannotAskError(
            f"the other brokers cannot be asked by the inter-broker listener, nor could the broker start: {error}"
        ) from error


def _turn(options: Options, store: Store, asker: Asker, probe: Probe | None = None) -> Turn:
    holder = options.holder or f"{getpass.getuser()}@{socket.gethostname()}"

    def tell(words: str) -> None:
        print(words, file=sys.stderr, flush=True)

    read = partial(read_view, listener=asker.listener, ask=probe)
    # Each command has one of these options.
    together: frozenset[int] = getattr(options, "together", frozenset())
    known = bool(getattr(options, "known", False))
    lease_ms = int(options.lease_s * 1000)
    return Turn(store, asker, holder, lease_ms, tell, read=read, together=together, known=known)


def _until(options: Options) -> str:
    command = f"landline await-return {options.file}"
    return f" for {options.lease_s:g} s; then `{command}`" if os.isatty(1) else f" for {options.lease_s:g} s"
