"""Has C code of mypyc's clear an object before the next one of its class may take its memory.

mypyc 2.4.1 keeps the memory of one generator of each kind for the next. If a generator is left before its end, it
offers the memory before it has released what was in it. The end of that may run other threads: a file closes, a
``__del__`` runs. One that begins such a generator then gets this memory, and loses its variables to the release that
goes on.
"""

from __future__ import annotations

import re

from tools.compiled.store_first import UnknownCodeError

_KEPT = re.compile(
    r"^(?P<indent>[ \t]*)if \((?P<place>\w+_free_instance) == NULL\) \{\n"
    r"[ \t]*(?P=place) = self;\n"
    r"(?P<cleared>(?:(?!return;).)*?)"
    r"[ \t]*return;\n(?P=indent)\}\n",
    re.MULTILINE | re.DOTALL,
)
_OFFERED = re.compile(r"_free_instance = self;")


def cleared_first(code: str) -> tuple[str, int]:
    """The code with each such object cleared before its memory is offered, and how many kinds of them there are.

    Raises UnknownCodeError if one is offered in a way that this module does not know.
    """
    offered = len(_OFFERED.findall(code))

    def turned(found: re.Match[str]) -> str:
        indent, place = found["indent"], found["place"]
        # Looked at again: while this one was cleared, another one may have been offered. Then this one is freed.
        return (
            f"{indent}if ({place} == NULL) {{\n{found['cleared']}"
            f"{indent}    if ({place} == NULL) {{\n{indent}        {place} = self;\n{indent}        return;\n"
            f"{indent}    }}\n{indent}}}\n"
        )

    turned_code, count = _KEPT.subn(turned, code)
    if count != offered:
        raise UnknownCodeError(
            f"{offered} kinds of objects keep their memory for the next, {count} of them as known"
        )
    return turned_code, count
