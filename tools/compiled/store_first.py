"""Has C code of mypyc's replace an attribute before it releases the old value.

mypyc 2.4.1 releases first. The end of the old value may run other threads: a file closes, a ``__del__`` runs, a weak
reference calls back. A thread that reads the attribute then takes an object that is gone, and the process ends.
CPython itself stores first (``Py_SETREF``).
"""

from __future__ import annotations

import re

_RELEASE = r"[ \t]*CPy(?:Tagged)?_X?DECREF\({target}(?:\.f\d+)*\);\n"
# An attribute of an object, as code and setters have it.
_TARGET = r"(?:\(\([^()\n]+\)[^()\n]+\)|self)->_\w+"
_REPLACED = re.compile(
    rf"^(?P<indent>[ \t]*)(?P<when>if \((?P<tested>{_TARGET})(?P<part>(?:\.f\d+)*) != \w+\) \{{\n)?"
    rf"(?P<releases>(?:{_RELEASE.format(target=f'{_TARGET}')})+)"
    rf"(?(when)[ \t]*\}}\n)[ \t]*(?P<target>{_TARGET}) = (?P<value>[^;\n]+);\n",
    re.MULTILINE,
)
_LEFT = re.compile(rf"DECREF\({_TARGET}")


class UnknownCodeError(Exception):
    """mypyc wrote something that this module does not know."""


def stored_first(code: str) -> tuple[str, int]:
    """The code with each attribute replaced before the old value is released, and how many were.

    Raises UnknownCodeError if there is a release that is not followed by its assignment.
    """
    count = 0

    def turned(found: re.Match[str]) -> str:
        nonlocal count
        target = found["target"]
        released = found["releases"]
        if found["tested"] not in {None, target} or released.count(target) != released.count("DECREF"):
            raise UnknownCodeError(found[0])
        count += 1
        indent = found["indent"]
        when = (found["when"] or "{\n").replace(target, "landline_old")
        return (
            f"{indent}{{\n{indent}    __auto_type landline_old = {target};\n"
            f"{indent}    {target} = {found['value']};\n"
            f"{indent}    {when}{released.replace(target, 'landline_old')}{indent}    }}\n{indent}}}\n"
        )

    turned_code = _REPLACED.sub(turned, code)
    left = _LEFT.search(turned_code)
    if left is not None:
        line = turned_code.count("\n", 0, left.start()) + 1
        raise UnknownCodeError(f"line {line}: a value is released that is not replaced next")
    return turned_code, count
