"""Calls as they are written: what each node of the parser is the call of, and the literals among its arguments."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from sqlglot import exp

from timely.differential.tables.values import moment_functions as moments
from timely.differential.tables.values.refusals import only, refusal
from timely.errors import SqlError


class Call(NamedTuple):
    """The name of a function or an operator, and its arguments."""

    name: str
    arguments: Sequence[exp.Expr]


def call_of(node: exp.Expr) -> Call | None:
    """Return what a node is the call of, or ``None`` where it is none.

    >>> call_of(exp.column("a") + 1)
    Call(name='+', arguments=[Column(
      this=Identifier(this=a, quoted=False)), Literal(this=1, is_string=False)])
    """
    if isinstance(node, exp.Anonymous):
        return Call(node.name.lower(), node.expressions)
    read = _SYNTAX.get(type(node))
    if read is not None:
        return read(node)
    name, *arguments = _OPERATORS.get(type(node), ("",))
    if not name:
        return None
    only(node, *arguments, *_SAYS_NOTHING.get(type(node), ()))
    values = [node.args.get(argument) for argument in arguments]
    return Call(name, [part for value in values if value for part in (value if isinstance(value, list) else [value])])


_BOTH: Final = ("this", "expression")

_SAYS_NOTHING: Final[dict[Any, tuple[str, ...]]] = {
    exp.Div: ("safe", "typed"),
    exp.DPipe: ("safe",),
    exp.Array: ("bracket_notation", "value_constructor"),
    exp.ArrayOverlaps: ("null_safe",),
}
"""What the parser notes in each operator of DuckDB's dialect."""

_OPERATORS: Final[dict[Any, tuple[str, ...]]] = {
    exp.Add: ("+", *_BOTH),
    exp.Sub: ("-", *_BOTH),
    exp.Mul: ("*", *_BOTH),
    exp.Div: ("/", *_BOTH),
    exp.IntDiv: ("//", *_BOTH),
    exp.Mod: ("%", *_BOTH),
    exp.Neg: ("-", "this"),
    exp.Abs: ("abs", "this"),
    exp.Pow: ("pow", *_BOTH),
    exp.EQ: ("=", *_BOTH),
    exp.NEQ: ("<>", *_BOTH),
    exp.LT: ("<", *_BOTH),
    exp.LTE: ("<=", *_BOTH),
    exp.GT: (">", *_BOTH),
    exp.GTE: (">=", *_BOTH),
    exp.NullSafeEQ: ("is not distinct from", *_BOTH),
    exp.NullSafeNEQ: ("is distinct from", *_BOTH),
    exp.And: ("and", *_BOTH),
    exp.Or: ("or", *_BOTH),
    exp.Not: ("not", "this"),
    exp.In: ("in", "this", "expressions"),
    exp.DPipe: ("||", *_BOTH),
    exp.BitwiseAnd: ("&", *_BOTH),
    exp.BitwiseOr: ("|", *_BOTH),
    exp.BitwiseXor: ("xor", *_BOTH),
    exp.BitwiseNot: ("~", "this"),
    exp.Coalesce: ("coalesce", "this", "expressions"),
    exp.Array: ("list_value", "expressions"),
    exp.ArrayOverlaps: ("list_has_any", *_BOTH),
    exp.StartsWith: ("starts_with", *_BOTH),
    exp.SimilarTo: ("regexp_full_match", *_BOTH),
    exp.RegexpFullMatch: ("regexp_full_match", *_BOTH),
    exp.RegexpLike: ("regexp_matches", *_BOTH),
    exp.Substring: ("substring", "this", "start", "length"),
    exp.StrPosition: ("strpos", "this", "substr"),
    exp.AtTimeZone: ("at time zone", "this", "zone"),
}


# -- what the parser has syntax for --------------------------------------------------------------------------------


def _is(node: exp.Expr) -> Call:
    only(node, *_BOTH)
    if isinstance(node.expression, exp.Null):
        return Call("is null", [node.this])
    if isinstance(node.expression, exp.Boolean):
        return Call("is true" if node.expression.this else "is false", [node.this])
    raise refusal(node, "IS is supported with NULL, TRUE and FALSE")


def _between(node: exp.Expr) -> Call:
    only(node, "this", "low", "high")
    low, high = node.args["low"], node.args["high"]
    return Call("and", [exp.GTE(this=node.this, expression=low), exp.LTE(this=node.this, expression=high)])


def _like(node: exp.Expr) -> Call:
    inner = node.this if isinstance(node, exp.Escape) else node
    arguments = [inner.this, inner.expression]
    if isinstance(node, exp.Escape):
        only(node, *_BOTH)
        if not isinstance(inner, exp.Like | exp.ILike) or not isinstance(node.expression, exp.Literal):
            raise refusal(node, "ESCAPE takes one character, after LIKE")
        arguments.append(node.expression)
    only(inner, *_BOTH, "negate")
    name = "ilike" if isinstance(inner, exp.ILike) else "like"
    name = f"not {name}" if inner.args.get("negate") else name
    return Call(name if inner is node else f"{name} escape", arguments)


