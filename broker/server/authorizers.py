"""Makes the authorizer that ``authorizer.class.name`` names: the built-in one, or a Python class."""

from __future__ import annotations

from importlib import import_module

from broker.config.authorizer_class import ACL_AUTHORIZER
from broker.config.broker_config import BrokerConfig
from broker.security.authorizer import Authorizer, AuthorizerError
from broker.server.access import Access
from broker.server.audit import AuditLog
from broker.server.lifecycle.startup_steps import StartupError, StartupSteps
from broker.zookeeper.store import Store, StoreError


def make_authorizer(config: BrokerConfig, store: Store) -> Authorizer | None:
    """The authorizer, not started; None if none is configured. Raises AuthorizerError."""
    name = config.str("authorizer.class.name").strip()
    if not name:
        return None
    if name == ACL_AUTHORIZER:
        from broker.security.acl_authorizer import AclAuthorizer  # imported late: most brokers have none

        return AclAuthorizer(store)
    return _made(name)


def start_access(config: BrokerConfig, store: Store, steps: StartupSteps) -> Access | None:
    """Makes and starts the authorizer; ``steps`` close it. Raises StartupError, StoreError."""
    try:
        authorizer = make_authorizer(config, store)
        if authorizer is None:
            return None
        steps.undo_by("Authorizer", authorizer.close)
        authorizer.start(config.authorizer_settings)
    except (StoreError, StartupError):
        raise
    except Exception as error:  # of AuthorizerError, and of whatever else somebody else's code raises
        raise StartupError(f"the authorizer did not start: {error}") from error
    return Access(authorizer, AuditLog())


def _made(name: str) -> Authorizer:
    module_name, _, class_name = name.partition(":") if ":" in name else name.rpartition(".")
    try:
        kind = getattr(import_module(module_name), class_name)
        if not (isinstance(kind, type) and issubclass(kind, Authorizer)):
            raise TypeError("it is no subclass of broker.security.authorizer.Authorizer")
        return kind()
    except Exception as error:  # somebody else's code
        raise AuthorizerError(
            f"authorizer.class.name: {name} cannot be used: {error}; possible are {ACL_AUTHORIZER}, and a Python "
            f"class that the broker can import (PYTHONPATH), as package.module:Class"
        ) from error
