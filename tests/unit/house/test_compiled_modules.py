"""The modules that mypyc compiles keep to what it compiles rightly, and its C code stores before it releases."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from contextlib import suppress
from io import FileIO
from pathlib import Path

import pytest

import broker
from broker.protocol.errors import KafkaError
from tools.compiled import rules
from tools.compiled.clear_first import cleared_first
from tools.compiled.give_way import giving_way
from tools.compiled.store_first import UnknownCodeError, stored_first

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("path", rules.modules())
def test_a_compiled_module_has_nothing_that_is_compiled_to_something_else(path: str) -> None:
    assert list(rules.faults((ROOT / path).read_text())) == []


@pytest.mark.parametrize("path", rules.modules())
def test_no_compiled_class_has_the_layout_of_a_type_of_cs(path: str) -> None:
    module = importlib.import_module(path.removesuffix(".py").replace("/", "."))
    own = [
        kind
        for kind in vars(module).values()
        if isinstance(kind, type) and kind.__module__ == module.__name__
    ]
    assert {kind.__name__: base for kind in own if (base := rules.c_base(kind))} == {}


def test_what_inherits_from_a_compiled_class_is_compiled_too() -> None:
    inheriting = {
        f"{kind.__module__}.{kind.__name__}": bases
        for kind in classes_of_the_broker()
        if (bases := rules.compiled_bases(kind))
    }
    assert inheriting == {}


def classes_of_the_broker() -> Iterator[type]:
    for found in pkgutil.walk_packages(broker.__path__, "broker."):
        if not found.name.endswith("__main__"):
            with suppress(ModuleNotFoundError):  # GSSAPI's, where Kerberos is not installed
                module = importlib.import_module(found.name)
                yield from (
                    kind
                    for kind in vars(module).values()
                    if isinstance(kind, type) and kind.__module__ == found.name
                )


def test_a_class_that_inherits_from_a_compiled_one_is_told() -> None:
    class Refused(KafkaError):
        pass

    assert rules.compiled_bases(Refused) == [KafkaError]
    assert rules.compiled_bases(KafkaError) == []
    assert rules.compiled_bases(Path) == []


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("left = left[send(left):]", "1: a call within the bounds of a slice is made twice: send(left)"),
        ("a[: f() + 1]", "1: a call within the bounds of a slice is made twice: f() + 1"),
        (
            "for _ in range(count):\n    left -= (count := length())",
            "1: a loop goes by what is assigned within it: count",
        ),
        ("for x in xs:\n    if x:\n        xs = []", "1: a loop goes by what is assigned within it: xs"),
        (
            "def f():\n    error = 1\n    try:\n        g()\n    except E as error:\n        pass",
            "1: what is caught must have the type of what its name is assigned: error",
        ),
        (
            "late = members - followers.keys()",
            "1: a set with a dict's keys is no frozenset, whatever mypy says: members - followers.keys()",
        ),
        ("self._thread = 1", "1: the attribute _thread becomes __thread, a word of C"),
        (
            "class A(NamedTuple):\n    a: memoryview | None",
            "2: a field of this type is a KeyError at import: a: memoryview | None",
        ),
        (
            "@dataclass(slots=True)\nclass A:\n    a: object = None",
            "3: a field of this type is a KeyError at import: a: object = None",
        ),
        (
            "class A(NamedTuple):\n    b: B\n\nclass B:\n    pass",
            "2: a field of a class that comes later ends the process: b: B",
        ),
        (
            "def f(self):\n    file = self.file\n    return os.pread(file.fileno(), 9, 0)",
            "3: what has the descriptor is let go of before it is used: file.fileno()",
        ),
        ("_MOST = 1 << 20", "1: a constant that is not Final is looked up in a dict at each use: _MOST"),
        ("ON, OFF = 1, 0", "1: constants that are assigned together cannot be Final: (ON, OFF)"),
    ],
)
def test_what_is_compiled_to_something_else_is_told(source: str, told: str) -> None:
    assert list(rules.faults(source)) == [told]


@pytest.mark.parametrize(
    "source",
    [
        "a[len(b):]",
        "a[f()]",
        "a.keys() - b.keys()",
        "class A:\n    a: memoryview",
        "self.thread = 1",
        "MOST: Final = 1 << 20",
        "def f(self):\n    file = self.file\n    data = os.pread(file.fileno(), 9, 0)\n    keep(file)\n    return data",
        "def f(region):\n    return os.pread(region.file.fileno(), 9, 0)",
        "CHANGED_BY_A_TEST: int = 1 << 20",
        "T = TypeVar('T')",
        "_E = Errors",
        "def f():\n    LOCAL = 1",
    ],
)
def test_what_is_compiled_rightly_is_not_told(source: str) -> None:
    assert list(rules.faults(source)) == []


@pytest.mark.parametrize(
    ("uses", "is_told"),
    [
        ("if self.a is not None: self.a.set()", True),
        ("return self.a[0] if self.a else 1", True),
        ("return self.a is not None and self.a()", True),
        ("if (a := self.a) is not None: a.set()", False),
        ("if self.b is not None: self.b.set()", False),
    ],
)
def test_what_another_thread_may_set_to_none_is_read_once(uses: str, *, is_told: bool) -> None:
    source = (
        f"class A:\n    def use(self):\n        {uses}\n    def end(self):\n        a, self.a = self.a, None"
    )
    told = "3: what may be None by now is read once, into a variable: self.a"
    assert list(rules.faults(source)) == ([told] if is_told else [])


def test_a_class_with_the_layout_of_a_type_of_cs_is_told() -> None:
    class File(FileIO):
        pass

    class Plain(Exception):
        pass

    assert rules.c_base(File) is FileIO
    assert rules.c_base(Plain) is None


def test_an_attribute_is_replaced_before_its_old_value_is_released() -> None:
    before = """\
    CPy_DECREF(((LogObject *)cpy_r_self)->_segments);
    ((LogObject *)cpy_r_self)->_segments = cpy_r_r0;
