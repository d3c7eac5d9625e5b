"""What the source of a compiled module must keep to, because mypyc 2.4.1 says nothing and does otherwise. ADR 38."""

from __future__ import annotations

import ast
import enum
from collections.abc import Iterator, Mapping
from pathlib import Path

MODULES = Path(__file__).with_name("modules.txt")
_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: made by a class statement
_NO_FIELDS = {"memoryview", "object"}


def modules() -> list[str]:
    """The paths of the modules that are compiled, from the repository's root."""
    return MODULES.read_text().split()


def faults(source: str) -> Iterator[str]:
    """What in this source is compiled to something else, as ``line: what``."""
    tree = ast.parse(source)
    classes = {node.name: node.lineno for node in tree.body if isinstance(node, ast.ClassDef)}
    yield from _looked_up(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Slice):
            for bound in (node.lower, node.upper):
                if bound is not None and _calls(bound):
                    yield f"{node.lineno}: a call within the bounds of a slice is made twice: {ast.unparse(bound)}"
        elif isinstance(node, ast.For):
            changed = sorted(_names(node.iter) & _stored(node.body))
            if changed:
                yield f"{node.lineno}: a loop goes by what is assigned within it: {', '.join(changed)}"
        elif isinstance(node, ast.FunctionDef) and (let_go := _let_go_of(node)):
            yield f"{let_go.lineno}: what has the descriptor is let go of before it is used: {ast.unparse(let_go)}"
        elif isinstance(node, ast.FunctionDef) and _caught(node) & _stored(node.body):
            both = ", ".join(sorted(_caught(node) & _stored(node.body)))
            yield f"{node.lineno}: what is caught must have the type of what its name is assigned: {both}"
        elif isinstance(node, ast.BinOp) and _are_keys(node.right) and not _are_keys(node.left):
            yield f"{node.lineno}: a set with a dict's keys is no frozenset, whatever mypy says: {ast.unparse(node)}"
        elif isinstance(node, ast.Attribute) and node.attr == "_thread":
            yield f"{node.lineno}: the attribute _thread becomes __thread, a word of C"
        elif isinstance(node, ast.ClassDef):
            yield from _read_twice(node)
            if _has_fields(node):
                yield from _faults_of_fields(node, classes)


def _looked_up(tree: ast.Module) -> Iterator[str]:
    """The constants that are looked up by name at each use, here and where they are imported. One that is annotated
    with a type is meant so: a test changes it.
    """
    for node in tree.body:
        if not isinstance(node, ast.Assign) or _is_of_types(node.value):
            continue
        for name in sorted(name.id for name in node.targets if isinstance(name, ast.Name)):
            if name.isupper():
                yield f"{node.lineno}: a constant that is not Final is looked up in a dict at each use: {name}"
        for target in node.targets:
            if isinstance(target, ast.Tuple) and all(ast.unparse(name).isupper() for name in target.elts):
                yield f"{node.lineno}: constants that are assigned together cannot be Final: {ast.unparse(target)}"


def _let_go_of(function: ast.FunctionDef) -> ast.Call | None:
    """A call of ``fileno`` that is the last use of the variable which has the file. Arguments are the caller's."""
    uses = [
        node for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    ]
    given = {each.arg for each in ast.walk(function.args) if isinstance(each, ast.arg)}
    for call in ast.walk(function):
        if (
            not isinstance(call, ast.Call)
            or not isinstance(call.func, ast.Attribute)
            or call.func.attr != "fileno"
        ):
            continue
        root: ast.expr = call.func.value
        while isinstance(root, ast.Attribute):
            root = root.value
        if not isinstance(root, ast.Name) or root.id in given:
            continue
        place = root.lineno, root.col_offset
        if not any(use.id == root.id and (use.lineno, use.col_offset) > place for use in uses):
            return call
    return None


def _is_of_types(value: ast.expr) -> bool:
    """Whether this is another name of a class, or a type variable."""
    if isinstance(value, ast.Call):
        return ast.unparse(value.func) == "TypeVar"
    return isinstance(value, ast.Name) and not value.id.isupper()


