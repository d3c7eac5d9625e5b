"""Tests on compiled code (``python -m tools.compiled``, ADR 38): which of them cannot reach it, and are left out.

Compiled modules call each other's functions and methods without looking them up, so what a test puts in their place is
not seen. Their classes' objects take no other object in the place of one of theirs, and no other method.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest

from broker.network import processor

_plain_setattr = pytest.MonkeyPatch.setattr
# What compiled code says to a test's own object, in the place of one of a compiled class, and to its own method.
_STANDS_IN = re.compile(
    r" object expected; got (tests\.|types\.SimpleNamespace)| object attribute '\w+' is read-only$"
    r"|^'\w+' object has no attribute '__(code|slots)__'$"
)


def is_compiled(module: ModuleType) -> bool:
    return (getattr(module, "__file__", None) or "").endswith(".so")


#: For tests that put something in the place of the broker's own code, in another process.
only_on_python = pytest.mark.skipif(is_compiled(processor), reason="does not reach compiled code")


def owner_of(target: object) -> ModuleType | None:
    """The module whose code has what is replaced: of a dotted path, a module, a class or an object."""
    if isinstance(target, ModuleType):
        return target
    name = (
        target
        if isinstance(target, str)
        else (target if isinstance(target, type) else type(target)).__module__
    )
    while name:
        try:
            return importlib.import_module(name)
        except ImportError:
            name = name.rpartition(".")[0]
    return None


def refuse_compiled(target: object) -> None:
    """Skips the test if the code that has what is replaced is compiled."""
    owner = owner_of(target)
    if owner is not None and is_compiled(owner):
        pytest.skip(f"patches {owner.__name__}, which is compiled")


def leave_out_what_patches_compiled_code() -> None:
    """From now on a test is skipped, with the reason, when it patches what is compiled. Without compiled code this
    changes nothing.
    """

    def set_attribute(self: pytest.MonkeyPatch, target: Any, *args: Any, **kwargs: Any) -> None:
        refuse_compiled(target)
        _plain_setattr(self, target, *args, **kwargs)

    pytest.MonkeyPatch.setattr = set_attribute  # type: ignore[assignment, method-assign]


class LeaveOutStandIns:
    """A plugin for compiled code: a test is skipped, with the reason, when an object of its own is refused there."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self) -> Iterator[None]:
        with _skipped_if_refused():
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Iterator[None]:
        with _skipped_if_refused():
            return (yield)


@contextmanager
def _skipped_if_refused() -> Iterator[None]:
    try:
        yield
    except (TypeError, AttributeError) as error:
        if _STANDS_IN.search(str(error)):
            pytest.skip(f"has an own object in the place of a compiled one: {error}")
        raise