"""
    after, count = stored_first(before)
    assert count == 1
    assert after.index("->_segments = cpy_r_r0") < after.index("CPy_DECREF(landline_old)")


def test_a_value_that_may_not_be_there_is_released_only_if_it_was() -> None:
    before = """\
    if (self->__state.f0 != CPY_INT_TAG) {
        CPyTagged_DECREF(self->__state.f0);
        CPy_DECREF(self->__state.f1);
    }
    self->__state = tmp;
    return 0;
"""
    after, count = stored_first(before)
    assert count == 1
    lines = [line.strip() for line in after.splitlines()]
    assert lines == [
        "{",
        "__auto_type landline_old = self->__state;",
        "self->__state = tmp;",
        "if (landline_old.f0 != CPY_INT_TAG) {",
        "CPyTagged_DECREF(landline_old.f0);",
        "CPy_DECREF(landline_old.f1);",
        "}",
        "}",
        "return 0;",
    ]


@pytest.mark.parametrize(
    "code",
    [
        "    CPy_DECREF(self->_a);\n    return 0;\n",
        "    CPy_DECREF(self->_a);\n    self->_b = tmp;\n",
        "    if (self->_b != NULL) {\n        CPy_DECREF(self->_a);\n    }\n    self->_a = tmp;\n",
    ],
)
def test_code_that_is_not_known_is_refused(code: str) -> None:
    with pytest.raises(UnknownCodeError):
        stored_first(code)


def test_a_jump_back_lets_other_threads_have_a_turn_and_a_jump_forward_does_not() -> None:
    before = """\
#include "__native.h"
PyObject *f(void) {
    if (done) goto CPyL2;
CPyL1: ;
    if (more) goto CPyL1;
    goto CPyL1;
CPyL2: ;
    return done;
}
PyObject *g(void) {
    goto CPyL1;
CPyL1: ;
    return done;
}
"""
    after, count = giving_way(before)
    assert count == 2
    assert "    if (more) { landline_give_way(); goto CPyL1; }\n" in after
    assert "    { landline_give_way(); goto CPyL1; }\n" in after
    assert "    if (done) goto CPyL2;\n" in after
    assert after.startswith('#include "__native.h"\nstatic unsigned int landline_loops;\n')
    assert "g(void) {\n    goto CPyL1;\n" in after
    assert giving_way("    return 0;\n") == ("    return 0;\n", 0)


OFFERED = """\
    PyObject_GC_UnTrack(self);
    if (walk_gen_free_instance == NULL) {
        walk_gen_free_instance = self;
        Py_CLEAR(self->_held);
        if (CPyTagged_CheckLong(self->_count)) {
            self->_count = CPY_INT_TAG;
        } else {
            self->_count = CPY_INT_TAG;
        }
        return;
    }
    CPy_TRASHCAN_BEGIN(self, walk_gen_dealloc)
"""


def test_an_object_is_cleared_before_the_next_may_take_its_memory() -> None:
    code, count = cleared_first(OFFERED + OFFERED.replace("walk", "other"))
    assert count == 2
    for name in ("walk", "other"):
        offered = code.index(f"{name}_gen_free_instance = self;")
        assert code.index("Py_CLEAR(self->_held);") < offered
        looked = code.rindex(f"if ({name}_gen_free_instance == NULL) {{", 0, offered)
        assert "Py_CLEAR" not in code[looked:offered], "looked at once more when all is cleared"
    assert code.count("return;") == 2
    assert cleared_first("self->_count = 1;\n") == ("self->_count = 1;\n", 0)
    with pytest.raises(
        UnknownCodeError, match="1 kinds of objects keep their memory for the next, 0 of them"
    ):
        cleared_first("walk_gen_free_instance = self;\n")
