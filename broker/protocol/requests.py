"""The types of decoded requests, for annotations. ``requests.pyi`` has them; `make docs` writes it from
the schemas.

At run time a request has the library's class for its version, which is loaded when the first one is decoded.
So the names here have no content at run time.
"""

from __future__ import annotations


def __getattr__(name: str) -> type:
    if name.startswith("_"):
        raise AttributeError(name)
    return object
