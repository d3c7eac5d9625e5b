"""`landline credentials set`, `delete` and `list`: users' SCRAM credentials, also before the first start.

They are written to `/config/users` as by kafka-configs.sh, and brokers that run take them up. A password is
read from a file or from the standard input, never from the command line, and only its keys are kept.
"""

from __future__ import annotations

import getpass
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from broker.config.problems import ConfigError
from broker.sasl.credential import ScramCredential
from broker.sasl.scram import ALGORITHMS, new_credential
from broker.server.zookeeper_access import access_from
from broker.zookeeper.access import ZooKeeperAccess
from broker.zookeeper.cluster_store import ClusterStore
from broker.zookeeper.store import Store, StoreError
from broker.zookeeper.znodes import BadZnodeError

EXIT_DONE: Final = 0
EXIT_FAILED: Final = 1
_SESSION_MS: Final = 20_000

Complain = Callable[[str], None]


class CredentialsError(Exception):
    """What the command cannot do, and why."""


def run(options: Any, properties: Mapping[str, str], complain: Complain) -> int:
    """Runs the command. ``options`` are its options, ``properties`` the broker's file, empty without one."""
    work = {"set": _set, "delete": _delete, "list": _list}[options.verb]
    options.mechanism = getattr(options, "mechanism", None) or list(ALGORITHMS)
    try:
        if options.data_dir is not None:
            work(options, _embedded(options.data_dir))
        else:
            connect = options.zookeeper or properties.get("zookeeper.connect", "")
            if not connect:
                raise CredentialsError(f"{options.config} has no zookeeper.connect: give --data-dir instead")
            work(options, _zookeeper(connect, access_from(properties)))
    except (CredentialsError, BadZnodeError, ConfigError, StoreError, OSError) as error:
        complain(f"credentials {options.verb}: {error}")
        return EXIT_FAILED
    return EXIT_DONE


def _zookeeper(connect: str, access: ZooKeeperAccess) -> Store:
    from broker.zookeeper.client import ZooKeeperStore

    store = ZooKeeperStore(connect, _SESSION_MS, access)
    store.connect(_SESSION_MS, threading.Event())
    return store


def _embedded(data_dir: Path) -> Store:
    """The store of a standalone broker that does not run."""
    from broker.zookeeper.embedded import EmbeddedStore

    data_dir.mkdir(mode=0o750, parents=True, exist_ok=True)
    store = EmbeddedStore(data_dir / "metadata.sqlite")
    store.connect(_SESSION_MS, threading.Event())
    return store


def _set(options: Any, store: Store) -> None:
    with closing(store):
        password = _password(options.password_file, options.user)
        texts = {
            mechanism: str(new_credential(mechanism, password, options.iterations))
            for mechanism in options.mechanism
        }
        _change(store, options.user, lambda configs: configs | texts)
    print(f"{options.user}: {', '.join(texts)} set")


def _delete(options: Any, store: Store) -> None:
    with closing(store):
        before = ClusterStore(store).entity_config("users", options.user)
        there = [mechanism for mechanism in options.mechanism if mechanism in before]
        if not there:
            raise CredentialsError(f"user {options.user} has no {' or '.join(options.mechanism)}")
        _change(
            store,
            options.user,
            lambda configs: {name: text for name, text in configs.items() if name not in there},
        )
    print(f"{options.user}: {', '.join(there)} deleted")


def _list(_options: Any, store: Store) -> None:
    with closing(store):
        users = ClusterStore(store).entity_configs("users")
    for user in sorted(users):
        for mechanism in ALGORITHMS:
            if mechanism not in users[user]:
                continue
            print(f"{user}: {mechanism}, {_iterations(users[user][mechanism])} iterations")


def _iterations(text: str) -> str:
    try:
        return str(ScramCredential.parse(text).iterations)
    except ValueError:
        return "an unreadable number of"


def _change(store: Store, user: str, change: Callable[[dict[str, str]], dict[str, str]]) -> None:
    cluster = ClusterStore(store)
    cluster.create_top_level_paths()
    cluster.change_entity_config("users", user, change)


def _password(file: str | None, user: str) -> str:
    """The first line of the file, or of the standard input."""
    if file is not None:
        text = Path(file).read_text(encoding="utf-8").partition("\n")[0]
    elif sys.stdin.isatty():
        text = getpass.getpass(f"Password of {user}: ")
    else:
        text = sys.stdin.readline().rstrip("\n")
    if not text:
        raise CredentialsError("the password is empty")
    return text