def _case(node: exp.Expr) -> Call:
    only(node, "this", "ifs", "default")
    arguments: list[exp.Expr] = []
    for branch in node.args["ifs"]:
        only(branch, "this", "true")
        test = branch.this if node.this is None else exp.EQ(this=node.this, expression=branch.this)
        arguments += [test, branch.args["true"]]
    return Call("case", [*arguments, node.args.get("default") or exp.Null()])


def _if(node: exp.Expr) -> Call:
    only(node, "this", "true", "false")
    if node.args.get("false") is None:
        raise refusal(node, "if takes a condition and two values")
    return Call("case", [node.this, node.args["true"], node.args["false"]])


def _extract(node: exp.Expr) -> Call:
    only(node, *_BOTH)
    return Call("date_part", [exp.Literal.string(node.this.name or node.this), node.expression])


def _trim(node: exp.Expr) -> Call:
    only(node, "this", "position", "expression")
    position = str(node.args.get("position") or "both").upper()
    if position not in _TRIMS:
        raise refusal(node, "trim takes away LEADING, TRAILING or BOTH")
    return Call(_TRIMS[position], [part for part in (node.this, node.args.get("expression")) if part is not None])


_TRIMS: Final = {"LEADING": "ltrim", "TRAILING": "rtrim", "BOTH": "trim"}


def _struct(node: exp.Expr) -> Call:
    only(node, "expressions")
    if not all(isinstance(field, exp.PropertyEQ) for field in node.expressions):
        raise refusal(node, "the fields of a struct have names")
    fields = [(exp.Literal.string(field.this.name), field.expression) for field in node.expressions]
    return Call("struct_pack", [part for field in fields for part in field])


def _dot(node: exp.Expr) -> Call:
    only(node, *_BOTH)
    return Call("struct_extract", [node.this, exp.Literal.string(node.expression.name)])


def _bracket(node: exp.Expr) -> Call:
    only(node, "this", "expressions")
    if len(node.expressions) != 1:
        raise refusal(node, "[] takes one number, name, or range")
    (index,) = node.expressions
    if isinstance(index, exp.Literal) and index.is_string:
        return Call("struct_extract", [node.this, index])
    if isinstance(index, exp.Slice):
        only(index, *_BOTH)
        first, last = index.args.get("this"), index.args.get("expression")
        return Call("list_slice", [node.this, first or exp.Literal.number(1), last or exp.Literal.number(-1)])
    return Call("list_extract", [node.this, index])


_SYNTAX: Final[dict[Any, Callable[[Any], Call]]] = {
    exp.Is: _is,
    exp.Between: _between,
    exp.Like: _like,
    exp.ILike: _like,
    exp.Escape: _like,
    exp.Case: _case,
    exp.If: _if,
    exp.Extract: _extract,
    exp.Trim: _trim,
    exp.Struct: _struct,
    exp.Dot: _dot,
    exp.Bracket: _bracket,
}


# -- literals ------------------------------------------------------------------------------------------------------


def bare(node: exp.Expr) -> exp.Expr:
    """Return an expression without the parentheses around it."""
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def whole_number(node: exp.Expr) -> int | None:
    """Return a whole number that is written there.

    >>> whole_number(exp.Neg(this=exp.Literal.number(2))), whole_number(exp.column("n"))
    (-2, None)
    """
    inner, sign = bare(node), 1
    while isinstance(inner, exp.Neg):
        inner, sign = bare(inner.this), -sign
    text = str(inner.this) if isinstance(inner, exp.Literal) and not inner.is_string else ""
    return sign * int(text) if text.isdecimal() and len(text) < 20 else None


def interval_of(interval: exp.Expr, sign: int = 1) -> tuple[int, datetime.timedelta] | None:
    """Return the months and the duration of a literal interval, times ``sign``; ``None`` for others."""
    only(interval, "this", "unit")
    if not isinstance(interval.this, exp.Literal):
        return None
    try:
        months, delta = moments.interval_of(str(interval.this.this), str(interval.args.get("unit") or ""))
    except SqlError as error:
        raise refusal(interval, str(error)) from None
    return sign * months, sign * delta


def unit_of(interval: exp.Expr) -> tuple[int, int]:
    """Return the months and microseconds of the unit of an interval of a computed length."""
    name = moments.unit_of(str(interval.args.get("unit") or ""))
    if name is None:
        raise refusal(interval, "an interval has a unit: years to microseconds")
    return moments.UNITS[name]
