"""Has C code of mypyc's let other threads have a turn in its loops.

Compiled code keeps the interpreter's lock until it calls Python code or something that waits, so a loop over all that
a large request names would hold up every other connection. CPython looks at the end of each loop whether another
thread asks for the lock. The same is put there: now and then a call of a Python function that does nothing, for the
interpreter looks whenever it begins one.
"""

from __future__ import annotations

import re
from typing import Final

# At the end of each so many loops: 10 µs or so.
_EVERY: Final = 256
_HELPER: Final = f"""\
static unsigned int landline_loops;
static PyObject *landline_turn;
static void landline_call_turn(void) {{
    if (PyErr_Occurred()) return;
    if (landline_turn == NULL) {{
        PyObject *module = PyImport_ImportModule("broker.utils.turn");
        if (module != NULL) {{
            landline_turn = PyObject_GetAttrString(module, "turn");
            Py_DECREF(module);
        }}
    }}
    PyObject *done = landline_turn == NULL ? NULL : PyObject_CallNoArgs(landline_turn);
    if (done == NULL) PyErr_WriteUnraisable(NULL); else Py_DECREF(done);
}}
static inline void landline_give_way(void) {{
    if (unlikely(++landline_loops % {_EVERY} == 0)) landline_call_turn();
}}
"""
_LABEL: Final = re.compile(r"^(CPyL\d+): ;$")
_JUMP: Final = re.compile(r"^(\s+)(if \(.*\) )?goto (CPyL\d+);$")
_INCLUDE: Final = "#include "


def giving_way(code: str) -> tuple[str, int]:
    """The code with a look at other threads before each jump back, and how many there are."""
    lines: list[str] = []
    behind: set[str] = set()  # the labels of this function that came already
    last_include, count = -1, 0
    for line in code.split("\n"):
        if line == "}":
            behind.clear()
        elif line.startswith(_INCLUDE) and not count:
            last_include = len(lines)
        elif label := _LABEL.match(line):
            behind.add(label[1])
        elif (jump := _JUMP.match(line)) and jump[3] in behind:
            indent, condition, target = jump.groups()
            # In braces: the line before may be an `else`.
            line = f"{indent}{condition or ''}{{ landline_give_way(); goto {target}; }}"  # noqa: PLW2901
            count += 1
        lines.append(line)
    if count:
        lines.insert(last_include + 1, _HELPER)
    return "\n".join(lines), count
