"""The types of decoded responses, for annotations: ``responses.pyi`` has them, written by `make docs` from the schemas.

At run time a response is of the library's own class for its version, which is loaded when one is first decoded; so a
name stands here for nothing in particular.
"""

from __future__ import annotations


def __getattr__(name: str) -> type:
    if name.startswith("_"):
        raise AttributeError(name)
    return object