def _read_twice(node: ast.ClassDef) -> Iterator[str]:
    """What one method tests for None and then reads again, while another method sets it to None: perhaps in between,
    on another thread.
    """
    methods = [each for each in node.body if isinstance(each, ast.FunctionDef) and each.name != "__init__"]
    emptied = {name for method in methods for name in _emptied(method)}
    for method in methods:
        tested: set[str] = set()
        for inner in ast.walk(method):
            if isinstance(inner, ast.If | ast.While | ast.IfExp | ast.Assert):
                tested |= emptied & set(map(_own, ast.walk(inner.test)))
            elif isinstance(inner, ast.BoolOp):
                tested |= emptied & set(map(_own, ast.walk(inner)))
        for inner in ast.walk(method):
            used = inner.func if isinstance(inner, ast.Call) else getattr(inner, "value", None)
            if not isinstance(inner, ast.Call | ast.Attribute | ast.Subscript) or not isinstance(
                used, ast.expr
            ):
                continue
            if _own(used) in tested:
                yield f"{inner.lineno}: what may be None by now is read once, into a variable: {ast.unparse(used)}"


def _emptied(method: ast.FunctionDef) -> Iterator[str]:
    """The object's attributes that are set to None."""
    for inner in ast.walk(method):
        if not isinstance(inner, ast.Assign):
            continue
        for target in inner.targets:
            both = (
                zip(target.elts, inner.value.elts, strict=False)
                if isinstance(target, ast.Tuple) and isinstance(inner.value, ast.Tuple)
                else [(target, inner.value)]
            )
            for left, right in both:
                if _own(left) and isinstance(right, ast.Constant) and right.value is None:
                    yield _own(left)


def _own(node: ast.AST) -> str:
    """The attribute's name if this is one of ``self``."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        return node.attr
    return ""


def _faults_of_fields(node: ast.ClassDef, classes: Mapping[str, int]) -> Iterator[str]:
    for field in node.body:
        if isinstance(field, ast.AnnAssign) and _names(field.annotation) & _NO_FIELDS:
            yield f"{field.lineno}: a field of this type is a KeyError at import: {ast.unparse(field)}"
        elif (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.annotation, ast.Name)
            and classes.get(field.annotation.id, 0) >= node.lineno
        ):
            yield f"{field.lineno}: a field of a class that comes later ends the process: {ast.unparse(field)}"


def _are_keys(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "keys"


def c_base(kind: type) -> type | None:
    """The type written in C, other than object and exceptions, that a class inherits its layout from."""
    if issubclass(kind, enum.Enum | BaseException | tuple):  # these stay Python's own
        return None
    return next(
        (base for base in kind.__mro__ if base is not object and not base.__flags__ & _HEAP_TYPE), None
    )


def compiled_bases(kind: type) -> list[type]:
    """The compiled classes that a class which is not compiled inherits from: their methods would refuse its objects."""
    compiled = {path.removesuffix(".py").replace("/", ".") for path in modules()}
    if kind.__module__ in compiled:
        return []
    return [
        base
        for base in kind.__mro__
        if base.__module__ in compiled and not issubclass(base, enum.Enum | tuple)
    ]


def _calls(node: ast.expr) -> bool:
    return any(
        isinstance(inner, ast.Call) and not (isinstance(inner.func, ast.Name) and inner.func.id == "len")
        for inner in ast.walk(node)
    )


def _has_fields(node: ast.ClassDef) -> bool:
    bases = {ast.unparse(base) for base in node.bases}
    return "NamedTuple" in bases or any("dataclass" in ast.unparse(made) for made in node.decorator_list)


def _caught(node: ast.FunctionDef) -> set[str]:
    """The names that its exceptions get."""
    return {inner.name for inner in ast.walk(node) if isinstance(inner, ast.ExceptHandler) and inner.name}


def _stored(body: list[ast.stmt]) -> set[str]:
    """The names that these statements assign."""
    return {
        inner.id
        for statement in body
        for inner in ast.walk(statement)
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store)
    }


def _names(node: ast.expr) -> set[str]:
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
