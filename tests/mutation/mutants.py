"""Small faults to put into a module: what a programmer's slip might have left there.

A mutant replaces one piece of the text of one function: a comparison by its neighbour, plus by minus, a number by the next,
``and`` by ``or``, a condition by its opposite, what is returned by ``None``, a statement by ``pass``, ``break`` by ``continue``.
The invariant: the mutated text is a module that compiles and differs from the original in that piece alone. Annotations,
decorators, docstrings and messages are left as they are. A caller may rely on the order, which is that of the text.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from typing import Any, TypeAlias

import attrs

Key: TypeAlias = tuple[str, str, str, str]
"""What names a mutant whatever is written above it: module, function, line, change."""

_SWAPS: dict[type[ast.AST], type[Any]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
_LEFT_ALONE = {"annotation", "returns", "decorator_list"}


@attrs.frozen
class Mutant:
    """One fault: the bytes from ``start`` to ``end`` become ``new``; ``lines`` are the first and last of its function."""

    module: str
    function: str
    lines: tuple[int, int]
    number: int
    line: str
    start: int
    end: int
    old: str
    new: str
    nth: int

    def apply(self, text: bytes) -> bytes:
        """Return the text of the module with the fault in it."""
        return text[: self.start] + self.new.encode() + text[self.end :]

    @property
    def key(self) -> Key:
        """What names the mutant in ``explained.toml`` and in a record."""
        return (self.module, self.function, self.line, self.change)

    @property
    def change(self) -> str:
        """What becomes of what; with a number, if it is not the first such change in such a line of the function."""
        return f"{self.old} -> {self.new}" + (f" #{self.nth}" if self.nth > 1 else "")


def mutants(module: str, text: bytes) -> list[Mutant]:
    """Return all mutants of a module's functions, in the order of the text.

    >>> [mutant.change for mutant in mutants("m.py", b"def f(x):\\n    return x < 3\\n")]
    ['return x < 3 -> return None', 'x < 3 -> (x <= 3)', '3 -> 4']
    """
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = []
    seen: Counter[tuple[str, str, str, str]] = Counter()
    for name, function in _functions(ast.parse(text), ""):
        lines = (min([function.lineno, *(d.lineno for d in function.decorator_list)]), function.end_lineno or function.lineno)
        for node, new in _changes(function):
            start = starts[node.lineno - 1] + node.col_offset
            end = starts[(node.end_lineno or 1) - 1] + (node.end_col_offset or 0)
            row = text[starts[node.lineno - 1] : starts[node.lineno]].decode().strip()
            old = " ".join(text[start:end].decode().split())
            seen[name, row, old, new] += 1
            found.append(Mutant(module, name, lines, node.lineno, row, start, end, old, new, seen[name, row, old, new]))
    return found


def _functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yield the outermost functions; those inside them belong to them."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef):
            yield prefix + child.name, child
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.")


def _changes(node: ast.AST) -> Iterator[tuple[ast.stmt | ast.expr, str]]:
    if isinstance(node, ast.stmt):
        yield from ((node, new) for new in _statement(node))
    elif isinstance(node, ast.expr):
        yield from ((node, f"({new})" if " " in new else new) for new in _expression(node))
    if isinstance(node, ast.If | ast.While | ast.IfExp) and not isinstance(node.test, ast.Compare | ast.BoolOp | ast.UnaryOp):
        yield node.test, f"(not {ast.unparse(node.test)})"
    if isinstance(node, ast.JoinedStr) or _is_docstring(node):
        return
    for name, value in ast.iter_fields(node):
        if name not in _LEFT_ALONE:
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from _changes(child)


def _statement(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.Break | ast.Continue):
        yield "continue" if isinstance(node, ast.Break) else "break"
    elif isinstance(node, ast.Return):
        if node.value is not None and not (isinstance(node.value, ast.Constant) and node.value.value is None):
            yield "return None"
    elif isinstance(node, ast.Assign | ast.AugAssign | ast.Delete | ast.Raise | ast.Expr) and not _is_docstring(node):
        yield "pass"
    if isinstance(node, ast.AugAssign) and type(node.op) in _SWAPS:
        yield ast.unparse(ast.AugAssign(node.target, _swapped(node.op), node.value))


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _expression(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Compare):
        for place, operator in enumerate(node.ops):
            changed = [*node.ops[:place], _swapped(operator), *node.ops[place + 1 :]]
            yield ast.unparse(ast.Compare(node.left, changed, node.comparators))
    elif isinstance(node, ast.BinOp) and type(node.op) in _SWAPS:
        yield ast.unparse(ast.BinOp(node.left, _swapped(node.op), node.right))
    elif isinstance(node, ast.BoolOp):
        yield ast.unparse(ast.BoolOp(_swapped(node.op), node.values))
    elif isinstance(node, ast.UnaryOp):
        yield f"({ast.unparse(node.operand)})"
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        yield str(not node.value) if isinstance(node.value, bool) else str(0 if node.value == 1 else node.value + 1)


def _swapped(operator: ast.AST) -> Any:
    return _SWAPS[type(operator)]()
